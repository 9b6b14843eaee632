"""Which trials of a study are still to run, and in which order.

The arms take turns, so that a sweep cut short has treated them alike; the seeds of a cell stand together. Where a
sampler learns from results (optuna), it is rebuilt from what the ledger says was asked and found.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from analysis.names import DIVERGED
from orchestrator.record.ledger import ENDED, PLANNED, History, Record
from orchestrator.study.cells import Cell
from orchestrator.study.plan import Plan
from search_spaces.domains import Choices, Domain, same
from search_spaces.samplers import Sampler


class Supply:
    """The trials of a study that have not ended."""

    def __init__(self, plan: Plan, history: History) -> None:
        self._study = plan.study
        self._records = history.trials
        self._new: list[dict[str, Any]] = []  # planned events that are not in the ledger yet
        self.members: list[Record] = []  # every trial of the study as it is now; the ledger may have others
        self._queue: deque[Record] = deque()
        self._samplers: dict[str, Sampler] = {}
        self._turns: deque[str] = deque()  # arms that may be asked for more
        self._cells = getattr(plan.study.sampler, "cells", 0)  # of every arm
        self._asked: Counter[str] = Counter()  # cells of every arm so far
        if plan.open:
            for arm in plan.study.resolved:
                self._take_up(arm)
        else:
            for cell in _in_turns(plan.cells):
                self._add(cell)

    def _take_up(self, arm: str) -> None:
        """An arm whose sampler learns from results: rebuild it from what the ledger says was asked and found."""
        sampler = self._samplers[arm] = self._study.sampler_of(arm)
        self._turns.append(arm)
        for cell in self._asked_before(arm):
            sampler.replay([(cell.axes, self.value(cell))])
            self._add(cell)

    def _asked_before(self, arm: str) -> Iterator[Cell]:
        seen = set()
        for record in list(self._records.values()):
            if record.arm == arm and record.cell not in seen and self._fits(record):
                seen.add(record.cell)
                yield self._study.cell(arm, record.axes)

    def _fits(self, record: Record) -> bool:
        """Whether the study, which may have been edited since, still has this cell."""
        spaces = self._study.resolved[record.arm].spaces
        here = any(
            space.keys() == record.axes.keys() and all(_within(space[axis], record.axes[axis]) for axis in space)
            for space in spaces
        )
        return here and self._study.cell(record.arm, record.axes).id == record.cell

    def _add(self, cell: Cell) -> None:
        self._asked[cell.arm] += 1
        for seed in self._study.seeds:
            record = self._records.get(cell.trial_id(seed))
            if record is None:
                event = _planned(cell, seed)
                self._new.append(event)
                record = self._records[event["trial"]] = Record.of(event)
            self.members.append(record)
            if record.state not in ENDED:
                self._queue.append(record)

    def new(self) -> list[dict[str, Any]]:
        """Planned events since the last call, to be written down before these trials start."""
        events, self._new = self._new, []
        return events

    def next(self) -> Record | None:
        """The next trial; None: there are no more."""
        while not self._queue and self._turns:
            arm = self._turns.popleft()
            axes = self._samplers[arm].ask()
            if axes is not None:
                self._turns.append(arm)
                self._add(self._study.cell(arm, axes))
        return self._queue.popleft() if self._queue else None

    def again(self, record: Record) -> None:
        """Give a trial once more, before all others."""
        self._queue.appendleft(record)

    @property
    def left(self) -> int:
        """How many trials `next` will still give, or fewer where a sampler finds no more."""
        to_ask = sum(max(0, self._cells - self._asked[arm]) for arm in self._turns)
        return len(self._queue) + to_ask * len(self._study.seeds)

    def value(self, cell: Cell) -> float | None:
        """The mean over a cell's seeds of the study's metric, once all have ended; NaN where one diverged."""
        records = [self._records.get(cell.trial_id(seed)) for seed in self._study.seeds]
        if any(record is None or record.state not in ENDED for record in records):
            return None
        values = [_ranked(record, self._study.metric) for record in records if record is not None]
        return math.fsum(values) / len(values)

    def ended(self, record: Record) -> None:
        """Tell the sampler, where this was the last of a cell's seeds."""
        if sampler := self._samplers.get(record.arm):
            value = self.value(self._study.cell(record.arm, record.axes))
            if value is not None:
                sampler.tell(record.axes, value)


def _planned(cell: Cell, seed: int) -> dict[str, Any]:
    """The event that makes a trial part of a study."""
    return {
        "event": PLANNED,
        "trial": cell.trial_id(seed),
        "cell": cell.id,
        "arm": cell.arm,
        "axes": cell.axes,
        "seed": seed,
        "steps": cell.trial.total_steps,
        "spec": cell.trial.with_seed(seed).model_dump(mode="json"),
    }


def _in_turns(cells: Iterable[Cell]) -> Iterator[Cell]:
    """The arms' first cells, then their second ones: a sweep cut short has treated its arms alike."""
    arms: dict[str, list[Cell]] = {}
    for cell in cells:
        arms.setdefault(cell.arm, []).append(cell)
    for row in zip_longest(*arms.values()):
        yield from (cell for cell in row if cell is not None)


def _within(domain: Domain, value: Any) -> bool:
    if isinstance(domain, Choices):
        return same(value) in map(same, domain.values)
    return bool(domain.low <= value <= domain.high)


def _ranked(record: Record, metric: str) -> float:
    return math.nan if record.state == DIVERGED else record.metrics.get(metric, math.nan)
