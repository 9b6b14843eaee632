"""One worker or many: which rows of a batch are whose, and how sums and gradients are shared.

The gradient of a step is that of the sum of all token losses over the count of all tokens, however they are spread over
workers and micro-batches. So one worker and many follow the same losses.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from orchestrator.errors import InputError

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

    def share(self, windows: NDArray[np.int64]) -> NDArray[np.int64]:
        """This worker's rows of a batch (sequences, ..).

        Raises:
            InputError: fewer sequences than workers.
        """
        if len(windows) < self.count:
            raise InputError(f"train.batch {len(windows)} is smaller than the number of workers {self.count}")
        bounds = [rank * len(windows) // self.count for rank in (self.rank, self.rank + 1)]
        return windows[slice(*bounds)]

    def wrap(self, network: nn.Module) -> nn.Module:
        """The network to train: backward averages its gradients over the workers."""
        if self.count == 1:
            return network
        devices = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(network, devices, gradient_as_bucket_view=True)

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


def unsynced(network: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Around all backward passes of a step but its last: gradients stay with the worker."""
    return nullcontext() if last or not isinstance(network, DistributedDataParallel) else network.no_sync()
