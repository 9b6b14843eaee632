"""The linear network against closed forms: its loss and gradients as matrix products, and the paper's two theorems."""

import math
from collections.abc import Callable

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from models.linear import LinearNetwork, low_rank_target
from models.linear_spec import LinearSpec
from models.topology.ancre import Spec as Ancre
from models.topology.shortcuts import Spec as Shortcuts


def network(shortcuts: str, **sizes: float) -> LinearNetwork:
    return LinearNetwork(LinearSpec.model_validate(sizes), Shortcuts(shortcuts=shortcuts), seed=0)


def weights(net: LinearNetwork) -> list[Tensor]:
    """W_1 .. W_K of a network without coefficients."""
    return [parameter.detach() for parameter in net.parameters()]


def set_weights(net: LinearNetwork, values: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), values, strict=True):
            parameter.copy_(value)


def diagonal(*entries: float) -> Tensor:
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def descend(net: LinearNetwork, rate: float) -> None:
    """One step of gradient descent, without an optimizer."""
    gradients = torch.autograd.grad(net(), list(net.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.sub_(rate * gradient)


@pytest.mark.parametrize(
    ("shortcuts", "end_to_end"),
    [
        ("", lambda w1, w2, w3, i: w3 @ w2 @ w1),
        ("0:1", lambda w1, w2, w3, i: w3 @ w2 @ (w1 + i)),
        ("0:2", lambda w1, w2, w3, i: w3 @ (w2 @ w1 + i)),
        ("1:3", lambda w1, w2, w3, i: (w3 @ w2 + i) @ w1),
        ("0:1+1:2+2:3", lambda w1, w2, w3, i: (w3 + i) @ (w2 + i) @ (w1 + i)),
        ("0:2+1:3", lambda w1, w2, w3, i: w3 @ (w2 @ w1 + i) + w1),
    ],
)
def test_loss_is_the_frobenius_norm_of_a_matrix_product(shortcuts: str, end_to_end: Callable[..., Tensor]) -> None:
    net = network(shortcuts, width=7, rank=2, init_std=0.5)
    error = end_to_end(*weights(net), torch.eye(7, dtype=torch.float64)) - low_rank_target(7, 2, seed=0)
    assert net().item() == pytest.approx(0.5 * torch.linalg.matrix_norm(error).item() ** 2, rel=1e-12)


def test_gradients_of_the_0_2_shortcut_are_those_of_appendix_c2() -> None:
    net = network("0:2", width=7, rank=2, init_std=0.5)
    w1, w2, w3 = weights(net)
    inner = w2 @ w1 + torch.eye(7, dtype=torch.float64)
    error = w3 @ inner - low_rank_target(7, 2, seed=0)
    expected = [w2.T @ w3.T @ error, w3.T @ error @ w1.T, error @ inner.T]
    for gradient, formula in zip(torch.autograd.grad(net(), list(net.parameters())), expected, strict=True):
        torch.testing.assert_close(gradient, formula, rtol=1e-12, atol=1e-12)


def test_everything_is_float64_but_the_coefficients() -> None:
    net = LinearNetwork(LinearSpec(depth=2, width=3, rank=1), Ancre(), seed=0)
    assert {name: tensor.dtype for name, tensor in net.named_parameters()} == {
        "stack.blocks.0.weight": torch.float64,
        "stack.blocks.1.weight": torch.float64,
        "stack.topology.c": torch.float32,
    }
    assert net().dtype == torch.float64


def test_the_seed_fixes_target_and_weights_and_keeps_them_apart() -> None:
    spec = LinearSpec(width=40, rank=40, init_std=1.0)
    one, same, other = (LinearNetwork(spec, Shortcuts(shortcuts=""), seed) for seed in (5, 5, 6))
    assert torch.equal(one.target, same.target)
    assert all(map(torch.equal, weights(one), weights(same)))
    assert not torch.equal(one.target, other.target)
    left = torch.randn(40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(5))  # U
    for weight in weights(one):
        correlation = torch.corrcoef(torch.stack([weight.flatten(), left.flatten()]))[0, 1]
        assert abs(correlation) < 4 / 40  # four standard errors of 1,600 independent pairs


def test_a_deeper_network_has_the_same_target_and_starts_from_the_same_first_weights() -> None:
    shallow, deep = network("", depth=2, width=6, rank=2), network("0:1", depth=4, width=6, rank=2)
    assert torch.equal(shallow.target, deep.target)
    assert all(map(torch.equal, weights(shallow), weights(deep)[:2]))


def test_target_has_its_rank_and_scale() -> None:
    singular = torch.linalg.svdvals(low_rank_target(200, 4, seed=3))
    assert singular[4] < 1e-12
    assert torch.all((singular[:4] / math.sqrt(200) - 1).abs() < 0.35)  # U and V are close to orthogonal at rank << d


def test_counts() -> None:
    spec = LinearSpec(depth=5, width=6, rank=2)
    assert spec.num_params() == 5 * 6 * 6 == sum(map(Tensor.numel, network("", **spec.model_dump()).parameters()))
    assert spec.flops() == 3 * (5 * 2 * 6 * 6 * 6)


def test_a_rank_above_the_width_is_refused() -> None:
    with pytest.raises(ValidationError, match="rank = 9: a target of width 8 has rank 8 at most"):
        LinearSpec(width=8, rank=9)


@pytest.mark.parametrize("depth", [3, 4, 5])
def test_balanced_0_1_network_follows_its_exact_solution(depth: int) -> None:
    """Scalar, target 0, w = 1 + W_1 = 1 and u = 1: by symmetry u' = -u^(2K-1), so u(t) = (1 + (2K-2) t)^(-1/(2K-2))."""
    net = network("0:1", depth=depth, width=1, rank=1)
    set_weights(net, [torch.zeros(1, 1), *[torch.ones(1, 1)] * (depth - 1)])
    net.target.zero_()
    rate, steps = 2e-3, 1000
    for _ in range(steps):
        descend(net, rate)
    u = (1 + (2 * depth - 2) * rate * steps) ** (-1 / (2 * depth - 2))
    assert net().item() == pytest.approx(0.5 * u ** (2 * depth), rel=0.01)


@pytest.mark.parametrize("depth", [3, 4])
def test_0_1_never_beats_its_lower_bound(depth: int) -> None:
    """Theorem 3.2 and appendix C.4, on its diagonal case: a' >= -K a^(1+q) with q = 2(K-2)/(K-1).

    So a(t) >= (a(0)^-q + K q t)^(-1/q); for K = 3 that is a(0) / (1 + 3 a(0) t), and the loss is at least a^2 / 2.
    """
    net = network("0:1", depth=depth, width=3, rank=2)
    set_weights(net, [diagonal(0.0, 0.0, -0.25), *[diagonal(0.3, 0.4, 0.5)] * (depth - 1)])
    net.target.copy_(diagonal(2.0, 1.0, 0.0))
    q, start, rate = 2 * (depth - 2) / (depth - 1), 0.75 * 0.5 ** (depth - 1), 3e-2
    for step in range(1001):
        bound = (start**-q + depth * q * rate * step) ** (-1 / q) * (1 - 1e-12)  # but for rounding
        if step % 50 == 0:
            assert net.stack(net.inputs)[2, 2].item() >= bound
            assert net().item() >= 0.5 * bound**2
        descend(net, rate)
    assert net().item() < 0.01  # the other directions are learned: only the bounded one is left


@pytest.mark.parametrize("depth", [3, 4])
def test_0_to_the_last_but_one_stays_below_its_upper_bound(depth: int) -> None:
    """Theorem 3.3 and appendix C.4: L(t) <= L(0) exp(-2 (1 - lambda)^2 t) from an initialization below delta_K."""
    net = network(f"0:{depth - 1}", depth=depth, width=5, rank=2, init_std=1e-3)
    net.target *= 0.1
    start, keep = net().item(), 0.5  # keep = 1 - lambda
    radius = ((1 - keep) / 2) ** (2 / (depth - 1))  # R_K
    exponent = 2 * math.sqrt(2 * start) / keep**2 + math.sqrt(2 * math.pi) * start / keep**3  # M_K
    delta = min(1.0, math.sqrt(radius / 2) * math.exp(-exponent / 2 * radius ** ((depth - 3) / 2)))
    assert all(torch.linalg.matrix_norm(weight) <= delta for weight in weights(net))
    rate = 1e-2
    for step in range(1001):
        if step % 50 == 0:
            assert net().item() <= start * math.exp(-2 * keep**2 * rate * step)
        descend(net, rate)
