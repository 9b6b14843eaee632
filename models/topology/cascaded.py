"""The baseline: every block adds to its own input, h_j = h_{j-1} + r_j(h_{j-1})."""

from typing import Literal

from models.wiring import WiredSpec, Wiring


class Spec(WiredSpec):
    kind: Literal["cascaded"] = "cascaded"

    def wiring(self, depth: int) -> Wiring:
        return Wiring(depth, {(j - 1, j): 1.0 for j in range(1, depth + 1)}, "constant")
