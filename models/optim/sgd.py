"""Gradient descent, plain or with momentum: the optimizer of the linear case study (paper, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from models.optim.base import OptimSpec
from models.optim.parts import Shape, numbers, parts

if TYPE_CHECKING:
    import torch


class Spec(OptimSpec):
    """Gradient descent with a fixed step size, with or without momentum."""

    kind: Literal["sgd"] = "sgd"
    lr: float = Field(default=1e-3, gt=0)  # appendix E.1
    momentum: float = Field(default=0.0, ge=0, lt=1)

    shards: ClassVar[bool] = True

    def state_numbers(self, shapes: Sequence[Shape]) -> int:
        return numbers(shapes) if self.momentum else 0

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        topology = parts(network)["topology"]
        mixing = {id(p) for p in topology}
        groups = [[p for p in network.parameters() if id(p) not in mixing], topology]
        return torch.optim.SGD([{"params": group} for group in groups if group], lr=self.lr, momentum=self.momentum)
