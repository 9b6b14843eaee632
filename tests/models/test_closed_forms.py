"""Topologies against closed forms, limit cases and the table of variants: what each step adds, by hand."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from models.stack import Stack
from models.topology import (
    ancre,
    ancre_sparse,
    ancre_uniform,
    cascaded,
    fixed_first_prev,
    learnable_cascaded,
    shortcuts,
)
from models.topology.base import TopologySpec

WIDTH = 5


def branch() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


class Zero(nn.Module):
    """A branch that adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def stack(topology: TopologySpec, depth: int) -> Stack:
    torch.manual_seed(0)
    return Stack([branch() for _ in range(depth)], topology, width=WIDTH, returns="branch").double()


def randomize(made: Stack, scale: float = 1.0) -> Stack:
    """Coefficients as they might be after training."""
    made.topology.c.data = scale * torch.randn(made.topology.c.shape, generator=torch.Generator().manual_seed(1))
    return made


def by_hand(made: Stack, x: Tensor, keep: bool, extra: Tensor | None = None) -> Tensor:
    """h_j = F_j(h_{j-1}) + sum_{i<j} p_ij h_i, term by term."""
    p = made.topology.coefficients().double()
    p = p if extra is None else p + extra
    states = [x]
    for j, block in enumerate(made.blocks, start=1):
        h = block(states[-1]) + (states[-1] if keep else 0)
        for i in range(j):
            h = h + p[i, j] * states[i]
        states.append(h)
    return states[-1]


def assert_same(made: Stack, expected: Any) -> None:
    """Forward, gradient of the input and gradient of the coefficients."""
    x = torch.randn(3, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [x, *made.parameters()]
    ours, theirs = made(x), expected(x)
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad((h**2).sum(), inputs, allow_unused=True) for h in (ours, theirs)]
    for mine, other in zip(*grads, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)  # c is float32


# --- the rule, variant by variant -----------------------------------------------------------------------------------


@pytest.mark.parametrize("inner_residual", ["keep", "drop"])
@pytest.mark.parametrize("normalization", ["ingoing", "outgoing", "none"])
@pytest.mark.parametrize("depth", [1, 2, 7])
def test_ancre(normalization: Any, inner_residual: Any, depth: int) -> None:
    spec = ancre.Spec(normalization=normalization, inner_residual=inner_residual, temperature=0.7)
    made = randomize(stack(spec, depth), 0.3)
    assert_same(made, lambda x: by_hand(made, x, keep=inner_residual == "keep"))


def test_cascaded_is_a_loop_over_residual_blocks() -> None:
    made = stack(cascaded.Spec(), 4)

    def loop(x: Tensor) -> Tensor:
        for block in made.blocks:
            x = x + block(x)
        return x

    assert_same(made, loop)


