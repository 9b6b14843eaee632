"""The deep linear network of the paper's section 3, as data. `models/linear.py` builds it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from models.optim.parts import Shape
from models.spec import Spec
from models.topology.base import TopologySpec


class LinearSpec(Spec):
    """W_K .. W_1 with square W_j ~ N(0, init_std^2), fitted to a target of low rank (appendix E.1)."""

    depth: int = Field(default=3, ge=1)  # K
    width: int = Field(default=50, ge=1)  # d
    rank: int = Field(default=4, ge=1)  # r, of the target A
    init_std: float = Field(default=0.01, gt=0)

    @model_validator(mode="after")
    def _rank_fits(self) -> Self:
        if self.rank > self.width:
            raise ValueError(f"rank = {self.rank}: a target of width {self.width} has rank {self.width} at most")
        return self

    def num_params(self) -> int:
        """Trained numbers, topology excluded."""
        return self.depth * self.width**2

    def shapes(self, topology: TopologySpec) -> tuple[Shape, ...]:
        """All trained parameters, the topology's among them."""
        weights = Shape((self.width, self.width), "matrix", self.depth)
        return (weights, Shape((topology.num_coefficients(self.depth, self.width),), "topology"))

    def flops(self) -> float:
        """Of one step, forward and backward: the d samples of X = I through K maps, three products each."""
        return 6.0 * self.depth * self.width**3
