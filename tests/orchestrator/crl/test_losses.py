"""Losses against explicit loops in float64, closed forms and torch's own distributions, and their gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.distributions import Normal, TanhTransform, TransformedDistribution
from torch.nn.functional import cross_entropy

from orchestrator.crl import losses

ENERGIES = ["norm", "l2", "dot", "cosine"]
CONTRASTS = ["forward", "backward", "symmetric"]


def pair(rows: int, others: int, features: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(n, features, generator=generator, dtype=torch.float64) for n in (rows, others))


def one_energy(kind: str, x: list[float], y: list[float]) -> float:
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    squared = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
    return {
        "norm": -math.sqrt(squared + 1e-6),
        "l2": -squared,
        "dot": dot,
        "cosine": dot / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y)),
    }[kind]


def one_lse(scores: list[float]) -> float:
    most = max(scores)
    return most + math.log(sum(math.exp(score - most) for score in scores))


@given(kind=st.sampled_from(ENERGIES), sizes=st.tuples(*[st.integers(1, 6)] * 3), seed=st.integers(0, 1000))
def test_energies_and_logits_are_those_of_explicit_loops(kind, sizes, seed):
    phi, psi = pair(*sizes, seed)
    expected = torch.tensor([[one_energy(kind, x, y) for y in psi.tolist()] for x in phi.tolist()], dtype=torch.float64)
    torch.testing.assert_close(losses.logits(kind, phi, psi), expected, rtol=1e-9, atol=1e-9)
    both = min(sizes[:2])
    torch.testing.assert_close(losses.energy(kind, phi[:both], psi[:both]), expected[:both, :both].diagonal())


@given(
    kind=st.sampled_from(CONTRASTS),
    batch=st.integers(2, 7),
    penalty=st.sampled_from([0.0, 0.1, 2.0]),
    scale=st.sampled_from([1.0, 30.0]),
)
def test_info_nce_is_that_of_explicit_loops(kind, batch, penalty, scale):
    scores = scale * pair(batch, 1, batch)[0]
    rows, columns = scores.tolist(), scores.T.tolist()
    forward = sum(one_lse(rows[i]) - rows[i][i] for i in range(batch)) / batch
    backward = sum(one_lse(columns[i]) - rows[i][i] for i in range(batch)) / batch
    expected = {"forward": forward, "backward": backward, "symmetric": forward + backward}[kind]
    expected += penalty * sum(one_lse(row) ** 2 for row in rows) / batch
    assert losses.info_nce(kind, scores, penalty).item() == pytest.approx(expected, rel=1e-12)


def test_info_nce_without_penalty_is_the_cross_entropy_of_finding_the_own_goal():
    scores, own = pair(9, 1, 9)[0], torch.arange(9)
    torch.testing.assert_close(losses.info_nce("forward", scores, 0.0), cross_entropy(scores, own))
    torch.testing.assert_close(losses.info_nce("backward", scores, 0.0), cross_entropy(scores.T, own))


@pytest.mark.parametrize("level", [-3.0, 0.0, 5.0])
def test_equal_scores_cost_the_log_of_the_batch(level):
    expected = math.log(16) + 0.1 * (level + math.log(16)) ** 2
    assert losses.info_nce("forward", torch.full((16, 16), level).double(), 0.1).item() == pytest.approx(expected)


@pytest.mark.parametrize("contrast", CONTRASTS)
@pytest.mark.parametrize("kind", ENERGIES)
def test_critic_gradients_are_those_of_finite_differences(kind, contrast):
    phi, psi = (x.requires_grad_() for x in pair(5, 5, 3))
    assert gradcheck(lambda x, y: losses.info_nce(contrast, losses.logits(kind, x, y), 0.1), (phi, psi))


@pytest.mark.parametrize("kind", ENERGIES)
def test_actor_and_alpha_gradients_are_those_of_finite_differences(kind):
    mean, log_std = (0.5 * x.requires_grad_() for x in pair(4, 4, 3))
    noise, psi = pair(4, 4, 3, seed=1)
    log_alpha = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def actor(mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
        action, log_prob = losses.sample_action(mean, log_std, noise)
        return losses.actor_loss(torch.tensor(0.7).double(), log_prob, losses.energy(kind, action, psi))

    assert gradcheck(actor, (mean, log_std))
    log_prob = losses.sample_action(mean, log_std, noise)[1]
    assert gradcheck(lambda x: losses.alpha_loss(x.exp(), log_prob, -1.5), (log_alpha,))
    slope = torch.autograd.grad(losses.alpha_loss(log_alpha.exp(), log_prob, -1.5), log_alpha)[0]
    torch.testing.assert_close(slope, log_alpha.exp() * (-log_prob.mean() + 1.5))


@pytest.mark.parametrize("kind", ENERGIES)
@pytest.mark.parametrize("start", [0.0, 3.0])
def test_equal_representations_have_finite_gradients(kind, start):
    phi = torch.full((40, 64), start, requires_grad=True)
    psi = torch.full((40, 64), start, requires_grad=True)
    loss = losses.info_nce("symmetric", losses.logits(kind, phi, psi), 0.1) - losses.energy(kind, phi, psi).mean()
    for gradient in torch.autograd.grad(loss, (phi, psi)):
        assert gradient.isfinite().all()


def test_distances_keep_their_digits_far_from_the_origin():
    x, y = pair(300, 200, 64)
    exact = (x[:, None] - y).square().sum(-1)
    found = losses.squared_distances((x + 1000).float(), (y + 1000).float())
    assert (found / exact - 1).abs().max() < 1e-3  # the inputs themselves are rounded to 6e-5
    assert torch.cdist((x + 1000).float(), (y + 1000).float()).square().sub(exact).abs().max() > 1


def test_the_log_density_is_that_of_torch_up_to_the_constant_in_its_logarithm():
    mean, log_std = pair(50, 50, 3)
    noise, _ = pair(50, 50, 3, seed=1)
    action, log_prob = losses.sample_action(mean, log_std, noise)
    reference = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform())
    inside = action.abs().amax(-1) < 0.99
    assert inside.sum() > 15
    torch.testing.assert_close(log_prob[inside], reference.log_prob(action).sum(-1)[inside], rtol=1e-4, atol=2e-4)


def test_the_density_of_actions_integrates_to_one():
    noise = torch.linspace(-8, 8, 20_001, dtype=torch.float64)[:, None]
    action, log_prob = losses.sample_action(torch.full_like(noise, 0.4), torch.full_like(noise, -0.7), noise)
    assert torch.trapezoid(log_prob.exp(), action.squeeze(1)).item() == pytest.approx(1, abs=1e-4)


def test_a_saturated_action_has_a_finite_log_density_and_gradient():
    mean = torch.tensor([[50.0, -50.0]], requires_grad=True)
    _, log_prob = losses.sample_action(mean, torch.zeros(1, 2), torch.zeros(1, 2))
    assert log_prob.isfinite().all()
    assert torch.autograd.grad(log_prob.sum(), mean)[0].isfinite().all()


def test_accuracy_is_the_share_of_rows_that_find_their_own_goal():
    scores = torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    assert losses.accuracy(scores).item() == pytest.approx(2 / 3)
