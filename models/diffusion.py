"""Gaussian diffusion as pure functions of tensors: the forward process, its posterior, and what training minimises.

    q(x_t | x_0) = N(sqrt(A_t) x_0, (1 - A_t) I),   A_t = prod_{s<=t} (1 - beta_s),   t = 0 .. S-1,   A_{-1} = 1

(Ho et al., arXiv 2006.11239). The network predicts the noise in x_t, and v, which places the variance of the reverse
step between its two bounds (Nichol and Dhariwal, arXiv 2102.09672, equation 15). t counts the steps of the schedule at
hand; the network is told `timesteps[t]`, their numbers in the whole schedule, of which sampling may take few.

Images are (B, C, H, W), t is (B,) int64. Coefficients are float64, and rounded to the images' dtype where they meet.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.special import log_ndtr, ndtr

STEPS = 1000
BETAS = 1e-4, 2e-2
HALF = 1 / 255  # of the distance between two neighbours of a pixel's 256 values in [-1, 1]
EDGE = 1 - HALF / 2  # beyond it a pixel has its first or its last value
Predict = Callable[[Tensor, Tensor, Tensor], Tensor]  # x_t, timesteps (B,), classes (B,) -> noise and v, (B, 2C, H, W)


@dataclass(frozen=True, eq=False)
class Schedule:
    """S steps. Every field is a tensor (S,) of what its name says at each step, float64 but for `timesteps`."""

    timesteps: Tensor  # int64: the step's number in the whole schedule
    beta: Tensor
    remaining: Tensor  # A_t
    remaining_before: Tensor  # A_{t-1}
    posterior_variance: Tensor  # of x_{t-1} given x_t and x_0; 0 at t = 0
    posterior_log_variance: Tensor  # at t = 0, where it is -inf, that of t = 1 (2102.09672); of a lone step log beta

    def __len__(self) -> int:
        return len(self.beta)

    def to(self, device: torch.device | str) -> Schedule:
        return Schedule(*(getattr(self, field.name).to(device) for field in fields(self)))


def schedule_of(beta: Tensor, timesteps: Tensor) -> Schedule:
    """The schedule of given betas (S,) float64, its steps numbered by `timesteps` (S,)."""
    remaining = (1 - beta).cumprod(0)
    before = torch.cat((torch.ones_like(beta[:1]), remaining[:-1]))
    variance = beta * (1 - before) / (1 - remaining)
    first = variance[1:2] if len(beta) > 1 else beta
    return Schedule(timesteps, beta, remaining, before, variance, torch.cat((first, variance[1:])).log())


def linear(steps: int = STEPS) -> Schedule:
    """Betas from 1e-4 to 2e-2 in equal distances, as of 2006.11239 for 1000 steps."""
    return schedule_of(torch.linspace(*BETAS, steps, dtype=torch.float64), torch.arange(steps))


def respace(schedule: Schedule, steps: int) -> Schedule:
    """So many steps of a schedule, spread evenly from its first to its last (2102.09672, section 4); one is the last.

    Each leaps over those left out: 1 - beta is the product of theirs. The numbers of the steps are kept.

    Raises:
        ValueError: in one line, where there are not so many.
    """
    total = len(schedule)
    if not 1 <= steps <= total:
        raise ValueError(f"{steps} sampling steps: the schedule has {total}, so 1 to {total} can be taken")
    chosen = torch.tensor([round(i * (total - 1) / (steps - 1)) for i in range(steps)] if steps > 1 else [total - 1])
    chosen = chosen.to(schedule.beta.device)
    remaining = schedule.remaining[chosen]
    before = torch.cat((torch.ones_like(remaining[:1]), remaining[:-1]))
    return schedule_of(1 - remaining / before, schedule.timesteps[chosen])


def at(values: Tensor, t: Tensor) -> Tensor:
    """values[t] as (B, 1, 1, 1)."""
    return values[t].view(-1, 1, 1, 1)


def q_sample(schedule: Schedule, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    """x_t of x_0 and standard normal noise."""
    remaining = at(schedule.remaining, t)
    return remaining.sqrt().to(x0.dtype) * x0 + (1 - remaining).sqrt().to(x0.dtype) * noise


def clean(schedule: Schedule, xt: Tensor, t: Tensor, noise: Tensor) -> Tensor:
    """x_0 of x_t and the noise in it; not clipped."""
    remaining = at(schedule.remaining, t)
    return remaining.rsqrt().to(xt.dtype) * xt - (1 / remaining - 1).sqrt().to(xt.dtype) * noise


def posterior_mean(schedule: Schedule, x0: Tensor, xt: Tensor, t: Tensor) -> Tensor:
    """The mean of x_{t-1} given x_t and x_0 (2006.11239, equation 7)."""
    beta, remaining = at(schedule.beta, t), at(schedule.remaining, t)
    before = at(schedule.remaining_before, t)
    of_x0 = before.sqrt() * beta / (1 - remaining)
    of_xt = (1 - beta).sqrt() * (1 - before) / (1 - remaining)
    return of_x0.to(xt.dtype) * x0 + of_xt.to(xt.dtype) * xt


def log_variance(schedule: Schedule, t: Tensor, v: Tensor) -> Tensor:
    """Of the reverse step: log beta where v = 1, the posterior's where v = -1, on a line through both elsewhere."""
    upper, lower = at(schedule.beta, t).log().to(v.dtype), at(schedule.posterior_log_variance, t).to(v.dtype)
    return torch.lerp(lower, upper, (v + 1) / 2)


