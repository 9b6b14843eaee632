"""The workload of sweep.py: rows that take a known time, asleep or at work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar, Literal

from models.spec import Spec as FrozenSpec
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec


class OptimSpec(FrozenSpec):
    lr: float


class TrainSpec(FrozenSpec):
    steps: int
    sleep: float = 0.0  # seconds between two rows
    cpu: float = 0.0


class Spec(TrialSpec):
    """One row a step."""

    workload: Literal["tests.benchmarks.sweep_rows"] = "tests.benchmarks.sweep_rows"
    optim: OptimSpec
    train: TrainSpec

    default_metric: ClassVar[str] = "train/loss"

    @property
    def total_steps(self) -> int:
        return self.train.steps

    def estimate(self) -> Estimate:
        return Estimate(params=1, topology_params=0, flops=1.0, memory=1, disk=0)

    def rows(self, place: Place) -> Iterator[Row]:
        for step in range(1, self.train.steps + 1):
            time.sleep(self.train.sleep)
            began = time.thread_time()
            while time.thread_time() < began + self.train.cpu:
                pass
            yield Row(step, {"train/loss": self.optim.lr / step})
