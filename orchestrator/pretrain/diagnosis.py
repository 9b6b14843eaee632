"""Where the numbers of a step went wrong, found by looking again: a healthy step pays nothing for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def first_bad(network: nn.Module, forward: Callable[[], object]) -> str | None:
    """The first weight, layer output or gradient that is not finite, in the order in which a step computes them.

    Args:
        forward: repeats the forward pass of the step; its gradients are still in place.
    """
    weight, output = _weight(network), _output(network, forward)  # which all workers of a pipeline take part in
    return weight or output or _gradient(network)


def _weight(network: nn.Module) -> str | None:
    return next((f"the weight {name}" for name, p in network.named_parameters() if not p.isfinite().all()), None)


@torch.no_grad()
def _output(network: nn.Module, forward: Callable[[], object]) -> str | None:
    found: list[str] = []

    def watch(name: str, out: Tensor) -> None:
        if not found and not out.isfinite().all():
            found.append(name)

    layers = {name: module for name, module in network.named_modules() if not [*module.children()]}
    hooks = [
        layer.register_forward_hook(lambda _, __, out, name=name: watch(name, out)) for name, layer in layers.items()
    ]
    forward()
    for hook in hooks:
        hook.remove()
    return f"the output of {found[0]}" if found else None


def _gradient(network: nn.Module) -> str | None:
    """Backward goes from the last layer to the first."""
    gradients = [(name, p.grad) for name, p in network.named_parameters() if p.grad is not None]
    return next((f"the gradient of {name}" for name, grad in reversed(gradients) if not grad.isfinite().all()), None)
