"""Trunks and policy against their formula written out, the published parameter counts, and torch's counters."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch.nn.functional import layer_norm, linear
from torch.utils.flop_counter import FlopCounterMode

from models.resnet_spec import ResnetSpec
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded

ANCRE = {"drop": Ancre(temperature=0.5), "keep": Ancre(temperature=0.5, inner_residual="keep")}
PUBLISHED = {  # task: (S, G, A) and trained numbers of actor and critic by depth
    "humanoid": ((268, 3, 17), {4: (344_098, 638_592), 16: (1_139_746, 2_229_888), 64: (4_322_338, 8_595_072)}),
    "ant": ((29, 2, 8), {4: (278_032, 574_848), 16: (1_073_680, 2_166_144), 64: (4_256_272, 8_531_328)}),
    "arm": ((17, 3, 5), {4: (273_674, 571_264), 16: (1_069_322, 2_162_560), 64: (4_251_914, 8_527_744)}),
}


def count(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def randomised(network: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Float64 but for the coefficients of a topology, with every trained number far from its start."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.double().parameters():
        torch.nn.init.normal_(parameter, std=0.4, generator=generator)
    return network


def weights(topology, depth: int, c: torch.Tensor | None) -> list[list[float]]:
    """w_ij of each step j = 1 .. K, beside the branch's own output: the rules in their own words."""
    if isinstance(topology, Cascaded):
        return [[0.0] * (j - 1) + [1.0] for j in range(1, depth + 1)]
    rows, start = [], 0
    for j in range(1, depth + 1):
        logits = c[start : start + j].double() / topology.temperature
        rows.append((logits.exp() / logits.exp().sum()).tolist())
        rows[-1][-1] += topology.inner_residual == "keep"
        start += j
    return rows


def by_hand(network, spec: ResnetSpec, topology, x: torch.Tensor) -> torch.Tensor:
    dense = [m for m in network.modules() if isinstance(m, torch.nn.Linear)]
    norms = [m for m in network.modules() if isinstance(m, torch.nn.LayerNorm)]

    def affine(number: int, h: torch.Tensor) -> torch.Tensor:
        return linear(h, dense[number].weight, dense[number].bias)

    def active(number: int, h: torch.Tensor) -> torch.Tensor:
        if spec.layer_norm:
            h = layer_norm(h, (spec.width,), norms[number].weight, norms[number].bias, eps=1e-6)
        return h.clamp(min=0) if spec.activation == "relu" else h / (1 + torch.exp(-h))

    post = spec.placement == "post"
    states = [active(0, affine(0, x)) if post else affine(0, x)]
    for j, row in enumerate(weights(topology, spec.num_blocks, network.stack.topology.c), start=1):
        h = states[-1]
        for layer in range(4 * j - 3, 4 * j + 1):
            h = active(layer, affine(layer, h)) if post else affine(layer, active(layer - 1, h))
        states.append(h + sum(weight * state for weight, state in zip(row, states, strict=True)))
    h = states[-1] if post else active(spec.depth, states[-1])
    return affine(-1, h)


@pytest.mark.parametrize("depth", [4, 16, 64])
@pytest.mark.parametrize("task", PUBLISHED)
def test_networks_have_the_published_parameter_counts(task, depth):
    (states, goals, actions), counts = PUBLISHED[task]
    spec, plain = ResnetSpec(depth=depth), Cascaded()
    with torch.device("meta"):
        actor = spec.actor(states + goals, actions, plain)
        critic = [spec.encoder(states + actions, 64, plain), spec.encoder(goals, 64, plain)]
    assert (count(actor), sum(map(count, critic))) == counts[depth]
    formula = [spec.num_params(states + goals, 2 * actions)]
    formula += [spec.num_params(states + actions, 64) + spec.num_params(goals, 64)]
    assert tuple(formula) == counts[depth]


