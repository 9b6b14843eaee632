"""The frame of a training run, whatever is trained: its steps, and the checkpoints and reports that are due after them.

A step waits for the device once, to see that its loss and gradient are finite; the next batch is read meanwhile. A
checkpoint is taken before the report of its step and written while training goes on. A resumed run begins with the
report of its checkpoint's step: none is ever lost, those since that step come twice.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from orchestrator.errors import Diverged
from orchestrator.pretrain.diagnosis import first_bad
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.rate import Scheduled, rate
from orchestrator.pretrain.sharded import Saver
from orchestrator.workloads.base import Row


class Paced(Scheduled, Protocol):
    """The part of a `train` table that says what is due when: steps between two, 0 for none."""

    @property
    def log_every(self) -> int: ...
    @property
    def eval_every(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...


class Counted(Protocol):
    """Where a run is."""

    step: int
    seconds: float  # of training alone, since the last report
    gradient_norm: float  # of the last step


Train = TypeVar("Train", bound=Paced)
Progress = TypeVar("Progress", bound=Counted)


class Steps(ABC, Generic[Train, Progress]):
    """One run, from `progress` to the last step, with the steps of all workers kept alike."""

    def __init__(
        self, train: Train, progress: Progress, optimizer: torch.optim.Optimizer, workers: Workers, saver: Saver
    ) -> None:
        self.train, self.progress, self.optimizer, self.workers, self.saver = train, progress, optimizer, workers, saver
        self.peaks = [group["lr"] for group in optimizer.param_groups]

    @abstractmethod
    def _advance(self) -> None:
        """Take one step."""

    @abstractmethod
    def _save(self) -> None:
        """Begin the checkpoint of the step that was taken."""

    @abstractmethod
    def _report(self) -> Row:
        """What there is to tell after a step, with an evaluation where `eval_every` is due."""

    @abstractmethod
    def _close(self) -> None:
        """Stop reading batches."""

    def rows(self) -> Iterator[Row]:
        """Train to the last step, reporting on the way; every worker iterates, and each gets the same rows.

        Raises:
            Diverged: the loss or its gradient became non-finite; the weights are those before that step.
        """
        train, progress = self.train, self.progress
        try:
            if progress.step and self._due(train.log_every, train.eval_every):
                yield self._report()
            while progress.step < train.steps:
                started = time.perf_counter()
                self._advance()
                progress.seconds += time.perf_counter() - started
                if train.checkpoint_every and self._due(train.checkpoint_every):
                    self._save()
                if self._due(train.log_every, train.eval_every):
                    yield self._report()
            self.saver.wait()
        finally:
            self._close()
            self.saver.close()

    def _due(self, *intervals: int) -> bool:
        """Whether something done every so many steps, and after the last, is done now."""
        step = self.progress.step
        return step == self.train.steps or any(every and step % every == 0 for every in intervals)

    def _set_rate(self) -> None:
        """Of the step that is about to be taken."""
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * rate(self.progress.step, self.train)

    def _finite(self, loss: Tensor, norm: Tensor, network: nn.Module, forward: Callable[[], object]) -> float:
        """The step's loss as a number, its gradient's length noted.

        Args:
            forward: repeats the forward pass of the step.

        Raises:
            Diverged: one of them is not finite; it says where the first worker that can tell found that.
        """
        progress = self.progress
        found, progress.gradient_norm = torch.stack((loss.float(), norm.float())).tolist()  # waits for the device
        if not math.isfinite(found + progress.gradient_norm):
            places = self.workers.all(first_bad(network, forward))
            raise Diverged(progress.step + 1, next((place for place in places if place), "the loss"))
        return float(found)
