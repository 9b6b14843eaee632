"""Muon (2502.16982): block matrices move by their orthogonalised momentum, all other parameters by AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.optim.base import Beta, OptimSpec
from models.optim.parts import Shape, numbers, parts, shapes

if TYPE_CHECKING:
    import torch


class Spec(OptimSpec):
    """Muon by torch.optim, whose defaults these are, but for two.

    `match_rms_adamw` scales its steps to those of AdamW, so that one rate serves both and AdamW's rates carry over;
    weight decay (of matrices, embedding and head) is 0 as everywhere here, where torch has 0.1.
    """

    kind: Literal["muon"] = "muon"
    momentum: float = Field(default=0.95, ge=0, lt=1)
    nesterov: bool = True
    ns_steps: int = Field(default=5, ge=1, lt=100)  # Newton-Schulz iterations
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)  # of AdamW

    def check(self, shapes: Sequence[Shape]) -> None:
        if not any(shape.part == "matrix" for shape in shapes):
            raise ValueError("an optimizer with no matrix to orthogonalise: there are no 2-D weights inside blocks")

    def state_numbers(self, shapes: Sequence[Shape]) -> int:
        """One momentum for each number of a block matrix, two moments for every other."""
        return 2 * numbers(shapes) - numbers(shape for shape in shapes if shape.part == "matrix")

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        import torch

        from models.optim.paired import Paired

        self.check(shapes(network))
        found = parts(network)
        rule = torch.optim.Muon(
            found["matrix"],
            lr=self.lr,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            nesterov=self.nesterov,
            ns_steps=self.ns_steps,
            adjust_lr_fn=self.adjust_lr,
        )
        others = [
            {"params": found["table"], "weight_decay": self.weight_decay},
            {"params": found["vector"], "weight_decay": 0.0},
            {"params": found["topology"], "weight_decay": 0.0},
        ]
        return Paired(rule, others, self.lr, self.betas)