@pytest.mark.parametrize("normalization", ["ingoing", "outgoing"])
def test_one_hot_on_the_previous_state_with_drop_is_cascaded(normalization: Any) -> None:
    depth = 6
    made = stack(ancre.Spec(normalization=normalization, temperature=0.01), depth)
    previous = torch.tensor([float(i == j - 1) for j in range(1, depth + 1) for i in range(j)])
    made.topology.c.data = previous  # exp(1 / 0.01) against exp(0): a softmax of exactly 1
    usual = Stack(made.blocks, cascaded.Spec(), returns="branch")
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    if normalization == "outgoing":  # h_K has no previous step to leave for: its row is a softmax over nothing
        assert made.topology.coefficients().sum(1)[:depth].tolist() == [1.0] * depth
    torch.testing.assert_close(made(x), usual(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("depth", "growth"), [(8, 36), (12, 111), (24, 1575)])
def test_kept_residuals_grow_the_state_and_dropped_ones_do_not(depth: int, growth: int) -> None:
    """|h_K| / |h_0| of zero blocks under p_ij = 1/j: h_j = h_{j-1} + mean(h_0 .. h_{j-1})."""
    x = torch.randn(2, WIDTH, dtype=torch.float64)
    for spec, expected in ((ancre.Spec(inner_residual="keep"), growth), (ancre.Spec(inner_residual="drop"), 1)):
        made = Stack([Zero() for _ in range(depth)], spec, returns="branch")
        ratio = (made(x).norm() / x.norm()).item()
        assert round(ratio) == expected
        torch.testing.assert_close(made(x), by_hand(made, x, keep=expected > 1), rtol=1e-6, atol=1e-6)


def test_uniform_is_one_over_j_and_not_trained() -> None:
    made = stack(ancre_uniform.Spec(), 5)
    expected = torch.tensor([[1 / j if i < j else 0.0 for j in range(6)] for i in range(6)])
    torch.testing.assert_close(made.topology.coefficients(), expected)
    assert not list(made.topology.parameters())
    assert_same(made, lambda x: by_hand(made, x, keep=False))


def test_learnable_cascaded_starts_at_one_and_spares_the_first_block() -> None:
    made = stack(learnable_cascaded.Spec(), 4)
    assert made.topology.c.tolist() == [1.0, 1.0, 1.0]
    made.topology.c.data = torch.tensor([0.5, -1.0, 2.0])

    def loop(x: Tensor) -> Tensor:
        for a, block in zip([0.0, *made.topology.c], made.blocks, strict=True):
            x = block(x) + x + a * x
        return x

    assert_same(made, loop)


def test_fixed_first_and_previous() -> None:
    made = stack(fixed_first_prev.Spec(), 4)

    def loop(x: Tensor) -> Tensor:
        h = made.blocks[0](x) + x
        for block in made.blocks[1:]:
            h = block(h) + 0.5 * x + 0.5 * h
        return h

    assert_same(made, loop)


def test_shortcuts_have_weight_one() -> None:
    made = stack(shortcuts.Spec(shortcuts="2:3 + 0:2"), 4)

    def loop(x: Tensor) -> Tensor:
        one = made.blocks[0](x)
        two = made.blocks[1](one) + x
        three = made.blocks[2](two) + two
        out: Tensor = made.blocks[3](three)
        return out

    assert_same(made, loop)


@pytest.mark.parametrize(
    "text", ["0:0", "2:1", "0:2+0:2", "a:b", "0-2", "0:2,", "0:2++1:3", ":", "-1:2", "0:²", "0:2+", "0:1:2"]
)
def test_bad_shortcuts_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"shortcut") as refused:
        shortcuts.Spec(shortcuts=text)
    assert text.split("+")[0] in str(refused.value)


def test_a_shortcut_beyond_the_last_block_is_refused() -> None:
    with pytest.raises(ValueError, match="0:5 ends beyond the last of 4 blocks"):
        stack(shortcuts.Spec(shortcuts="0:5"), 4)


# --- softmax and counts ---------------------------------------------------------------------------------------------


@given(st.integers(1, 12), st.sampled_from([0.01, 0.1, 1.0]), st.integers(0, 9))
def test_softmax_columns_or_rows_sum_to_one(depth: int, temperature: float, seed: int) -> None:
    for normalization, axis in (("ingoing", 0), ("outgoing", 1)):
        topology = ancre.Spec(normalization=normalization, temperature=temperature).build(depth, WIDTH)
        topology.c.data = torch.randn(topology.c.shape, generator=torch.Generator().manual_seed(seed))
        p = topology.coefficients()
        assert p.dtype == torch.float32 and p.shape == (depth + 1, depth + 1)
        assert (p.triu(1) == p).all() and (p >= 0).all()
        sums = p.sum(axis)[1:] if axis == 0 else p.sum(axis)[:-1]
        torch.testing.assert_close(sums, torch.ones(depth))


@pytest.mark.parametrize(("depth", "count"), [(8, 36), (12, 78), (24, 300)])
def test_number_of_coefficients_is_that_of_table_6(depth: int, count: int) -> None:
    spec = ancre.Spec()
    assert spec.num_coefficients(depth) == count == sum(p.numel() for p in spec.build(depth, WIDTH).parameters())


