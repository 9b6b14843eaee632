"""The whole network on every worker, each with its share of a batch: the step, held-out losses, the gradient's length.

Under `ddp` every worker has all weights and averages gradients; under `fsdp` each keeps its part of every weight, its
gradient and the optimizer's state (FSDP2), and the few topology coefficients are whole everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from models.optim.parts import parts as parts_of
from orchestrator.pretrain.parallel import Workers, clip

Network = TypeVar("Network", bound=nn.Module)
Part = TypeVar("Part")  # a micro-batch


class Replica(Generic[Network, Part]):
    """What training takes from a network that all workers have alike.

    Args:
        network: its forward gives the loss that is summed over a micro-batch; on the workers' device.
        arguments: what the forward takes of a micro-batch.
        sharded: blocks of the network, of whose weights, and all others, each worker is to keep its part, in place; the
            optimizer is to be built afterwards. None of them: every worker has all weights.
        mixed: forward under bfloat16 autocast.
    """

    def __init__(
        self,
        network: Network,
        workers: Workers,
        arguments: Callable[[Part], tuple[Tensor, ...]],
        *,
        sharded: Sequence[nn.Module] = (),
        mixed: bool = False,
    ) -> None:
        self.network, self.workers, self.replicas, self.mixed = network, workers, workers, mixed
        self.forward: nn.Module = network
        self.arguments = arguments
        self.apart: list[nn.Parameter] = []  # whole on every worker, and not known to FSDP
        if workers.count > 1 and sharded:
            self.apart = parts_of(network)["topology"]
            _shard(network, sharded, workers, self.apart)
        elif workers.count > 1:
            devices = [workers.device] if workers.device.type == "cuda" else None
            # Buffers are constants, and not sending them lets workers evaluate different numbers of micro-batches.
            self.forward = DistributedDataParallel(
                network, devices, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        self.parameters = [*network.parameters()]

    def step(self, parts: Sequence[Part], scale: float) -> Tensor:
        """Forward and backward: `.grad`, None before, becomes the gradient of scale * the summed loss of all workers.

        Args:
            parts: micro-batches of this worker; sharded, every worker has as many.

        Returns:
            The summed loss of all workers, on every worker.
        """
        total = torch.zeros((), device=self.workers.device)
        for number, part in enumerate(parts, start=1):
            with self._part(last=number == len(parts)):
                loss = self._loss(part)
                (loss * (scale * self.workers.count)).backward()  # type: ignore[no-untyped-call]  # workers' mean is taken
            total += loss.detach()
        for parameter in self.apart:
            if parameter.grad is not None:
                self.workers.total(parameter.grad.div_(self.workers.count))
        return self.workers.total(total)

    def _part(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of each micro-batch: before the last one, gradients stay with the worker."""
        if isinstance(self.network, FSDPModule):
            self.network.set_requires_gradient_sync(last)
        elif isinstance(self.forward, DistributedDataParallel) and not last:
            return self.forward.no_sync()
        return nullcontext()

    def _loss(self, part: Part) -> Tensor:
        with torch.autocast(self.workers.device.type, torch.bfloat16, enabled=self.mixed):
            loss: Tensor = self.forward(*self.arguments(part))
            return loss

    @torch.no_grad()
    def evaluate(self, parts: Sequence[Part]) -> Tensor:
        """The summed loss of each of this worker's micro-batches: (parts) float64. Sharded, all must have as many."""
        return torch.stack([self._loss(part).double() for part in parts])

    def gradient_norm(self) -> Tensor:
        """The length of the whole gradient."""
        norms = [nn.utils.get_total_norm(some, foreach=True) for some in self._gradients() if some]
        whole = [n.full_tensor() if isinstance(n, DTensor) else n for n in norms]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(whole), dtype=torch.float32)
        return norm

    def clip(self, largest: float, norm: Tensor) -> None:
        """Scale the gradient down to `largest` where its length `norm` is above."""
        for gradients in self._gradients():
            clip(gradients, largest, norm)

    def _gradients(self) -> tuple[list[Tensor], list[Tensor]]:
        """Those that are sharded and those that are whole: no operation takes both."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        sharded: list[Tensor] = [g for g in gradients if isinstance(g, DTensor)]
        return sharded, [g for g in gradients if not isinstance(g, DTensor)]


def _shard(network: nn.Module, blocks: Sequence[nn.Module], workers: Workers, apart: list[nn.Parameter]) -> None:
    mesh = init_device_mesh(workers.device.type, (workers.count,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh, ignored_params=set(apart))
