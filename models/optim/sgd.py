"""Gradient descent, plain or with momentum: the optimizer of the linear case study (paper, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.optim.base import OptimSpec

if TYPE_CHECKING:
    import torch


class Spec(OptimSpec):
    """Gradient descent with a fixed step size, with or without momentum."""

    kind: Literal["sgd"] = "sgd"
    lr: float = Field(default=1e-3, gt=0)  # appendix E.1
    momentum: float = Field(default=0.0, ge=0, lt=1)

    def state_numbers(self) -> int:
        return 1 if self.momentum else 0

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        return torch.optim.SGD(network.parameters(), lr=self.lr, momentum=self.momentum)
