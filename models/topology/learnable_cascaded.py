"""A free weight on cascaded connections: h_j = B_j(h_{j-1}) + a_j h_{j-1}, a_j = 1 at the start (paper, Table 5)."""

from typing import Literal

from models.wiring import WiredSpec, Wiring


class Spec(WiredSpec):
    """The first block has no a_j of its own."""

    kind: Literal["learnable-cascaded"] = "learnable-cascaded"

    def wiring(self, depth: int) -> Wiring:
        return Wiring(depth, {(j - 1, j): 1.0 for j in range(2, depth + 1)}, "free", inner_residual="keep")
