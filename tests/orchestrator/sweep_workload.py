"""A workload without a network: numbers that are known beforehand, and every way to go wrong."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

from models.spec import Spec as FrozenSpec
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec


class OptimSpec(FrozenSpec):
    lr: float = 0.1


class TrainSpec(FrozenSpec):
    steps: int = 10
    sleep: float = 0.0  # seconds a step
    checkpoint_every: int = 1
    diverge_at: int | None = None  # step
    fail_at: int | None = None  # step, at every try
    fail_once_at: int | None = None
    kill_once_at: int | None = None  # its own process
    hang_once_at: int | None = None  # one of its processes, for ever
    linger_at: int | None = None  # step of which saving and evaluating take some seconds each


class Spec(TrialSpec):
    """One row a step; the loss depends on lr, seed and step alone."""

    workload: Literal["tests.orchestrator.sweep_workload"] = "tests.orchestrator.sweep_workload"
    optim: OptimSpec = OptimSpec()
    train: TrainSpec = TrainSpec()

    default_metric: ClassVar[str] = "train/loss"

    @property
    def total_steps(self) -> int:
        return self.train.steps

    def estimate(self) -> Estimate:
        return Estimate(params=1, topology_params=0, flops=float(self.train.steps), memory=8, disk=0)

    def prepare(self, cache: Path) -> None:
        with (cache / "prepared").open("a") as file:
            file.write("once\n")

    def loss(self, step: int) -> float:
        return self.optim.lr + self.seed / 1000 + 1 / step

    def rows(self, place: Place) -> Iterator[Row]:
        kept = place.folder / "checkpoints" / "step"
        first = int(kept.read_text()) if kept.exists() else 1  # the row of its checkpoint may not have been written
        with (place.folder / "starts").open("a") as file:
            file.write(f"{first}\n")
        for step in range(first, self.train.steps + 1):
            time.sleep(self.train.sleep)
            self._go_wrong(step, place.folder)
            self._linger(step, place.folder, "saves")
            if step % self.train.checkpoint_every == 0:
                kept.parent.mkdir(exist_ok=True)
                partial = kept.with_suffix(f".{os.getpid()}")
                partial.write_text(str(step))
                partial.replace(kept)
            self._linger(step, place.folder, "evaluates")
            loss = math.nan if step == self.train.diverge_at else self.loss(step)
            yield Row(step, {"train/loss": loss, "twice": 2.0 * step})

    def _go_wrong(self, step: int, folder: Path) -> None:
        if step == self.train.fail_at or (step == self.train.fail_once_at and _first(folder, "failed")):
            raise RuntimeError(f"told to fail at step {step}")
        if step == self.train.hang_once_at and _first(folder, "hung"):
            threading.Event().wait()
        if step == self.train.kill_once_at and _first(folder, "killed"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _linger(self, step: int, folder: Path, doing: str) -> None:
        if step == self.train.linger_at:
            (folder / doing).touch()
            time.sleep(1)


def _first(folder: Path, what: str) -> bool:
    try:
        (folder / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
