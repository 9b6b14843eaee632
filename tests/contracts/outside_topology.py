"""A topology that is not one of ours, nor a list of weights: each step adds a running average of all earlier states.

e_1 = h_0,   e_j = (e_{j-1} + h_{j-1}) / 2,   h_j = r_j(h_{j-1}) + a_j e_j
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from models.topology.base import TopologySpec

if TYPE_CHECKING:
    from models.stack import Topology


class Spec(TopologySpec):
    start: float = pydantic.Field(default=1.0)  # of every a_j

    def num_coefficients(self, depth: int, width: int) -> int:
        return depth

    def build(self, depth: int, width: int) -> Topology:
        from contracts.outside_module import RunningAverage

        return RunningAverage(self.kind, depth, self.start)
