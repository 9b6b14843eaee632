"""LayerScale: every feature of a branch has a small learned gain, h = x + diag(l) r(x) (arXiv 2103.17239)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.topology.base import TopologySpec, need_width

if TYPE_CHECKING:
    from models.scaled import Scaled


class Spec(TopologySpec):
    """`initial`: of every gain; without it 0.1 up to 18 blocks, 1e-5 up to 24 and 1e-6 beyond, as published."""

    kind: Literal["layerscale"] = "layerscale"
    initial: float | None = Field(default=None, gt=0)

    def gain(self, depth: int) -> float:
        """What the gains of `depth` blocks start at."""
        if self.initial is not None:
            return self.initial
        return 0.1 if depth <= 18 else 1e-5 if depth <= 24 else 1e-6

    def num_coefficients(self, depth: int, width: int) -> int:
        return depth * width

    def build(self, depth: int, width: int) -> Scaled:
        from models.scaled import Scaled

        self.check(depth)
        need_width(self.kind, width)
        return Scaled(self.kind, depth, width, self.gain(depth))
