"""Attention residuals: a step's output is attention over the outputs of all blocks so far (arXiv 2603.15031)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.topology.base import TopologySpec, need_width

if TYPE_CHECKING:
    from models.attention_residual import DepthAttention


class Spec(TopologySpec):
    """h_j = sum_i softmax_i(w_j . rmsnorm(v_i)) v_i; the mean of all v_i at the start, where w = 0.

    `groups`: outputs are summed within so many groups of consecutive blocks (about 8 in the paper's block variant);
    without it every block's output is read by itself (full).
    """

    kind: Literal["attention-residual"] = "attention-residual"
    groups: int | None = Field(default=None, ge=1)

    def check(self, depth: int) -> None:
        super().check(depth)
        if self.groups is not None and self.groups > depth:
            raise ValueError(f"groups {self.groups}: {depth} blocks make {depth} groups at most")

    def num_coefficients(self, depth: int, width: int) -> int:
        return depth * width

    def build(self, depth: int, width: int) -> DepthAttention:
        from models.attention_residual import DepthAttention

        self.check(depth)
        need_width(self.kind, width)
        return DepthAttention(self.kind, depth, width, self.groups or depth)