@given(
    spec=st.builds(
        ResnetSpec,
        num_blocks=st.integers(1, 6),
        width=st.integers(1, 9),
        activation=st.sampled_from(["swish", "relu"]),
        layer_norm=st.booleans(),
        placement=st.sampled_from(["post", "pre"]),
    ),
    topology=st.sampled_from([Cascaded(), *ANCRE.values()]),
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)),
)
def test_a_trunk_is_its_formula(spec, topology, sizes):
    inputs, outputs, batch = sizes
    network = spec.encoder(inputs, outputs, topology)
    assert count(network) == spec.num_params(inputs, outputs) + topology.num_coefficients(spec.num_blocks)
    x = torch.randn(batch, inputs, dtype=torch.float64)
    randomised(network)
    torch.testing.assert_close(network(x), by_hand(network, spec, topology, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("topology", [Cascaded(), *ANCRE.values()])
def test_gradients_are_those_of_the_formula(topology, placement):
    spec = ResnetSpec(num_blocks=5, width=6, placement=placement)
    network = randomised(spec.encoder(3, 2, topology))
    x = torch.randn(4, 3, dtype=torch.float64)
    parameters = [p for name, p in network.named_parameters() if "topology" not in name]
    own = torch.autograd.grad(network(x).square().sum(), parameters)
    expected = torch.autograd.grad(by_hand(network, spec, topology, x).square().sum(), parameters)
    for ours, theirs in zip(own, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_blocks", [1, 4, 16])
def test_where_blocks_add_nothing_the_paper_form_keeps_the_state_and_the_released_form_grows(num_blocks):
    states = [1.0]
    for _ in range(num_blocks):
        states.append(states[-1] + sum(states) / len(states))
    for form, growth in (("drop", 1.0), ("keep", states[-1])):
        network = ResnetSpec(num_blocks=num_blocks, width=8).encoder(3, 2, ANCRE[form]).double()
        for block in network.stack.blocks:
            torch.nn.init.zeros_(block[-2].weight)  # of the last norm: the activation of 0 is 0
        h = network.enter(torch.randn(4, 3, dtype=torch.float64))
        torch.testing.assert_close(network.stack(h), growth * h, rtol=1e-6, atol=1e-6)


def test_matrices_start_uniform_within_one_over_the_root_of_their_inputs_and_biases_at_zero():
    network = ResnetSpec(depth=4).encoder(36, 64, Cascaded())
    for layer in (m for m in network.modules() if isinstance(m, torch.nn.Linear)):
        bound = layer.in_features**-0.5
        assert not layer.bias.any()
        assert 0.99 * bound < layer.weight.abs().max() <= bound
        assert layer.weight.var().item() == pytest.approx(1 / 3 / layer.in_features, rel=0.05)


def test_a_topology_changes_no_initial_weight():
    networks = []
    for topology in (Cascaded(), Ancre()):
        torch.manual_seed(0)
        networks.append(ResnetSpec(num_blocks=3, width=8).actor(5, 2, topology))
    plain, mixed = networks
    for name, weight in plain.named_parameters():
        assert torch.equal(weight, mixed.get_parameter(name)), name


def test_the_spread_of_an_action_lies_between_its_bounds():
    actor = ResnetSpec(num_blocks=1, width=8).actor(3, 2, Cascaded()).double()
    torch.nn.init.zeros_(actor.trunk.head.weight)
    for bias, expected in ((0.0, -1.5), (-50.0, -5.0), (50.0, 2.0), (0.7, -5 + 3.5 * (math.tanh(0.7) + 1))):
        actor.trunk.head.bias.data = torch.tensor([0.3, -0.4, bias, bias]).double()
        mean, log_std = actor(torch.randn(6, 3, dtype=torch.float64))
        torch.testing.assert_close(mean, torch.tensor([0.3, -0.4]).double().expand(6, 2))
        torch.testing.assert_close(log_std, torch.full((6, 2), expected).double())


def test_flops_are_those_that_torch_counts():
    spec = ResnetSpec(num_blocks=3, width=8)
    network = spec.encoder(5, 7, Cascaded())
    with FlopCounterMode(display=False) as counter:
        network(torch.randn(6, 5))
    assert counter.get_total_flops() == 6 * spec.flops(5, 7)


def test_a_depth_is_the_same_spec_as_its_blocks():
    assert ResnetSpec(depth=64) == ResnetSpec(num_blocks=16)
    assert ResnetSpec(num_blocks=16).depth == 64
    assert "depth" not in ResnetSpec(depth=64).model_dump()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": 18}, "depth 18 is not a multiple of 4, the layers of a block; the nearest is 16"),
        ({"depth": 1}, "depth 1 is not a multiple of 4, the layers of a block; the nearest is 4"),
        ({"depth": 0}, "depth 0 is not a multiple of 4"),
        ({"depth": "16"}, "depth '16' is not a multiple of 4"),
        ({"depth": True}, "depth True is not a multiple of 4"),
        ({"depth": 2000}, "less than or equal to 256"),
        ({"depth": 16, "num_blocks": 4}, "give num_blocks or depth, not both"),
        ({"num_blocks": 0}, "greater than or equal to 1"),
        ({"activation": "gelu"}, "'swish' or 'relu'"),
        ({"blocks": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(values, message):
    with pytest.raises(ValidationError) as caught:
        ResnetSpec(**values)
    (error,) = caught.value.errors()
    assert message in error["msg"]
    assert "\n" not in error["msg"]
