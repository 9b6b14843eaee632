"""DenseFormer: each step's output is a free weighted sum of all blocks' outputs so far (arXiv 2402.02622)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from models.topology.base import TopologySpec

if TYPE_CHECKING:
    from models.denseformer import DepthAverage


class Spec(TopologySpec):
    """h_j = sum_{i<=j} a_ij v_i of whole residual blocks' outputs; the residual network at the start, a_jj = 1."""

    kind: Literal["denseformer"] = "denseformer"

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        return depth * (depth + 3) // 2

    def build(self, depth: int, width: int) -> DepthAverage:
        from models.denseformer import DepthAverage

        self.check(depth)
        return DepthAverage(self.kind, depth)
