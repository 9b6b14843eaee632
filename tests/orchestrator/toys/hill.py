"""A workload whose metric is best where it is largest: the height of a hill under gradient ascent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec


class Spec(TrialSpec):
    """The height 10 - (x - 1)^2 under gradient ascent on x, from 0."""

    rate: float = 0.1
    steps: int = 8

    default_metric: ClassVar[str] = "eval/height"
    default_mode: ClassVar[Literal["min", "max"]] = "max"

    @property
    def total_steps(self) -> int:
        return self.steps

    def estimate(self) -> Estimate:
        return Estimate(params=1, topology_params=0, flops=1.0, memory=8, disk=0)

    def rows(self, place: Place) -> Iterator[Row]:
        x = 0.0
        for step in range(self.steps + 1):
            yield Row(step, {"eval/height": 10 - (x - 1) ** 2})
            x -= self.rate * 2 * (x - 1)
