"""The first and the previous state, 1/2 each: like ANCRe's learned maps, without learning (paper, section 5.5)."""

from typing import Literal

from models.topology.base import InnerResidual
from models.wiring import WiredSpec, Wiring


class Spec(WiredSpec):
    """Step 1 has one source, which gets weight 1."""

    kind: Literal["fixed-first-prev"] = "fixed-first-prev"
    inner_residual: InnerResidual = "drop"

    def wiring(self, depth: int) -> Wiring:
        weights = {(i, j): 0.5 for j in range(2, depth + 1) for i in (0, j - 1)}
        return Wiring(depth, {(0, 1): 1.0} | weights, "constant", inner_residual=self.inner_residual)
