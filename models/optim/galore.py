"""GaLore (2403.03507): AdamW whose moments of block matrices live in a subspace of the gradient, to save memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.optim.base import Beta, OptimSpec
from models.optim.parts import Shape, numbers, parts, shapes

if TYPE_CHECKING:
    import torch


class Spec(OptimSpec):
    """GaLore at its authors' setting. Block matrices whose smaller side exceeds `rank` are projected.

    All other parameters get plain AdamW at the same rate, without weight decay.
    """

    kind: Literal["galore"] = "galore"
    rank: int = Field(default=128, ge=1)
    update_gap: int = Field(default=200, ge=1)  # steps between two subspaces
    scale: float = Field(default=0.25, gt=0)  # of the projected step
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(default=1e-6, gt=0)  # of projected matrices, added before bias correction

    def _projects(self, shape: Shape) -> bool:
        return shape.part == "matrix" and min(shape.size) > self.rank

    def check(self, shapes: Sequence[Shape]) -> None:
        if not any(self._projects(shape) for shape in shapes):
            sides = [min(shape.size) for shape in shapes if shape.part == "matrix"]
            widest = f"the widest has {max(sides)}" if sides else "there are none"
            raise ValueError(
                f"an optimizer with no matrix to project: rank {self.rank} should be below the smaller side of a 2-D "
                f"weight inside a block; {widest}"
            )

    def state_numbers(self, shapes: Sequence[Shape]) -> int:
        """A projector and two moments for each projected matrix, two moments for every other number."""
        projected = [shape for shape in shapes if self._projects(shape)]
        low = sum(self.rank * (min(s.size) + 2 * max(s.size)) * s.count for s in projected)
        return low + 2 * (numbers(shapes) - numbers(projected))

    def build(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        from models.optim.paired import Paired
        from models.optim.projected import ProjectedAdam

        self.check(shapes(network))
        found = parts(network)
        large = [p for p in found["matrix"] if min(p.shape) > self.rank]
        small = [p for p in found["matrix"] if min(p.shape) <= self.rank]
        rule = ProjectedAdam(large, self.lr, self.rank, self.update_gap, self.scale, self.betas, self.eps)
        others = (small + found["table"] + found["vector"], found["topology"])
        return Paired(rule, [{"params": group, "weight_decay": 0.0} for group in others], self.lr, self.betas)
