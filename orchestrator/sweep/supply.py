"""Which trials of a study are still to run, and in which order.

The arms take turns, so that a sweep cut short has treated them alike; the seeds of a cell stand together. Where a
sampler learns from results (optuna), it is rebuilt from what the ledger says was asked and found.

Where first seeds race, a cell is its first seed until that one has finished, and the other seeds queue up then. The
first is the one that was planned first, by the ledger: seeds that are added later never race again.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from analysis.names import DIVERGED, FINISHED
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
        self._held: dict[str, Record] = {}  # trials that wait for others
        self._out: set[str] = set()  # trials that were given, and did not come back yet
        self._samplers: dict[str, Sampler] = {}
        self._turns: deque[str] = deque()  # arms that may be asked for more
        self._cells = getattr(plan.study.sampler, "cells", 0)  # of every arm
        self._asked: Counter[str] = Counter()  # cells of every arm so far
        self._races = plan.study.scheduler.races
        self._first: dict[str, Record] = {}  # cell -> its trial that was planned first
        for record in history.trials.values():
            self._first.setdefault(record.cell, record)
        self._racing: set[str] = set()  # first trials whose cell may get its other seeds in this attempt
        if plan.open:
            for arm in plan.study.resolved:
                self._take_up(arm)
        else:
            for cell in _in_turns(plan.cells):
                self._add(cell)
        if self._races:  # as they queued up before: first seeds, then the others as theirs finished
            self._queue = deque(sorted(self._queue, key=self._finish_of_first))

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
        if not self._races:
            self._plan(cell, self._study.seeds)
            return
        first = self._first.get(cell.id)
        self._plan(cell, [first.seed if first else self._study.seeds[0]])
        first = self._first[cell.id]
        if first.state == FINISHED:
            self._plan(cell, self._others(first))
        elif first.state not in ENDED:
            self._racing.add(first.id)

    def _plan(self, cell: Cell, seeds: Iterable[int]) -> None:
        for seed in seeds:
            record = self._records.get(cell.trial_id(seed))
            if record is None:
                event = _planned(cell, seed)
                self._new.append(event)
                record = self._records[event["trial"]] = Record.of(event)
                self._first.setdefault(cell.id, record)
            self.members.append(record)
            if record.state not in ENDED:
                self._queue.append(record)

    def _others(self, first: Record) -> list[int]:
        return [seed for seed in self._study.seeds if seed != first.seed]

    def _finish_of_first(self, record: Record) -> float:
        """When the first seed of another's cell finished; 0 for a first one."""
        first = self._first[record.cell]
        return 0.0 if first is record else first.ended

    def races(self, record: Record) -> bool:
        """Whether this is the trial that its cell's other seeds wait for."""
        return self._races and self._first[record.cell] is record

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
        if not self._queue:
            return None
        record = self._queue.popleft()
        self._out.add(record.id)
        return record

    def again(self, record: Record) -> None:
        """Give a trial that came back once more, before all others."""
        self._out.discard(record.id)
        self._queue.appendleft(record)

    @property
    def left(self) -> int:
        """How many trials `next` will still give, or fewer where a sampler finds no more or first seeds are stopped."""
        return len(self._queue) + len(self._held) + self.unplanned

    @property
    def unplanned(self) -> int:
        """Those of them that are no `members` yet."""
        to_ask = sum(max(0, self._cells - self._asked[arm]) for arm in self._turns)
        replicas = sum(len(self._others(self._records[trial])) for trial in self._racing)
        return to_ask * len(self._study.seeds) + replicas

    @property
    def waits(self) -> bool:
        """Whether there may be more to run once what runs now has ended."""
        return bool(self._out)

    def hold(self, record: Record) -> None:
        """Keep back a trial that came back, or did not start, until `release`."""
        self._out.discard(record.id)
        self._held[record.id] = record
        if record in self._queue:
            self._queue.remove(record)

    def release(self, record: Record) -> None:
        self._queue.append(self._held.pop(record.id))

    def value(self, cell: Cell) -> float | None:
        """The mean over a cell's seeds of the study's metric, once all have ended; NaN where one diverged.

        Of a cell that lost its race, its first seed's.
        """
        seeds = self._study.seeds
        if self._races and (first := self._first[cell.id]).state != FINISHED:
            seeds = (first.seed,)
        records = [self._records.get(cell.trial_id(seed)) for seed in seeds]
        if any(record is None or record.state not in ENDED for record in records):
            return None
        values = [_ranked(record, self._study.metric) for record in records if record is not None]
        return math.fsum(values) / len(values)

    def gave_up(self, record: Record) -> None:
        """A trial failed: it is run again by the next start, and its cell's other seeds wait for that."""
        self._racing.discard(record.id)
        self._out.discard(record.id)

    def ended(self, record: Record) -> None:
        """Plan a cell's other seeds, where its first one finished; tell the sampler, where this was the last one."""
        self._out.discard(record.id)
        if record.id in self._racing:
            self._racing.discard(record.id)
            if record.state == FINISHED:
                self._plan(self._study.cell(record.arm, record.axes), self._others(record))
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