def test_coefficients_start_uniform_and_stay_float32_in_a_bfloat16_network() -> None:
    made = stack(ancre.Spec(), 4).to(torch.bfloat16)
    assert {p.dtype for p in made.blocks.parameters()} == {torch.bfloat16}
    assert made.topology.c.dtype == torch.float32
    torch.testing.assert_close(made.topology.coefficients()[:3, 3], torch.full((3,), 1 / 3))
    assert made(torch.randn(2, WIDTH, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_one_adam_step_moves_a_logit_by_lr_over_temperature() -> None:
    """Why a sweep brackets both (topology.md): Adam's first step has size lr, whatever the gradient."""
    made = stack(ancre.Spec(temperature=0.1), 3)
    optimizer = torch.optim.Adam([made.topology.c], lr=1e-2)
    made(torch.randn(4, WIDTH, dtype=torch.float64)).square().sum().backward()
    optimizer.step()
    moved = (made.topology.c / 0.1).abs()[1:]  # c_01 is alone in its column: its gradient is zero
    torch.testing.assert_close(moved, torch.full_like(moved, 0.1), rtol=1e-3, atol=0)


# --- sparse masks ---------------------------------------------------------------------------------------------------


def dense_and(spec: ancre_sparse.Spec, depth: int) -> tuple[Stack, Stack]:
    """The same network, densely connected and by a mask that allows everything."""
    dense = randomize(stack(ancre.Spec(temperature=0.5), depth))
    sparse = Stack(dense.blocks, spec, returns="branch").double()
    sparse.topology.c.data = dense.topology.c.data.clone()
    return dense, sparse


@pytest.mark.parametrize(
    "table",
    [
        {"mask": "boundary-sources", "segment": 1},
        {"mask": "boundary-targets", "segment": 1},
        {"mask": "boundary-sources", "boundaries": (1, 2, 3, 4)},
        {"mask": "first-and-window", "first": 5},
        {"mask": "first-and-window", "first": 0, "window": 5},
    ],
)
def test_a_full_mask_is_the_dense_topology(table: dict[str, Any]) -> None:
    dense, sparse = dense_and(ancre_sparse.Spec(temperature=0.5, **table), 5)
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(sparse(x), dense(x))
    torch.testing.assert_close(sparse.topology.coefficients(), dense.topology.coefficients())


@pytest.mark.parametrize(
    ("table", "allowed"),
    [
        ({"mask": "boundary-sources", "segment": 2}, {1: "0", 2: "01", 3: "02", 4: "023", 5: "024"}),
        ({"mask": "boundary-targets", "segment": 2}, {2: "0", 4: "02", 5: "024"}),
        ({"mask": "first-and-window", "first": 2, "window": 1}, {1: "0", 2: "01", 3: "012", 4: "013", 5: "014"}),
    ],
)
def test_masks_allow_what_appendix_d_says(table: dict[str, Any], allowed: dict[int, str]) -> None:
    p = ancre_sparse.Spec(**table).build(5, WIDTH).coefficients()
    assert {j: "".join(str(i) for i in range(6) if p[i, j]) for j in range(6) if p[:, j].any()} == allowed
    torch.testing.assert_close(p.sum(0)[list(allowed)], torch.ones(len(allowed)))


@pytest.mark.parametrize("inner_residual", ["keep", "drop"])
@pytest.mark.parametrize("mask", ["boundary-sources", "boundary-targets", "first-and-window"])
def test_sparse_gradients_are_those_of_the_plain_sum_with_and_without_checkpointing(
    mask: Any, inner_residual: Any
) -> None:
    spec = ancre_sparse.Spec(mask=mask, inner_residual=inner_residual, temperature=0.5)
    spec = spec.model_copy(update={"segment": 2} if mask != "first-and-window" else {})
    made = randomize(stack(spec, 5))
    fixed = made.topology.fixed.double()
    expected = lambda x: by_hand(made, x, inner_residual == "keep", fixed)  # noqa: E731
    assert_same(made, expected)
    made.checkpoint = True
    assert_same(made, expected)


def test_boundary_targets_are_plain_blocks_inside_a_segment() -> None:
    """With p = 1 on the previous boundary, a segment is two residual blocks whose whole is added to its input."""
    spec = ancre_sparse.Spec(mask="boundary-targets", segment=2, temperature=0.01)
    made = stack(spec, 4)
    made.topology.c.data = torch.tensor([0.0, 0.0, 1.0])  # 0:2, then 0:4 and 2:4
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    h = x
    for block in made.blocks:
        h = h + block(h)
    torch.testing.assert_close(made(x), h)


# --- blocks that nobody here wrote ----------------------------------------------------------------------------------


def encoder_layers(depth: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(depth)]


def test_torch_encoder_layers_run_as_in_a_loop() -> None:
    layers = encoder_layers(3)
    x = torch.randn(2, 4, 8)
    h = x
    for layer in layers:
        h = layer(h)
    torch.testing.assert_close(Stack(layers, cascaded.Spec())(x), h)
    one_hot = Stack(layers, ancre.Spec(temperature=0.01))
    one_hot.topology.c.data = torch.tensor([float(i == j - 1) for j in range(1, 4) for i in range(j)])
    torch.testing.assert_close(one_hot(x), h, rtol=1e-5, atol=1e-5)


def test_torch_encoder_layers_learn_their_connections() -> None:
    network = Stack(encoder_layers(4), ancre.Spec(temperature=0.1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    x, target = torch.randn(4, 4, 8), torch.randn(4, 4, 8)
    losses = []
    for _ in range(20):
        loss = (network(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    p = network.topology.coefficients()
    assert (p[:4, 4] - 0.25).abs().max() > 0.05 and math.isclose(p[:, 4].sum().item(), 1, rel_tol=1e-6)
