"""Segments of blocks that are run again in backward: the same gradients, and what they hold of memory."""

from itertools import accumulate

import pytest
import torch
from torch import Tensor

from models.llama import Llama
from models.llama_spec import LlamaSpec
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded
from models.topology.fixed_first_prev import Spec as FirstAndPrevious
from models.topology.hyper_connections import Spec as HyperConnections
from models.topology.learnable_cascaded import Spec as LearnableCascaded

SIZES = {"width": 32, "ffn_width": 86, "heads": 2, "vocab_size": 40}  # FFN 8/3 of the width, as in the paper


def build(topology: TopologySpec, depth: int, segment: int | None, *, checkpoint: bool = True) -> Llama:
    torch.manual_seed(0)
    network = LlamaSpec(**SIZES, depth=depth).build(topology, checkpoint=checkpoint, segment=segment)
    for coefficients in network.stack.topology.parameters():
        coefficients.data += 0.1 * torch.randn(coefficients.shape)
    return network


def tokens(*shape: int) -> Tensor:
    return torch.randint(40, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("segment", [1, 2, 3, 9])
@pytest.mark.parametrize(
    "topology",
    [Cascaded(), LearnableCascaded(), FirstAndPrevious(), Sparse(boundaries=(3,))],
    ids=lambda topology: topology.kind,
)
def test_segments_change_no_gradient(topology, segment):
    if topology.kind == "ancre-sparse" and 3 % segment:
        segment = None  # its own: none of these has an edge at 3
    found = []
    for checkpoint in (True, False):
        network = build(topology, 7, segment if checkpoint else None, checkpoint=checkpoint).double()
        loss = network(tokens(2, 6), tokens(2, 6))
        found.append(torch.autograd.grad(loss, [*network.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_segments_that_later_steps_look_into_are_refused():
    with pytest.raises(ValueError, match=r"^later steps read h_1, which is inside a segment of 2 bl"):
        build(Ancre(), 4, 2)
    with pytest.raises(ValueError, match=r"^later steps read h_3, which is inside a segment"):
        build(Sparse(segment=3), 8, 4)
    with pytest.raises(ValueError, match=r"^blocks of this topology are run again one by one, not in segments of 2$"):
        build(HyperConnections(), 4, 2)
    with pytest.raises(ValueError, match=r"^granularity 'both': modules are run again one by one, not in segments$"):
        LlamaSpec(**SIZES, depth=4, granularity="both").build(Cascaded(), checkpoint=True, segment=2)


def activations(topology: TopologySpec, depth: int, segment: int, text: Tensor) -> tuple[int, int]:
    """Bytes above what a trained network holds: at the end of forward through its blocks, and at the peak of backward.

    By the allocator's own record. Gradients of parameters have their memory before.
    """
    network = build(topology, depth, segment)
    x = torch.randn(*text.shape, SIZES["width"], requires_grad=True)
    args = [torch.randn(text.shape[1], SIZES["width"] // SIZES["heads"]) for _ in range(2)]
    network.stack(x, *args).sum().backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        out = network.stack(x, *args)
    held = sum(sizes(profile))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        out.sum().backward()
    return held, held + max(accumulate(sizes(profile)))


def sizes(profile: torch.profiler.profile) -> list[int]:
    return [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]


@pytest.mark.parametrize(("depth", "segment"), [(8, 4), (12, 4), (24, 4), (24, 6)])
def test_boundary_sources_hold_what_the_cascaded_network_holds(depth, segment):
    """Within 10 %, both in segments of as many blocks, at the end of forward and at the peak of backward."""
    text = tokens(4, 64)
    usual = activations(Cascaded(), depth, segment, text)
    sparse = activations(Sparse(segment=segment), depth, segment, text)
    assert sparse[0] <= 1.1 * usual[0]
    assert sparse[1] <= 1.1 * usual[1]
    formula = LlamaSpec(**SIZES, depth=depth).activation_bytes(bfloat16=False, checkpoint=True, segment=segment)
    assert usual[1] == pytest.approx(formula * text.numel(), rel=0.25)
