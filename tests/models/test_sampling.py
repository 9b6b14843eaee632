"""Sampling against closed forms, among them those of Gaussian data, whose best prediction is known."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from models.diffusion import Schedule, guided, linear, respace
from models.dit import Dit
from models.dit_spec import DitSpec
from models.sampling import ddim_step, ddpm_step, guidance, sample
from models.sampling_spec import SamplingSpec
from models.topology.ancre import Spec as Ancre

SPEC = DitSpec(width=16, depth=3, heads=2, patch=2, image_size=4, channels=2, num_classes=5)
SCHEDULE = linear()


def network(std: float = 0.1) -> Dit:
    torch.manual_seed(0)
    built = SPEC.build(Ancre())
    for weight in built.parameters():
        torch.nn.init.normal_(weight, std=std)
    return built


def images(labels=(0, 4, 2, 2, 1), seeds=(7, 8, 9, 10, 11), *, of: Dit | None = None, batch: int = 8, **how) -> Tensor:
    return sample(of or network(), SCHEDULE, labels, seeds, SamplingSpec(**{"steps": 20} | how), batch=batch)


@pytest.mark.parametrize("how", [{}, {"method": "ddim"}, {"method": "ddim", "eta": 1.0}, {"cfg": 2.0}])
def test_images_do_not_depend_on_the_size_of_batches(how):
    one, five = images(batch=1, **how), images(batch=5, **how)
    torch.testing.assert_close(one, five, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(images(batch=2, **how), five, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(images((2, 0), (9, 7), **how), five[[2, 0]], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(five[2], five[3], atol=0.1)  # one class, two seeds


def test_the_same_seeds_give_the_same_images_and_others_others():
    assert torch.equal(images(), images())
    assert not torch.allclose(images(seeds=(1, 2, 3, 4, 5)), images(), atol=0.1)
    assert images((), ()).shape == (0, 2, 4, 4)


def test_ddim_without_noise_is_decided_by_the_first():
    """Whatever is drawn after the first noise changes nothing; with eta it does."""
    x, predicted = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    t = torch.tensor([0, 400, 999])
    for eta, decided in ((0.0, True), (0.5, False)):
        found = [ddim_step(SCHEDULE, x, t, predicted, eta, torch.randn(3, 2, 4, 4)) for _ in range(2)]
        assert torch.equal(*found) == decided
    assert torch.equal(images(method="ddim"), images(method="ddim", eta=0.0))
    assert not torch.allclose(images(method="ddim"), images(method="ddim", eta=1.0), atol=0.1)


def test_ddim_of_perfect_predictions_takes_any_step_to_the_same_image():
    """With the true noise of x_0, every x_t on the way is the one that q_sample gives, however few steps there are."""
    x0, noise = torch.randn(2, 1, 2, 4, 4, dtype=torch.float64)
    for steps in (1, 3, 50):
        few = respace(SCHEDULE, steps)
        x = few.remaining[-1].sqrt() * x0 + (1 - few.remaining[-1]).sqrt() * noise
        for step in reversed(range(steps)):
            x = ddim_step(few, x, torch.tensor([step]), noise, 0.0, torch.zeros_like(x))
        torch.testing.assert_close(x, x0)


def test_ddim_with_all_noise_is_ddpm_with_the_posterior_variance():
    """2010.02502, section 4.1."""
    xt, predicted, fresh = torch.randn(3, 4, 2, 4, 4, dtype=torch.float64)
    few = respace(SCHEDULE, 100)
    t = torch.tensor([1, 2, 50, 99])
    ancestral = ddpm_step(few, xt, t, predicted, torch.full_like(xt, -1), fresh)
    torch.testing.assert_close(ddim_step(few, xt, t, predicted, 1.0, fresh), ancestral, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("step", [0, 1, 500, 999])
def test_steps_are_those_of_diffusers(step):
    from diffusers import DDIMScheduler, DDPMScheduler

    linear_betas = {"beta_start": 1e-4, "beta_end": 2e-2, "beta_schedule": "linear", "clip_sample": False}
    x, predicted, v = torch.randn(3, 1, 2, 4, 4).mul(torch.tensor([1.0, 1.0, 0.5]).view(3, 1, 1, 1, 1))
    t, fresh = torch.tensor([step]), torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    same = torch.Generator().manual_seed(3)
    ddpm = DDPMScheduler(1000, variance_type="learned_range", **linear_betas)
    theirs = ddpm.step(torch.cat((predicted, v), dim=1), step, x, generator=same).prev_sample
    if step:  # diffusers' lower bound at t = 0 is a variance of 1e-20, where nothing is drawn
        torch.testing.assert_close(ddpm_step(SCHEDULE, x, t, predicted, v, fresh), theirs, rtol=1e-4, atol=1e-4)
    ddim = DDIMScheduler(1000, set_alpha_to_one=True, **linear_betas)
    ddim.set_timesteps(1000)
    for eta in (0.0, 0.7):
        theirs = ddim.step(predicted, step, x, eta=eta, variance_noise=fresh).prev_sample
        torch.testing.assert_close(ddim_step(SCHEDULE, x, t, predicted, eta, fresh), theirs, rtol=1e-4, atol=1e-4)


MEAN, STD = 0.5, 0.2  # of the data N(MEAN, STD^2)


def best_prediction(schedule: Schedule, step: int, x: Tensor) -> Tensor:
    """E[noise | x_t] of such data."""
    remaining = schedule.remaining[step]
    return (1 - remaining).sqrt() * (x - remaining.sqrt() * MEAN) / (remaining * STD**2 + 1 - remaining)


def test_ddpm_draws_gaussian_data_with_their_mean_and_variance():
    """In however few steps, where v gives the reverse step the variance that x_{t-1} has, given x_t."""
    few, many, drawn = respace(SCHEDULE, 10), 20_000, torch.Generator().manual_seed(0)

    def noise() -> Tensor:
        return torch.randn(many, 1, 1, 1, generator=drawn, dtype=torch.float64)

    before = few.remaining_before
    variance = 1 / (1 / (before * STD**2 + 1 - before) + (1 - few.beta) / few.beta)
    low, high = few.posterior_log_variance, few.beta.log()
    v = 2 * (variance.log() - low) / (high - low) - 1
    x = noise()
    for step in reversed(range(len(few))):
        t = torch.full((many,), step)
        x = ddpm_step(few, x, t, best_prediction(few, step, x), v[step].expand_as(x), noise())
    assert x.mean().item() == pytest.approx(MEAN, abs=4 * STD / math.sqrt(many))
    last = math.sqrt(STD**2 - variance[0].item())  # a mean is drawn at the end, no sample
    assert x.std().item() == pytest.approx(last, rel=4 / math.sqrt(2 * many))


def test_ddim_follows_the_flow_of_gaussian_data_the_closer_the_more_steps():
    """The flow takes x_T to MEAN + STD (x_T - sqrt(A_T) MEAN) / std(x_T): a line through any two points."""
    errors = []
    for steps in (250, 1000):
        few = respace(SCHEDULE, steps)
        x = torch.tensor([-1.0, 1.0], dtype=torch.float64).view(2, 1, 1, 1)
        for step in reversed(range(steps)):
            t = torch.full((2,), step)
            x = ddim_step(few, x, t, best_prediction(few, step, x), 0.0, torch.zeros_like(x))
        remaining = few.remaining[-1].item()
        scale = STD / math.sqrt(remaining * STD**2 + 1 - remaining)
        ends = torch.tensor([MEAN + scale * (end - math.sqrt(remaining) * MEAN) for end in (-1, 1)])
        errors.append((x.flatten() - ends).abs().max().item())
    assert errors[1] < 0.01 * STD
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.2)  # of first order


def test_the_last_step_adds_no_noise():
    x, predicted, v = torch.randn(3, 1, 2, 4, 4)
    first = [ddpm_step(SCHEDULE, x, torch.tensor([0]), predicted, v, torch.randn(1, 2, 4, 4)) for _ in range(2)]
    assert torch.equal(*first)


def test_a_new_network_takes_no_noise_away():
    """It says that there is none: DDIM makes x_T / sqrt(A_T) of x_T, the first noise of each seed."""
    new = SPEC.build(Ancre())
    first = torch.stack([torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(seed)) for seed in (7, 8)])
    drawn = images((0, 1), (7, 8), of=new, method="ddim", steps=250)
    torch.testing.assert_close(drawn, first / SCHEDULE.remaining[-1].sqrt().float(), rtol=1e-4, atol=1e-4)


def test_guidance_of_scale_one_is_the_conditional_model():
    x, t, y = torch.randn(2, 2, 4, 4), torch.tensor([5, 900]), torch.tensor([1, 3])
    own, none = network()(x, t, y), network()(x, t, torch.full_like(y, 5))
    torch.testing.assert_close(guidance(network(), 1.0, 2)(x, t, y), own)
    torch.testing.assert_close(guidance(network(), 3.0, 1)(x, t, y), guided(own, none, 3.0, 1))
    assert not torch.allclose(images(cfg=3.0), images(), atol=0.1)
    assert not torch.allclose(images(cfg=3.0, guidance_channels=1), images(cfg=3.0), atol=0.1)
    torch.testing.assert_close(images(cfg=3.0, guidance_channels=2), images(cfg=3.0))


def test_autocast_draws_nearly_the_same_images():
    with torch.autocast("cpu", torch.bfloat16):
        drawn = images(steps=5)
    assert drawn.dtype == torch.float32
    assert (drawn - images(steps=5)).abs().mean() < 0.05 * images(steps=5).abs().mean()


@pytest.mark.parametrize(
    ("labels", "seeds", "how", "message"),
    [
        ((5,), (0,), {}, r"^class 5: this network knows the classes 0 to 4$"),
        ((0, 1), (0,), {}, r"^2 classes and 1 seeds: every image needs one of both$"),
        ((0,), (2**32,), {}, r"^seed 4294967296 is not a number from 0 to 4294967295$"),
        ((0,), (-1,), {}, r"^seed -1 is not"),
        ((0,), (0,), {"guidance_channels": 3}, r"^guidance_channels 3: the images have 2 channels$"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(labels, seeds, how, message):
    with pytest.raises(ValueError, match=message):
        images(labels, seeds, **how)


def test_more_steps_than_the_schedule_has_are_refused():
    with pytest.raises(ValueError, match=r"^30 sampling steps: the schedule has 20, so 1 to 20 can be taken$"):
        sample(network(), respace(SCHEDULE, 20), (0,), (0,), SamplingSpec(steps=30))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 1001}, "less than or equal to 1000"),
        ({"steps": 0}, "greater than or equal to 1"),
        ({"method": "euler"}, "'ddpm' or 'ddim'"),
        ({"eta": 0.5}, "eta 0.5 is read by method 'ddim' alone"),
        ({"method": "ddim", "eta": 1.5}, "less than or equal to 1"),
        ({"cfg": -1}, "greater than or equal to 0"),
        ({"guidance_channels": 0}, "greater than or equal to 1"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(values, message):
    with pytest.raises(ValidationError) as caught:
        SamplingSpec(**values)
    (error,) = caught.value.errors()
    assert message in error["msg"]
