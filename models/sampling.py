"""Images from noise: the learned reverse process (DDPM) and its deterministic relative (DDIM), with guidance.

Every image has a generator of its own, on the CPU, that its seed sets. So it depends neither on the size of batches nor
on which device or worker drew it, but for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from models.diffusion import Predict, Schedule, at, clean, guided, log_variance, posterior_mean, respace
from models.dit import Dit
from models.sampling_spec import SamplingSpec

MAX_SEED = 2**32 - 1  # torch's generator on the CPU reads no more of a seed


def ddpm_step(schedule: Schedule, xt: Tensor, t: Tensor, noise: Tensor, v: Tensor, fresh: Tensor) -> Tensor:
    """x_{t-1} of x_t, predicted noise and v, and fresh noise, all (B, C, H, W); at t = 0 the mean (2006.11239)."""
    mean = posterior_mean(schedule, clean(schedule, xt, t, noise), xt, t)
    spread = (log_variance(schedule, t, v) / 2).exp()
    return mean + torch.where(t.view(-1, 1, 1, 1) == 0, 0, spread * fresh)


def ddim_step(schedule: Schedule, xt: Tensor, t: Tensor, noise: Tensor, eta: float, fresh: Tensor) -> Tensor:
    """x_{t-1} of x_t, predicted and fresh noise (Song et al., arXiv 2010.02502, equations 12 and 16)."""
    before, sigma = at(schedule.remaining_before, t), eta * at(schedule.posterior_variance, t).sqrt()
    direction = (1 - before - sigma**2).sqrt().to(xt.dtype) * noise
    x0 = clean(schedule, xt, t, noise)
    return before.sqrt().to(xt.dtype) * x0 + direction + sigma.to(xt.dtype) * fresh


def sample(
    network: Dit,
    schedule: Schedule,
    labels: Sequence[int],
    seeds: Sequence[int],
    how: SamplingSpec,
    *,
    batch: int = 64,
) -> Tensor:
    """(N, C, H, W) float32, on the CPU: image n is of class `labels[n]`, from the noise of `seeds[n]`; not clipped.

    Autocast is the caller's.

    Args:
        schedule: the whole one, that the network was trained with.
        batch: images at a time; guidance runs twice as many through the network.

    Raises:
        ValueError: in one line: a class that the network does not know, a seed too few or beyond 32 bits, more steps or
            guided channels than there are.
    """
    if len(labels) != len(seeds):
        raise ValueError(f"{len(labels)} classes and {len(seeds)} seeds: every image needs one of both")
    if wrong := [seed for seed in seeds if not 0 <= seed <= MAX_SEED]:
        raise ValueError(f"seed {wrong[0]} is not a number from 0 to {MAX_SEED}")
    network.spec.check_classes(labels)
    how.check(network.spec)
    few = respace(schedule, how.steps).to(network.positions.device)
    drawn = [
        _draw(network, few, labels[start : start + batch], seeds[start : start + batch], how).cpu()
        for start in range(0, len(labels), batch)
    ]
    return torch.cat(drawn) if drawn else torch.empty(0, *network.spec.shape)


@torch.no_grad()
def _draw(network: Dit, schedule: Schedule, labels: Sequence[int], seeds: Sequence[int], how: SamplingSpec) -> Tensor:
    """One batch."""
    device, channels = network.positions.device, network.spec.channels
    generators = [Generator().manual_seed(seed) for seed in seeds]

    def fresh() -> Tensor:
        noise = [torch.randn(network.spec.shape, generator=generator) for generator in generators]
        return torch.stack(noise).to(device)

    x, y = fresh(), torch.tensor(labels, device=device)
    predict = network if how.cfg == 1 else guidance(network, how.cfg, how.guidance_channels or channels)
    for step in reversed(range(len(schedule))):
        t = torch.full_like(y, step)
        noise, v = predict(x, schedule.timesteps[t], y).to(x.dtype).chunk(2, dim=1)
        if how.method == "ddpm":
            x = ddpm_step(schedule, x, t, noise, v, fresh())
        else:
            x = ddim_step(schedule, x, t, noise, how.eta, fresh())
    return x


def guidance(network: Dit, scale: float, channels: int) -> Predict:
    """The network's prediction, moved away from what it says without a class (see `guided`)."""

    def predict(x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        none = torch.full_like(y, network.spec.num_classes)
        with_class, without = network(x.repeat(2, 1, 1, 1), t.repeat(2), torch.cat((y, none))).chunk(2)
        return guided(with_class, without, scale, channels)

    return predict
