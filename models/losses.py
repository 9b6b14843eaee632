"""The head of a language model and its cross-entropy in one, which never holds the logits of all tokens.

Logits are by far the largest tensor of a step, and cross-entropy takes several more of their size. Here some tokens at
a time pass the head; their gradient, softmax(logits) less one at the target, takes the place of their logits and is
multiplied at once by the head's weights and by what the head was given. Backward scales the two products.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LOGITS = 2**23  # held at once. In float32 they fill 32 MiB, up to which glibc gives out memory that it has kept


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The sum over tokens of -log softmax(weight x)[target], in float32 at least.

    Under autocast products are taken in its dtype, like those of a linear layer, and the rest is float32.

    Args:
        x: (.., d), what the head is given.
        weight: (V, d) of the head.
        targets: (..) integers below V; a token whose target is negative does not count.
    """
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x, weight = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (x, weight))
    train = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    inputs = x.flatten(0, -2), weight, targets.flatten(), train
    loss: Tensor = LinearCrossEntropy.apply(*inputs)  # type: ignore[no-untyped-call]
    return loss


class LinearCrossEntropy(torch.autograd.Function):
    """Of x (N, d), weight (V, d) and targets (N). Gradients are computed where `train` is set."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor, train: bool) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        loss = torch.zeros((), dtype=wide, device=x.device)
        to_x = torch.empty_like(x) if train else None
        to_weight = torch.empty_like(weight, dtype=wide) if train else None
        rows = max(1, LOGITS // len(weight))
        with torch.autocast(x.device.type, enabled=False):
            for start in range(0, len(x), rows):
                part = slice(start, start + rows)
                counted, target = (targets[part, None] >= 0), targets[part, None].clamp(min=0)
                logits = (x[part] @ weight.T).to(wide)
                logs = torch.log_softmax(logits, 1, out=logits)
                loss -= logs.gather(1, target).where(counted, 0).sum()
                if to_x is not None and to_weight is not None:
                    g = logs.exp_().scatter_add_(1, target, logs.new_full(target.shape, -1)).to(x.dtype)
                    torch.mm(g, weight, out=to_x[part]).mul_(counted)
                    _add_product(to_weight, g.T, x[part] * counted, first=start == 0)
        if to_weight is not None:
            ctx.gradients = to_x, (to_weight if len(x) else to_weight.zero_()).to(weight.dtype)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        if ctx.gradients is None:
            raise RuntimeError("the loss was taken backward before: its gradients are kept for one backward")
        (to_x, to_weight), ctx.gradients = ctx.gradients, None
        return to_x.mul_(g), to_weight.mul_(g), None, None


def _add_product(total: Tensor, a: Tensor, b: Tensor, *, first: bool) -> None:
    """total = a b of the first part, total + a b of others; the total of half-precision products is float32."""
    if total.dtype == a.dtype:
        torch.addmm(total, a, b, beta=0 if first else 1, out=total)
    elif first:
        total.copy_(a @ b)
    else:
        total += a @ b
