"""ReZero: every branch has a learned gain that starts at 0, h = x + a r(x) (arXiv 2003.04887)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from models.topology.base import TopologySpec

if TYPE_CHECKING:
    from models.scaled import Scaled


class Spec(TopologySpec):
    """At the start the stack is the identity."""

    kind: Literal["rezero"] = "rezero"

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        return depth

    def build(self, depth: int, width: int) -> Scaled:
        from models.scaled import Scaled

        self.check(depth)
        return Scaled(self.kind, depth, 1, 0.0)