def kl(mean: Tensor, log_variance: Tensor, other_mean: Tensor, other_log_variance: Tensor) -> Tensor:
    """KL(N(mean, ..) || N(other_mean, ..)) in nats, number by number."""
    gap = log_variance - other_log_variance
    return (gap.exp() - gap - 1 + (mean - other_mean) ** 2 * (-other_log_variance).exp()) / 2


def log_likelihood(x: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Of pixels x, multiples of 1/127.5 from -1 to 1, in nats, under a Gaussian that is rounded to them.

    The first and the last value take in the tails (2006.11239, equation 13).
    """
    to_unit = (-log_variance / 2).exp()
    low, high = (x - mean - HALF) * to_unit, (x - mean + HALF) * to_unit
    right = low + high > 0  # differences are exact only in the left tail
    near, far = torch.where(right, -low, high), torch.where(right, -high, low)
    inside = (ndtr(near) - ndtr(far)).clamp(min=torch.finfo(x.dtype).tiny).log()
    return torch.where(x < -EDGE, log_ndtr(high), torch.where(x > EDGE, log_ndtr(-low), inside))


def variational_bound(schedule: Schedule, x0: Tensor, xt: Tensor, t: Tensor, noise: Tensor, v: Tensor) -> Tensor:
    """(B,) bits per number that step t adds to the bound on -log p(x_0), of predicted noise and v.

    The divergence of the reverse step from the posterior; at t = 0 the likelihood of x_0 itself.
    """
    mean = posterior_mean(schedule, clean(schedule, xt, t, noise), xt, t)
    spread = log_variance(schedule, t, v)
    true_spread = at(schedule.posterior_log_variance, t).to(x0.dtype)
    divergence = kl(posterior_mean(schedule, x0, xt, t), true_spread, mean, spread)
    nats = torch.where(t.view(-1, 1, 1, 1) == 0, -log_likelihood(x0, mean, spread), divergence)
    return nats.flatten(1).mean(1) / math.log(2)


def training_loss(schedule: Schedule, model: Predict, x0: Tensor, t: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """(B,) squared error of the noise plus the bound in bits, each a mean over an image's numbers.

    The bound trains v alone: no gradient of it reaches the predicted noise (2102.09672, section 3.1).

    Args:
        x0: images, float32 at least; what the network says is widened to that.
        y: (B,) classes.
        noise: standard normal, the shape of x0.
    """
    xt = q_sample(schedule, x0, t, noise)
    predicted, v = model(xt, schedule.timesteps[t], y).to(x0.dtype).chunk(2, dim=1)
    error = (predicted - noise).square().flatten(1).mean(1)
    return error + variational_bound(schedule, x0, xt, t, predicted.detach(), v)


def guided(conditional: Tensor, unconditional: Tensor, scale: float, channels: int) -> Tensor:
    """u + scale (c - u) in the first `channels` channels of (B, C, H, W), c in the others (arXiv 2207.12598).

    Scale 1 is c to the bit.
    """
    mixed = torch.lerp(unconditional[:, :channels], conditional[:, :channels], scale)
    return torch.cat((mixed, conditional[:, channels:]), dim=1)
