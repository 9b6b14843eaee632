"""Weights in bfloat16 that are rounded stochastically, so that updates below half a step of theirs count on average.

Rounding to nearest drops an update of less than 2^-9 of its weight, every time. Here a step computes in float32 and its
result goes to either neighbour in bfloat16, with the probability that makes the mean exact (1502.02551).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """What this worker holds of a tensor, sharded or not; changes in place reach the tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def stochastic_bfloat16(x: Tensor) -> Tensor:
    """x, float32, in bfloat16: one of the two neighbours, drawn by torch's generator of x's device.

    The float32 pattern is sign and magnitude and ends in the 16 bits that bfloat16 lacks; a carry out of random 16 bits
    added there is the draw. So values that bfloat16 holds stay, subnormal ones are no exception, and one beyond its
    largest finite becomes that or infinity. NaN and infinity stay.
    """
    bits = x.view(torch.int32)
    drawn = torch.empty_like(bits).random_(0, 1 << 16).add_(bits).bitwise_and_(-(1 << 16)).view(torch.float32)
    return torch.where(x == x, drawn, x).bfloat16()  # the carry turns some NaN into zero; infinity takes none


class StochasticRounding:
    """Makes each step and each load of `optimizer` treat bfloat16 parameters as float32; others are left alone.

    In a step float32 copies of weights and gradients stand in for them, so the state is float32; then the copies are
    rounded into the weights. Copies are as many as the parameters stepped at once: see `LayerwiseSteps` for one.
    Replicas must draw alike, so their generators have to be in the same state.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.pairs: list[tuple[Tensor, Tensor]] = []  # bfloat16 parameter, stand-in
        self.groups: list[dict[str, Any]] = []  # with the parameters
        for p in _narrow(optimizer):  # state that the optimizer did not leave to its first step
            state = optimizer.state.get(p, {})
            state |= {name: value.float() for name, value in state.items() if _is_narrow(value)}
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)
        optimizer.register_load_state_dict_pre_hook(self._before_load)
        optimizer.register_load_state_dict_post_hook(self._after_load)

    @torch.no_grad()
    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for p in _narrow(optimizer):
            if p.grad is not None:
                wide = p.detach().float()
                wide.grad = p.grad.float()
                self.pairs.append((p, wide))
        self._swap(optimizer)

    @torch.no_grad()
    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if any(group["lr"] for group in self.groups):  # else nothing moved: torch makes empty states by such a step
            for p, wide in self.pairs:
                local(p).copy_(stochastic_bfloat16(local(wide)))
        optimizer.param_groups = self.groups
        self._swap_back(optimizer)

    def _before_load(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Loading casts state to the dtype of its parameter, and looks at nothing else of it but the device."""
        self.pairs = [(p, torch.empty((), device=p.device)) for p in _narrow(optimizer)]
        self._swap(optimizer)

    def _after_load(self, optimizer: torch.optim.Optimizer) -> None:
        for loaded, group in zip(optimizer.param_groups, self.groups, strict=True):
            loaded["params"] = group["params"]
        self._swap_back(optimizer)

    def _swap(self, optimizer: torch.optim.Optimizer) -> None:
        """Put stand-ins where their parameters are, in groups and state."""
        self.groups, wide = optimizer.param_groups, dict(self.pairs)
        optimizer.param_groups = [
            group | {"params": [wide.get(p, p) for p in group["params"]]} for group in self.groups
        ]
        for p, stand_in in self.pairs:
            if p in optimizer.state:
                optimizer.state[stand_in] = optimizer.state.pop(p)

    def _swap_back(self, optimizer: torch.optim.Optimizer) -> None:
        for p, wide in self.pairs:
            if wide in optimizer.state:
                optimizer.state[p] = optimizer.state.pop(wide)
        self.pairs, self.groups = [], []


def _narrow(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"] if _is_narrow(p)]


def _is_narrow(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.bfloat16
