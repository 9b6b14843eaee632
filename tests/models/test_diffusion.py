"""Diffusion against its closed forms: products of the schedule, Gaussian algebra, sums over a pixel's values."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from models.diffusion import (
    BETAS,
    STEPS,
    clean,
    guided,
    kl,
    linear,
    log_likelihood,
    log_variance,
    posterior_mean,
    q_sample,
    respace,
    training_loss,
    variational_bound,
)

SCHEDULE = linear()
STEPS_SEEN = torch.tensor([0, 1, 2, 250, 999])


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def images(seed: int) -> Tensor:
    return draw(len(STEPS_SEEN), 2, 4, 4, seed=seed)


def products() -> list[float]:
    """A_t by plain arithmetic."""
    low, high = BETAS
    remaining, all_of_them = 1.0, []
    for t in range(STEPS):
        remaining *= 1 - (low + (high - low) * t / (STEPS - 1))
        all_of_them.append(remaining)
    return all_of_them


def test_the_schedule_is_the_product_of_its_betas():
    assert SCHEDULE.beta[[0, -1]].tolist() == pytest.approx([1e-4, 2e-2], rel=1e-15)
    assert SCHEDULE.remaining.tolist() == pytest.approx(products(), rel=1e-12)
    assert SCHEDULE.remaining_before.tolist() == [1, *SCHEDULE.remaining.tolist()[:-1]]
    assert SCHEDULE.remaining[-1].item() == pytest.approx(4.0358e-5, rel=1e-4)  # almost no image is left


def test_noised_images_have_the_moments_of_q():
    many = 200_000
    x0, t = torch.full((many, 1, 1, 1), 0.7, dtype=torch.float64), 300
    xt = q_sample(SCHEDULE, x0, torch.full((many,), t), draw(many, 1, 1, 1))
    remaining = products()[t]
    error = math.sqrt((1 - remaining) / many)
    assert xt.mean().item() == pytest.approx(0.7 * math.sqrt(remaining), abs=4 * error)
    assert xt.var().item() == pytest.approx(1 - remaining, rel=4 * math.sqrt(2 / many))


def test_noising_step_by_step_gives_the_moments_of_noising_at_once():
    """x_t = sqrt(1 - beta) x_{t-1} + sqrt(beta) noise, whose mean and variance follow from those before."""
    mean, variance = 1.0, 0.0
    for t, beta in enumerate(SCHEDULE.beta.tolist()):
        mean, variance = math.sqrt(1 - beta) * mean, (1 - beta) * variance + beta
        assert mean == pytest.approx(SCHEDULE.remaining[t].sqrt().item(), rel=1e-12)
        assert variance == pytest.approx(1 - SCHEDULE.remaining[t].item(), rel=1e-10)


def test_the_posterior_is_that_of_gaussian_algebra():
    """q(x_{t-1} | x_t, x_0) is prior q(x_{t-1} | x_0) times likelihood q(x_t | x_{t-1}): precisions add up."""
    x0, xt = images(1), images(2)
    mean = posterior_mean(SCHEDULE, x0, xt, STEPS_SEEN)
    for n, t in enumerate(STEPS_SEEN.tolist()):
        if t == 0:  # x_{-1} is x_0
            torch.testing.assert_close(mean[0], x0[0], rtol=1e-12, atol=1e-12)
            assert SCHEDULE.posterior_variance[0] == 0
            continue
        beta, before = SCHEDULE.beta[t].item(), products()[t - 1]
        precision = 1 / (1 - before) + (1 - beta) / beta
        expected = (math.sqrt(before) * x0[n] / (1 - before) + math.sqrt(1 - beta) * xt[n] / beta) / precision
        torch.testing.assert_close(mean[n], expected, rtol=1e-9, atol=1e-9)
        assert SCHEDULE.posterior_variance[t].item() == pytest.approx(1 / precision, rel=1e-9)
        assert SCHEDULE.posterior_log_variance[t].item() == pytest.approx(-math.log(precision), rel=1e-9)
    assert SCHEDULE.posterior_log_variance[0] == SCHEDULE.posterior_log_variance[1]


def test_noise_and_clean_image_determine_each_other():
    x0, noise = images(1), images(2)
    torch.testing.assert_close(clean(SCHEDULE, q_sample(SCHEDULE, x0, STEPS_SEEN, noise), STEPS_SEEN, noise), x0)


@pytest.mark.parametrize("steps", [1, 2, 7, 250, 999, 1000])
def test_respaced_betas_are_direct_products(steps):
    few = respace(SCHEDULE, steps)
    chosen = few.timesteps.tolist()
    assert len(few) == steps == len(set(chosen))
    assert chosen == sorted(chosen)
    assert chosen[-1] == STEPS - 1
    assert chosen[0] == 0 or steps == 1
    gaps = {b - a for a, b in pairwise(chosen)}
    assert not gaps or max(gaps) - min(gaps) <= 1
    betas, start = SCHEDULE.beta.tolist(), 0
    for beta, stop in zip(few.beta.tolist(), chosen, strict=True):
        assert 1 - beta == pytest.approx(math.prod(1 - b for b in betas[start : stop + 1]), rel=1e-10)
        start = stop + 1
    torch.testing.assert_close(few.remaining, SCHEDULE.remaining[few.timesteps], rtol=1e-10, atol=0)


def test_all_steps_respaced_are_the_schedule_and_twice_keeps_the_first_numbers():
    same = respace(SCHEDULE, STEPS)
    torch.testing.assert_close(same.beta, SCHEDULE.beta, rtol=1e-10, atol=0)
    torch.testing.assert_close(same.posterior_variance, SCHEDULE.posterior_variance, rtol=1e-8, atol=0)
    assert respace(respace(SCHEDULE, 250), 2).timesteps.tolist() == [0, 999]


@pytest.mark.parametrize("steps", [0, 1001])
def test_more_steps_than_there_are_are_refused(steps):
    with pytest.raises(
        ValueError, match=rf"^{steps} sampling steps: the schedule has 1000, so 1 to 1000 can be taken$"
    ):
        respace(SCHEDULE, steps)


def test_the_learned_variance_lies_between_its_bounds():
    t = torch.tensor([0, 500])
    for v, bound in ((1.0, SCHEDULE.beta.log()), (-1.0, SCHEDULE.posterior_log_variance)):
        found = log_variance(SCHEDULE, t, torch.full((2, 1, 1, 1), v, dtype=torch.float64))
        torch.testing.assert_close(found.flatten(), bound[t], rtol=1e-12, atol=0)
    middle = log_variance(SCHEDULE, t, torch.zeros(2, 1, 1, 1, dtype=torch.float64)).flatten()
    torch.testing.assert_close(middle, (SCHEDULE.beta.log() + SCHEDULE.posterior_log_variance)[t] / 2)


def test_divergence_is_that_of_torch():
    means, spreads = (images(1), images(2)), (images(3), images(4))
    pair = [Normal(mean, (spread / 2).exp()) for mean, spread in zip(means, spreads, strict=True)]
    torch.testing.assert_close(kl(means[0], spreads[0], means[1], spreads[1]), kl_divergence(*pair))


@pytest.mark.parametrize("mean", [-1.2, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("spread", [-9.0, -4.0, 1.0])
def test_the_rounded_gaussian_is_a_distribution_over_pixel_values(mean, spread):
    values = torch.arange(256, dtype=torch.float64) / 127.5 - 1
    mean, spread = torch.tensor((mean, spread), dtype=torch.float64)
    logs = log_likelihood(values, mean, spread)
    assert logs.exp().sum().item() == pytest.approx(1, rel=1e-9)
    normal = Normal(mean, (spread / 2).exp())
    middle = slice(1, 255)
    direct = normal.cdf(values + 1 / 255) - normal.cdf(values - 1 / 255)
    torch.testing.assert_close(logs[middle].exp(), direct[middle], rtol=1e-6, atol=1e-14)


def test_far_tails_have_finite_likelihoods_and_gradients():
    mean = torch.tensor([-30.0, 30.0, 0.0]).requires_grad_()
    logs = log_likelihood(torch.tensor([1.0, -1.0, 0.5]), mean, torch.full((3,), -9.0))
    logs.sum().backward()
    assert torch.isfinite(logs).all()
    assert torch.isfinite(mean.grad).all()


def test_the_bound_is_zero_where_the_reverse_step_is_the_posterior():
    x0, noise = images(1), images(2)
    xt, t = q_sample(SCHEDULE, x0, STEPS_SEEN, noise), STEPS_SEEN
    bits = variational_bound(SCHEDULE, x0, xt, t, noise, torch.full_like(noise, -1))
    torch.testing.assert_close(bits[1:], torch.zeros_like(bits[1:]), rtol=0, atol=1e-9)
    low = variational_bound(
        SCHEDULE, *(a.float() for a in (x0, xt)), t, noise.float(), torch.full_like(noise, -1).float()
    )
    torch.testing.assert_close(low[1:], torch.zeros(4), rtol=0, atol=1e-5)


def test_the_bound_of_the_larger_variance_and_of_wrong_noise_has_its_closed_form():
    x0, noise = images(1), images(2)
    xt, t = q_sample(SCHEDULE, x0, STEPS_SEEN, noise), STEPS_SEEN
    ratio = (SCHEDULE.posterior_variance / SCHEDULE.beta)[t]
    expected = (ratio - ratio.log() - 1) / 2 / math.log(2)
    bits = variational_bound(SCHEDULE, x0, xt, t, noise, torch.ones_like(noise))
    torch.testing.assert_close(bits[1:], expected[1:], rtol=1e-6, atol=1e-9)
    off = 0.1
    bits = variational_bound(SCHEDULE, x0, xt, t, noise + off, torch.full_like(noise, -1))
    beta, remaining, variance = SCHEDULE.beta[t], SCHEDULE.remaining[t], SCHEDULE.posterior_variance[t]
    # 2006.11239, equation 12: the weight of the squared error of noise.
    expected = off**2 * beta**2 / (2 * variance * (1 - beta) * (1 - remaining)) / math.log(2)
    torch.testing.assert_close(bits[1:], expected[1:], rtol=1e-6, atol=1e-9)


def test_the_bound_at_the_first_step_is_the_likelihood_of_the_pixels():
    x0 = (images(1).clamp(-1, 1) * 127.5).round() / 127.5
    noise, t = images(2), torch.zeros(5, dtype=torch.long)
    xt = q_sample(SCHEDULE, x0, t, noise)
    bits = variational_bound(SCHEDULE, x0, xt, t, noise, torch.ones_like(noise))
    expected = -log_likelihood(x0, x0, SCHEDULE.beta[0].log()).flatten(1).mean(1) / math.log(2)
    torch.testing.assert_close(bits, expected, rtol=1e-6, atol=1e-9)


def loss_of(predicted: Tensor, v: Tensor, t: Tensor, schedule=SCHEDULE) -> tuple[Tensor, list[Tensor]]:
    seen = []

    def model(xt: Tensor, timesteps: Tensor, y: Tensor) -> Tensor:
        seen.extend((timesteps, y))
        return torch.cat((predicted, v), dim=1)

    return training_loss(schedule, model, images(1), t, torch.arange(5), images(2)), seen


def test_the_loss_is_squared_error_and_bound():
    predicted, v = images(3), images(4)
    loss, (timesteps, y) = loss_of(predicted, v, STEPS_SEEN)
    xt = q_sample(SCHEDULE, images(1), STEPS_SEEN, images(2))
    bits = variational_bound(SCHEDULE, images(1), xt, STEPS_SEEN, predicted, v)
    torch.testing.assert_close(loss, (predicted - images(2)).square().mean((1, 2, 3)) + bits)
    assert torch.equal(timesteps, STEPS_SEEN)
    assert torch.equal(y, torch.arange(5))


def test_noise_learns_from_the_squared_error_alone_and_v_from_the_bound():
    predicted, v = images(3).requires_grad_(), images(4).requires_grad_()
    loss_of(predicted, v, STEPS_SEEN)[0].sum().backward()
    torch.testing.assert_close(predicted.grad, 2 * (predicted - images(2)).detach() / predicted[0].numel())
    assert (v.grad != 0).all()


def test_the_model_is_told_the_numbers_of_the_whole_schedule():
    _, (timesteps, _) = loss_of(images(3), images(4), torch.arange(5), respace(SCHEDULE, 5))
    assert timesteps.tolist() == [0, 250, 500, 749, 999]


def test_guidance_moves_some_channels_and_at_scale_one_none():
    c, u = images(1).float().repeat(1, 4, 1, 1), images(2).float().repeat(1, 4, 1, 1)
    assert torch.equal(guided(c, u, 1.0, 8), c)
    moved = guided(c, u, 1.5, 3)
    torch.testing.assert_close(moved[:, :3], (u + 1.5 * (c - u))[:, :3])
    assert torch.equal(moved[:, 3:], c[:, 3:])
    torch.testing.assert_close(guided(c, u, 0.0, 8), u)
