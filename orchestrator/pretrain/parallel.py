"""One worker or many: who there are, how sums are shared, and what training takes from any way of spreading a network.

The gradient of a step is that of the sum of all token losses over the count of all tokens, however they are spread over
workers and micro-batches. So one worker and many follow the same losses.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from models.llama import Llama
from models.pipeline import Stage

Value = TypeVar("Value")


@dataclass(frozen=True)
class Workers:
    """This worker and how many there are."""

    rank: int
    count: int
    device: torch.device

    @classmethod
    def here(cls) -> Workers:
        """The workers of torch.distributed where it is initialised, else this process alone."""
        device = torch.device("cpu")
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
            torch.cuda.set_device(device)
        if not dist.is_initialized():
            return cls(0, 1, device)
        return cls(dist.get_rank(), dist.get_world_size(), device)

    def most(self, batch: int) -> int:
        """The sequences of a batch that the worker with most of them has."""
        return -(-batch // self.count)

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all workers, in place."""
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def all(self, value: Value) -> list[Value]:
        """A small value of every worker, by rank. All workers must call it."""
        if self.count == 1:
            return [value]
        values: list[Value] = [value] * self.count
        dist.all_gather_object(values, value)
        return values


class Spread(Protocol):
    """A network spread over workers: `replica.py`, or `pipeline.py`. Every worker makes every call."""

    @property
    def network(self) -> Llama | Stage:
        """What this worker trains and saves; parameters have their names in the whole network."""

    @property
    def replicas(self) -> Workers:
        """This worker among those that share a batch."""

    def step(self, parts: Sequence[Tensor], scale: float) -> Tensor:
        """Leave the gradient of scale * the summed loss of all workers in `.grad`; returns that loss."""

    def evaluate(self, parts: Sequence[Tensor]) -> Tensor:
        """The summed loss of each of this replica's micro-batches: (parts) float64."""

    def gradient_norm(self) -> Tensor:
        """The length of the whole network's gradient."""

    def clip(self, largest: float, norm: Tensor) -> None:
        """Scale the gradient down to `largest` where its length `norm` is above."""


def clip(gradients: list[Tensor], largest: float, norm: Tensor) -> None:
    if gradients:
        torch._foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1.0))
