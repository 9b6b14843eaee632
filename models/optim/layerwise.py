"""Steps of one parameter at a time, inside the backward pass: gradients of the whole network never exist at once.

A parameter is stepped as soon as its gradient is complete, when nothing in the backward pass needs the weight any more.
So there is one backward pass a step, and no clipping: the norm over all gradients is known when all steps are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from models.optim.rounding import local


class LayerwiseSteps:
    """Steps the parameters of `optimizer` one by one, and frees each gradient after its step.

    The optimizer stays what it is: set rates in its groups before the backward pass, save and load its state. A step is
    the same to the bit as that of all parameters at once. A gradient that is not finite counts as zero, so that the
    weights stay finite; `gradient_norm` tells.

    Args:
        in_backward: parameters to step in the backward pass, by hooks; `step` steps the others. Only those belong here
            whose gradient is then complete: sharded parameters (FSDP2) and all of a lone worker, but none that
            DistributedDataParallel or the caller sums over workers.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, in_backward: Iterable[nn.Parameter] = ()) -> None:
        self.optimizer = optimizer
        self.group_of = {p: number for number, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self.norms: list[Tensor] = []
        self.hooks = [
            p.register_post_accumulate_grad_hook(self._step)  # type: ignore[no-untyped-call]
            for p in in_backward
            if p.requires_grad
        ]

    def step(self) -> None:
        """Step the parameters that have a gradient left, also one by one: `StochasticRounding` then copies no more."""
        for p in self.group_of:
            if p.grad is not None:
                self._step(p)

    def gradient_norm(self) -> Tensor:
        """The norm over all gradients stepped since the last call, (); does not wait for the device.

        Raises:
            ValueError: there were none.
        """
        if not self.norms:
            raise ValueError("no gradient since the last norm")
        sharded = [norm for norm in self.norms if isinstance(norm, DTensor)]
        whole = [norm for norm in self.norms if not isinstance(norm, DTensor)]
        if sharded:
            whole.append(_norm(sharded).full_tensor())  # the one sum over workers
        self.norms = []
        total: Tensor = _norm(whole)
        return total

    def detach(self) -> None:
        """Step in backward passes no more."""
        for hook in self.hooks:
            hook.remove()

    @torch.no_grad()
    def _step(self, p: Tensor) -> None:
        gradient, optimizer = p.grad, self.optimizer
        assert gradient is not None
        norm = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
        self.norms.append(norm)
        local(gradient).masked_fill_(local(norm).isfinite().logical_not(), 0)
        groups = optimizer.param_groups
        optimizer.param_groups = [groups[self.group_of[p]] | {"params": [p]}]
        optimizer.step()
        optimizer.param_groups = groups
        p.grad = None


def _norm(norms: Sequence[Tensor]) -> Any:
    return torch.linalg.vector_norm(torch.stack([*norms]))
