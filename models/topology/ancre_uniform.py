"""All connections with the constant weight 1/j: ANCRe without learning (paper, Table 5, "constant")."""

from typing import Literal

from models.topology.base import InnerResidual
from models.wiring import WiredSpec, Wiring, earlier


class Spec(WiredSpec):
    kind: Literal["ancre-uniform"] = "ancre-uniform"
    inner_residual: InnerResidual = "drop"

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        return 0

    def wiring(self, depth: int) -> Wiring:
        weights = {(i, j): 1 / j for i, j in earlier(depth)}
        return Wiring(depth, weights, "constant", inner_residual=self.inner_residual)
