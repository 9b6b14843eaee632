"""What happens at each depth of a network, seen on the way of an ordinary step: how states grow, and what blocks add.

Watching costs a few passes over the states of one micro-batch; a network that is not watched pays nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cosine_similarity

from analysis import names
from models.llama import Llama


class Depths:
    """Of K blocks: the root mean square of h_0 .. h_K and of what came out of each block, the norm of each block's
    gradient, and the mean over tokens of cosine(h_{j-1}, h_j), near 1 where block j hardly changes its input.

    h_j is what block j + 1 reads. Of streams and of attention over depth that is their mix.
    """

    def __init__(self, network: Llama) -> None:
        self.stack = network.stack

    def watch(self) -> None:
        """Look into the next forward of the network, and no other: recomputing it in backward is not watched."""
        self.states: list[Tensor] = []  # scalars on the device: nothing waits for them here
        self.outputs: list[Tensor] = []
        self.cosines: list[Tensor] = []
        self.before: Tensor | None = None
        self.hooks = [block.register_forward_hook(self._block, with_kwargs=True) for block in self.stack.blocks]
        self.hooks.append(self.stack.register_forward_hook(self._stack))

    def finish(self) -> dict[str, list[float]]:
        """Of the forward that was watched, and the gradients that are now in place. Every worker must call it."""
        norms = torch.stack([_norm([p.grad for p in block.parameters()]) for block in self.stack.blocks])
        found = {
            names.DEPTH_STATE_RMS: torch.stack(self.states),
            names.DEPTH_OUTPUT_RMS: torch.stack(self.outputs),
            names.DEPTH_COSINE: torch.stack(self.cosines),
            names.DEPTH_GRADIENT_NORM: norms,
        }
        return {name: values.tolist() for name, values in found.items()}

    @torch.no_grad()
    def _block(self, block: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], out: Tensor) -> None:
        if not options:  # else it was asked for a part of what it computes
            self._state(inputs[0])
            self.outputs.append(_rms(out))

    @torch.no_grad()
    def _stack(self, stack: nn.Module, inputs: tuple[Any, ...], out: Tensor) -> None:
        self._state(out)
        self.before = None
        for hook in self.hooks:
            hook.remove()

    def _state(self, h: Tensor) -> None:
        self.states.append(_rms(h))
        if self.before is not None:
            self.cosines.append(cosine_similarity(self.before.float(), h.float(), dim=-1).mean())
        self.before = h


def _rms(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dtype=torch.float32)
    return norm / math.sqrt(x.numel())


def _norm(gradients: list[Tensor | None]) -> Tensor:
    norm = nn.utils.get_total_norm([g for g in gradients if g is not None], foreach=True)
    whole: Tensor = norm.full_tensor() if isinstance(norm, DTensor) else norm
    return whole.float()
