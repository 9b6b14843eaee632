"""The jax policy against the torch actor that it was copied from."""

from functools import cache
from itertools import product

import jax
import numpy as np
import pytest
import torch

from models.resnet_spec import ResnetSpec
from orchestrator import kinds
from orchestrator.crl import policy_jax

K, INPUTS, ACTIONS = 4, 7, 3
WEIGHTS = [[(i + j) / 20 if i < j else 0.0 for j in range(K + 1)] for i in range(K + 1)]
TOPOLOGIES = [
    {"kind": "cascaded"},
    {"kind": "fixed-first-prev"},
    {"kind": "ancre-uniform"},
    {"kind": "shortcuts", "shortcuts": "0:2+1:4"},
    {"kind": "learnable-cascaded"},
    *({"kind": "frozen", "weights": WEIGHTS, "inner_residual": inner} for inner in ("keep", "drop")),
    *(
        {"kind": kind, "normalization": rule, "inner_residual": inner}
        for kind, rule, inner in product(("ancre", "ancre-sparse"), ("ingoing", "outgoing", "none"), ("keep", "drop"))
    ),
]


def actor(topology: dict, **model):
    """With numbers moved off their start, as training would."""
    spec = ResnetSpec(**({"num_blocks": K, "width": 32} | model))
    torch.manual_seed(0)
    built = spec.actor(INPUTS, ACTIONS, kinds.parse("topology", topology))
    with torch.no_grad():
        for name, parameter in built.named_parameters():
            parameter += (0.02 if name.endswith(".c") else 0.3 * spec.width**-0.5) * torch.randn(parameter.shape)
    return spec, built


@cache
def compiled(spec, chain):
    """One for all topologies that need no other: compiling takes longer than all the rest."""
    kind = "cascaded" if chain else "ancre"
    return jax.jit(policy_jax.build(spec, spec.actor(INPUTS, ACTIONS, kinds.parse("topology", {"kind": kind}))))


def assert_agrees(spec, built) -> None:
    observation = torch.randn(50, INPUTS, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = [part.numpy() for part in built(observation)]
    params = {name: jax.numpy.asarray(array.numpy()) for name, array in policy_jax.export(built).items()}
    found = compiled(spec, policy_jax.is_chain(built))(params, observation.numpy())
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda table: "-".join(str(v)[:8] for v in table.values()))
def test_it_agrees_for_every_topology(topology):
    assert_agrees(*actor(topology))


@pytest.mark.parametrize(
    "model",
    [
        {"activation": "relu"},
        {"layer_norm": False},
        {"placement": "pre"},
        {"placement": "pre", "layer_norm": False},
        {"num_blocks": 1},
    ],
    ids=str,
)
def test_it_agrees_for_every_kind_of_block(model):
    assert_agrees(*actor({"kind": "ancre"}, **model))


def test_it_agrees_at_64_layers_and_full_width():
    for topology in ({"kind": "cascaded"}, {"kind": "ancre"}):
        assert_agrees(*actor(topology, num_blocks=16, width=256))


def test_a_chain_keeps_no_earlier_states():
    for kind, chain in (
        ("cascaded", True),
        ("learnable-cascaded", True),
        ("ancre", False),
        ("fixed-first-prev", False),
    ):
        spec, built = actor({"kind": kind})
        params = {name: array.numpy() for name, array in policy_jax.export(built).items()}
        text = str(jax.make_jaxpr(policy_jax.build(spec, built))(params, np.zeros((50, INPUTS), np.float32)))
        assert (f"f32[{K},50,32]" not in text) == chain, kind


def test_what_is_exported_follows_the_actor_without_a_copy_where_it_can():
    _, built = actor({"kind": "ancre"})
    head = policy_jax.export(built)["head.weight"]
    assert head.data_ptr() == built.trunk.head.weight.data_ptr()
