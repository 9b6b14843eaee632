"""Two topologies in one decoder: against the equations written out, and where they are the plain network."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from models import snapshot
from models.llama import Llama, rotation
from models.llama_spec import LlamaSpec
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.attention_residual import Spec as AttentionResidual
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded
from models.topology.denseformer import Spec as DenseFormer
from models.topology.hyper_connections import Spec as HyperConnections
from models.topology.layerscale import Spec as LayerScale
from models.topology.mhc import Spec as Constrained

SIZES = {"width": 16, "ffn_width": 24, "depth": 3, "heads": 2, "vocab_size": 40}
MODULES = ("ffn", "both")


def build(topology: TopologySpec, granularity: str = "block", *, checkpoint: bool = False, **sizes: Any) -> Llama:
    """In float64, with weights far from zero and coefficients off their start."""
    torch.manual_seed(0)
    network = LlamaSpec(**(SIZES | {"granularity": granularity} | sizes)).build(topology, checkpoint=checkpoint)
    for name, weight in network.named_parameters():
        if "topology" not in name:
            torch.nn.init.normal_(weight, std=0.3)
    return network.double()


def moved(network: Llama) -> Llama:
    for topology in network.topologies().values():
        for coefficients in topology.parameters():
            coefficients.data += 0.1 * torch.randn(coefficients.shape)
    return network


def text() -> Tensor:
    return torch.randint(40, (2, 9), generator=torch.Generator().manual_seed(1))


def gradients(network: Llama, logits: Tensor) -> dict[str, Tensor]:
    loss = cross_entropy(logits.flatten(0, 1), text().flatten())
    return dict(zip(dict(network.named_parameters()), torch.autograd.grad(loss, [*network.parameters()]), strict=True))


def written_out(network: Llama, p: Tensor, q: Tensor, keep: bool) -> Tensor:
    """The equations at the head of models/modules.py."""

    def mixed(raw: Tensor, states: list[Tensor], weights: Tensor) -> Tensor:
        out = raw if keep or not states else raw - states[-1]
        for weight, state in zip(weights, states, strict=False):
            out = out + weight * state
        return out

    angles = rotation(text().shape[1], 8, 1e4, torch.device("cpu"))
    h, g = [network.embedding(text())], []
    for j, block in enumerate(network.stack.blocks, start=1):
        raw = h[-1] + block.attention(block.attention_norm(h[-1]), *angles)
        g.append(mixed(raw, g, q[:, j - 1]) if g else raw)
        raw = g[-1] + block.feed_forward(block.feed_forward_norm(g[-1]))
        h.append(mixed(raw, h, p[:, j]))
    return network.head(network.norm(mixed(h[-1], g, q[:, len(g)])))


@pytest.mark.parametrize("inner_residual", ["keep", "drop"])
@pytest.mark.parametrize("granularity", MODULES)
def test_logits_and_gradients_are_those_of_the_equations(granularity, inner_residual):
    network = moved(build(Ancre(temperature=0.5, inner_residual=inner_residual), granularity))
    found = network.topologies()
    depth = SIZES["depth"]
    if granularity == "both":
        p, keep = found["decoder"].coefficients(), inner_residual == "keep"
        expected = written_out(network, p, found["ffn"].coefficients(), keep)
    elif inner_residual == "drop":
        expected = written_out(network, torch.ones(depth).diag(1), found["ffn"].coefficients(), False)
    else:  # the outer series is cascaded, which takes nothing away and adds nothing: p = 0 beside "keep"
        expected = written_out(network, torch.zeros(depth + 1, depth + 1), found["ffn"].coefficients(), True)
    logits = network(text())
    torch.testing.assert_close(logits, expected, rtol=1e-6, atol=1e-6)
    ours, theirs = gradients(network, logits), gradients(network, expected)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)  # coefficients are float32
    assert all(gradient.abs().max() > 0 for gradient in ours.values())


@pytest.mark.parametrize("value_residual", [False, True])
@pytest.mark.parametrize("granularity", MODULES)
def test_cascaded_modules_are_the_plain_decoder(granularity, value_residual):
    plain = build(Cascaded(), value_residual=value_residual)
    network = build(Cascaded(), granularity, value_residual=value_residual)
    logits, expected = network(text()), plain(text())
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(gradients(network, logits), gradients(plain, expected))


@pytest.mark.parametrize("granularity", MODULES)
@pytest.mark.parametrize(
    ("topology", "sizes"),
    [(Ancre(), {"depth": 1}), (HyperConnections(), {}), (DenseFormer(), {})],
    ids=["ancre of one block", "hyper-connections", "denseformer"],
)
def test_topologies_that_start_as_the_plain_decoder(topology, sizes, granularity):
    plain, network = build(Cascaded(), **sizes), build(topology, granularity, **sizes)
    torch.testing.assert_close(network(text()), plain(text()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("granularity", MODULES)
@pytest.mark.parametrize(
    "topology",
    [Ancre(), Sparse(segment=2), HyperConnections(), Constrained(), DenseFormer(), AttentionResidual(), LayerScale()],
    ids=lambda topology: topology.kind,
)
def test_any_topology_connects_modules_and_recomputing_them_changes_nothing(topology, granularity):
    found = []
    for checkpoint in (False, True):
        network = moved(build(topology, granularity, checkpoint=checkpoint))
        found.append(gradients(network, network(text())))
    assert all(gradient.isfinite().all() for gradient in found[0].values())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("granularity", "networks"), [("block", 1), ("ffn", 1), ("both", 2)])
def test_every_series_has_coefficients_of_its_own(granularity, networks):
    spec = LlamaSpec(**SIZES, granularity=granularity)
    network = spec.build(Ancre())
    added = sum(p.numel() for p in network.parameters()) - spec.num_params()
    assert added == spec.num_coefficients(Ancre()) == networks * 6
    assert len(network.topologies()) == networks


def test_granularity_is_dumped_only_where_it_is_chosen():
    """The hash of a configuration is that of its JSON."""
    assert "granularity" not in LlamaSpec(**SIZES, granularity="block").model_dump_json()
    chosen = LlamaSpec(**SIZES, granularity="both")
    assert LlamaSpec.model_validate_json(chosen.model_dump_json()) == chosen != LlamaSpec(**SIZES)


def test_both_networks_are_in_one_topology_file(tmp_path: Path):
    network = moved(build(Ancre(temperature=0.5), "both"))
    file = tmp_path / "topology.json"
    file.write_bytes(snapshot.dump({name: one.snapshot() for name, one in network.topologies().items()}))
    read = snapshot.read(file)
    assert sorted(read) == ["decoder", "ffn"]
    for name, topology in network.topologies().items():
        torch.testing.assert_close(torch.tensor(read[name].p), topology.coefficients())
    assert read["decoder"].p != read["ffn"].p


@pytest.mark.filterwarnings("ignore")  # of torch, about its own compiler
@pytest.mark.parametrize("granularity", MODULES)
def test_compiled_blocks_give_the_same(granularity):
    network = moved(build(Ancre(), granularity))
    expected = network(text())
    for block in network.stack.blocks:
        block.compile(backend="aot_eager")
    logits = network(text())
    torch.testing.assert_close(logits, expected)
    assert all(gradient.isfinite().all() for gradient in gradients(network, logits).values())


def test_bfloat16_autocast_stays_near_float32():
    network = build(Ancre(), "both").float()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = network(text())
    torch.testing.assert_close(mixed.float(), network(text()), rtol=0.1, atol=0.3)
