"""What training uses of its device: memory by category, and the share of its peak speed."""

from __future__ import annotations

import resource
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor

from analysis import names

# Dense bfloat16 FLOP/s by a part of the device's name, as their makers' data sheets say (SXM modules).
PEAKS = {"A100": 312e12, "H100": 989e12, "H200": 989e12}
KIB = 1024  # bytes: the unit in which Linux tells the peak of a process


def peak_flops(device: torch.device, given: float | None) -> float | None:
    """FLOP/s that the device can reach; None where nobody knows."""
    if given or device.type != "cuda":
        return given
    name = torch.cuda.get_device_name(device)
    return next((flops for part, flops in PEAKS.items() if part in name), None)


class Memory:
    """Bytes that one worker holds, by category, seen in a step."""

    def __init__(self, network: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.network, self.optimizer, self.device = network, optimizer, device
        self.activations = self.gradients = 0

    def watch(self) -> None:
        """Count what the next forward of the network keeps for backward: each piece of memory once, weights apart."""
        own = {_local(tensor).untyped_storage().data_ptr() for tensor in self.network.parameters()}
        kept: dict[int, int] = {}

        def count(tensor: Tensor) -> Tensor:
            storage = _local(tensor).untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        counting = saved_tensors_hooks(count, lambda tensor: tensor)

        def leave(*_: Any) -> None:
            counting.__exit__()
            self.activations = sum(kept.values())
            for hook in hooks:
                hook.remove()

        hooks = [
            self.network.register_forward_pre_hook(lambda *_: counting.__enter__()),
            self.network.register_forward_hook(leave, always_call=True),
        ]

    def backward(self) -> None:
        """Count the gradients that are in place; where each was stepped and freed at once, the largest."""
        parameters = [*self.network.parameters()]
        there = sum(_bytes(p.grad) for p in parameters if p.grad is not None)
        self.gradients = there or max(map(_bytes, parameters))

    def metrics(self) -> dict[str, float]:
        """After an optimizer step."""
        states = (value for state in self.optimizer.state.values() for value in state.values())
        found = {
            names.MEMORY_PARAMETERS: sum(map(_bytes, self.network.parameters())),
            names.MEMORY_GRADIENTS: self.gradients,
            names.MEMORY_OPTIMIZER: sum(_bytes(value) for value in states if isinstance(value, Tensor)),
            names.MEMORY_ACTIVATIONS: self.activations,
            names.MEMORY_PEAK: self._peak(),
        }
        return {name: float(count) for name, count in found.items()}

    def _peak(self) -> int:
        """Of the device's allocator; on a CPU, of the whole process."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _bytes(tensor: Tensor) -> int:
    local = _local(tensor)
    return local.numel() * local.element_size()
