"""One worker or many: which rows of a batch are whose, and how weights, gradients and sums are shared.

The gradient of a step is that of the sum of all token losses over the count of all tokens, however they are spread over
workers and micro-batches. So one worker and many follow the same losses.

Under `ddp` every worker has all weights and averages gradients; under `fsdp` each keeps its part of every weight, its
gradient and the optimizer's state (FSDP2), and the few topology coefficients are whole everywhere.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from models.optim.parts import parts
from models.stack import Stack
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

    def share(self, batch: int) -> range:
        """Which sequences of a batch are this worker's; shares differ by one where workers do not divide the batch.

        Raises:
            InputError: fewer sequences than workers.
        """
        if batch < self.count:
            raise InputError(f"train.batch {batch} is smaller than the number of workers {self.count}")
        return range(self.rank * batch // self.count, (self.rank + 1) * batch // self.count)

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


def shard(network: nn.Module, workers: Workers) -> None:
    """Leave each worker its part of every weight, in place; before the optimizer is built."""
    mesh = init_device_mesh(workers.device.type, (workers.count,))
    coefficients = set(parts(network)["topology"])
    for stack in (module for module in network.modules() if isinstance(module, Stack)):
        for block in stack.blocks:
            fully_shard(block, mesh=mesh)
            for method in ("values",):  # what a network calls of a block besides its forward
                if hasattr(block, method):
                    register_fsdp_forward_method(block, method)
    fully_shard(network, mesh=mesh, ignored_params=coefficients)


class Gradients:
    """How the workers' gradients of one network become that of the step.

    Args:
        network: sharded, or whole on every worker.
    """

    def __init__(self, network: nn.Module, workers: Workers) -> None:
        self.network, self.workers = network, workers
        self.parameters = [*network.parameters()]
        self.sharded = isinstance(network, FSDPModule)
        self.apart = parts(network)["topology"] if self.sharded else []  # whole on every worker, and not known to FSDP
        self.forward = network if workers.count == 1 or self.sharded else self._replicated()

    def _replicated(self) -> nn.Module:
        devices = [self.workers.device] if self.workers.device.type == "cuda" else None
        return DistributedDataParallel(self.network, devices, gradient_as_bucket_view=True)

    def part(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of each micro-batch: before the last one, gradients stay with the worker."""
        if isinstance(self.network, FSDPModule):
            self.network.set_requires_gradient_sync(last)
        elif isinstance(self.forward, DistributedDataParallel) and not last:
            return self.forward.no_sync()
        return nullcontext()

    def finish(self) -> None:
        """After the last backward: average what neither DDP nor FSDP has."""
        for parameter in self.apart:
            if parameter.grad is not None:
                self.workers.total(parameter.grad.div_(self.workers.count))

    def norm(self) -> Tensor:
        """The length of the whole gradient."""
        sharded, whole = self._gradients()
        norms = [nn.utils.get_total_norm(gradients, foreach=True) for gradients in (sharded, whole) if gradients]
        return torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]).norm()

    def clip(self, largest: float, norm: Tensor) -> None:
        """Scale the gradient down to `largest` where its length `norm` is above."""
        factor = (largest / (norm + 1e-6)).clamp(max=1.0)
        for gradients in self._gradients():
            if gradients:
                torch._foreach_mul_(gradients, factor)

    def _gradients(self) -> tuple[list[Tensor], list[Tensor]]:
        """Those that are sharded and those that are whole: no operation takes both."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        sharded = [g for g in gradients if isinstance(g, DTensor)]
        return sharded, [g for g in gradients if not isinstance(g, DTensor)]
