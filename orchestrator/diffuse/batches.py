"""The batches of a run: images, and what is drawn for each of them: a timestep, noise, whether its class is told.

What is drawn for an image follows from the seed and the image's place in the stream alone. So one worker and many train
on the same numbers, and a resumed run needs no saved state of a generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.diffusion import STEPS
from orchestrator.image_shards.stream import Stream
from orchestrator.images.base import Images, Numbers

Pixels = NDArray[np.float32]

DRAWS = 2  # tells these draws from those of the stream: (seed, 0, pass) shuffles, (seed, 1, place) varies images
HELD_OUT = 3


class Batch(NamedTuple):
    """What the loss takes of B images; on the CPU, until `to` moves it."""

    x: Tensor  # (B, C, H, W) float32
    t: Tensor  # (B,) int64, 0 .. STEPS - 1
    y: Tensor  # (B,) int64; the number of classes where the class is not told
    noise: Tensor  # (B, C, H, W) float32

    def to(self, device: torch.device) -> Batch:
        if device.type != "cuda":
            return self
        return Batch(*(tensor.pin_memory().to(device, non_blocking=True) for tensor in self))

    def split(self, size: int) -> list[Batch]:
        """Micro-batches of `size` images; the last one may have fewer."""
        return [Batch(*parts) for parts in zip(*(torch.split(tensor, size) for tensor in self), strict=True)]


class Batches:
    """Training batches.

    Args:
        batch: images a step, over all workers.
        dropout: share of images whose class is not told.
        rank: of this worker, of `count`.
    """

    def __init__(self, stream: Stream, batch: int, dropout: float, rank: int, count: int) -> None:
        self.stream, self.batch, self.dropout = stream, batch, dropout
        self.begin, self.stop = rank * batch // count, (rank + 1) * batch // count

    def at(self, step: int) -> Batch:
        """This worker's part of a step's batch."""
        first, rows = step * self.batch + self.begin, self.stop - self.begin
        x, y = self.stream.batch(first, rows)
        generators = [np.random.default_rng((self.stream.seed, DRAWS, first + row)) for row in range(rows)]
        t, noise = _drawn(generators, x)
        kept = np.array([generator.random() for generator in generators]) >= self.dropout
        return _batch(x, t, np.where(kept, y, self.stream.images.num_classes), noise)


def held_out(images: Images, most: int, size: int, rank: int, count: int) -> Iterator[Batch]:
    """This worker's batches of up to `size` of the first `most` images: the same draws in every run, classes told."""
    stop = min(most, len(images))
    for first in range(rank * size, stop, count * size):
        numbers = np.arange(first, min(first + size, stop))
        x, y = images.read(numbers)
        t, noise = _drawn([np.random.default_rng((HELD_OUT, number)) for number in numbers.tolist()], x)
        yield _batch(x, t, y, noise)


def _drawn(generators: list[np.random.Generator], x: Pixels) -> tuple[Numbers, Pixels]:
    """A timestep and noise for each image."""
    t = np.array([generator.integers(STEPS) for generator in generators])
    noise = np.stack([generator.standard_normal(x.shape[1:], np.float32) for generator in generators])
    return t, noise


def _batch(x: Pixels, t: Numbers, y: Numbers, noise: Pixels) -> Batch:
    return Batch(*map(torch.from_numpy, (x, t, y, noise)))
