"""Stages one after another in one process against the whole decoder: the same logits, gradients and names."""

import copy
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy

from models.llama_spec import LlamaSpec
from models.pipeline import Stage
from models.stages import crossing
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.ancre_uniform import Spec as Uniform
from models.topology.cascaded import Spec as Cascaded
from models.topology.fixed_first_prev import Spec as FirstPrev
from models.topology.hyper_connections import Spec as HyperConnections
from models.topology.learnable_cascaded import Spec as LearnableCascaded
from models.topology.mhc import Spec as Constrained
from models.topology.shortcuts import Spec as Shortcuts

TINY = LlamaSpec(width=16, ffn_width=24, depth=9, heads=2, vocab_size=40, init_std=0.3)
CUTS = [(0, 4, 9), (0, 1, 8, 9), tuple(range(10))]
TOPOLOGIES = [
    Ancre(temperature=1.0),
    Ancre(temperature=1.0, inner_residual="keep", normalization="outgoing"),
    Sparse(segment=3, temperature=1.0),
    Sparse(mask="boundary-targets", segment=4, temperature=1.0),
    Sparse(mask="first-and-window", window=2, temperature=1.0),
    Cascaded(),
    LearnableCascaded(),
    FirstPrev(),
    Uniform(inner_residual="drop"),
    Shortcuts(shortcuts="0:1+1:2+2:3+0:7"),
    HyperConnections(streams=2),
    Constrained(streams=2),
]


def network(topology, *, checkpoint: bool = False):
    """A decoder in float64 with coefficients that differ."""
    torch.manual_seed(0)
    whole = TINY.build(topology, checkpoint=checkpoint).double()
    with torch.no_grad():
        for coefficient in whole.stack.topology.parameters():
            coefficient += 0.3 * torch.randn_like(coefficient)
    return whole


def loss_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return cross_entropy(logits.flatten(0, 1), tokens.flatten().roll(-1))


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda spec: f"{spec.kind} {getattr(spec, 'mask', '')}")
@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_stages_are_the_decoder(topology, cuts):
    whole = network(topology)
    checkpoint = len(cuts) % 2 == 0
    stages = [Stage(copy.deepcopy(network(topology, checkpoint=checkpoint)), *ends) for ends in pairwise(cuts)]
    tokens = torch.randint(TINY.vocab_size, (2, 5), generator=torch.Generator().manual_seed(1))
    passed = (tokens,)
    for stage in stages[:-1]:
        passed = stage(*passed)
        assert len(passed) == stage.link.leaving
        assert {h.shape for h in passed} == {stage.link.shape(2, 5)}
    logits = stages[-1](*passed)
    torch.testing.assert_close(logits, whole(tokens), rtol=1e-6, atol=1e-6)  # mixing has float32 weights
    loss_of(logits, tokens).backward()
    loss_of(whole(tokens), tokens).backward()
    named = [dict(stage.named_parameters()) for stage in stages]
    assert set().union(*named) == {name for name, _ in whole.named_parameters()}
    for name, parameter in whole.named_parameters():
        owners = [parameters[name] for parameters in named if name in parameters]
        assert len(owners) == (len(stages) if "topology" in name else 1)
        gradient = sum(owner.grad for owner in owners)
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-5, atol=1e-7)


def test_a_stage_takes_and_gives_what_crosses_its_cuts():
    topology = Sparse(segment=3)
    stage = Stage(network(topology), 4, 7)
    assert (stage.link.entering, stage.link.leaving) == (3, 4)  # h_0, h_3, h_4; h_0, h_3, h_6, h_7
    assert crossing(topology.wiring(9), 7) == [0, 3, 6, 7]
    assert [*stage.stack.blocks] == ["4", "5", "6"]
    assert stage.embedding is stage.head is stage.norm is None


def test_a_whole_decoder_loads_what_its_stages_save():
    whole, other = network(Ancre()), network(Ancre())
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter += 1
    states = [Stage(copy.deepcopy(whole), *ends).state_dict() for ends in pairwise((0, 2, 7, 9))]
    other.load_state_dict({name: tensor for state in states for name, tensor in state.items()})
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), other.parameters(), strict=True))
