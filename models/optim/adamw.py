"""AdamW (1711.05101), with the topology trained like the weights but never decayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from models.optim.base import Beta, OptimSpec
from models.optim.parts import Shape, numbers, parts

if TYPE_CHECKING:
    import torch


class Spec(OptimSpec):
    """AdamW at the paper's setting (E.4): betas .9 and .999, no weight decay; where there is one, for matrices only."""

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    shards: ClassVar[bool] = True

    def state_numbers(self, shapes: Sequence[Shape]) -> int:
        return 2 * numbers(shapes)

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        found = parts(network)
        groups = [
            {"params": found["matrix"] + found["table"], "weight_decay": self.weight_decay},
            {"params": found["vector"], "weight_decay": 0.0},
            {"params": found["topology"], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=self.lr, betas=self.betas, eps=self.eps, fused=True
        )
