"""What a sweep decides: which trial is next, whether one goes on, and what became of it. Knows neither Ray nor MLflow.

Every decision is a function of the study and of the ledger, so a sweep whose driver was killed goes on as if it had
not been: cells are asked for again in the same order, the rung table is replayed, and what has ended does not run
again.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from analysis.names import DIVERGED, FAILED, FINISHED, PAUSED, RUNNING, STOPPED
from orchestrator.record import jsonl
from orchestrator.record.ledger import ENDED, RUNG, History, Ledger, Record, planned
from orchestrator.study.cells import Cell
from orchestrator.study.plan import Plan
from search_spaces.domains import Choices, same
from search_spaces.samplers import Sampler


class Supply:
    """The trials that are still to run, the arms taking turns, the seeds of a cell one after the other."""

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
        return (
            any(
                space.keys() == record.axes.keys()
                and all(
                    same(record.axes[axis]) in map(same, domain.values)
                    if isinstance(domain, Choices)
                    else domain.low <= record.axes[axis] <= domain.high
                    for axis, domain in space.items()
                )
                for space in self._study.resolved[record.arm].spaces
            )
            and self._study.cell(record.arm, record.axes).id == record.cell
        )

    def _add(self, cell: Cell) -> None:
        self._asked[cell.arm] += 1
        for seed in self._study.seeds:
            record = self._records.get(cell.trial_id(seed))
            if record is None:
                event = planned(cell.arm, cell.axes, cell.trial.with_seed(seed))
                self._new.append(event)
                record = self._records[cell.trial_id(seed)] = Record.of(event)
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


def _in_turns(cells: Iterable[Cell]) -> Iterator[Cell]:
    """The arms' first cells, then their second ones: a sweep cut short has treated its arms alike."""
    arms: dict[str, list[Cell]] = {}
    for cell in cells:
        arms.setdefault(cell.arm, []).append(cell)
    for row in zip_longest(*arms.values()):
        yield from (cell for cell in row if cell is not None)


def _ranked(record: Record, metric: str) -> float:
    return math.nan if record.state == DIVERGED else record.metrics.get(metric, math.nan)


class Sweep:
    """One attempt at a study: takes the events of its trials, writes them down, and says what follows."""

    def __init__(self, plan: Plan, history: History, attempt: int) -> None:
        self.study = plan.study
        self._records = history.trials
        self._supply = Supply(plan, history)
        self._attempt = attempt
        self._halving = plan.study.scheduler.build(plan.study.mode)
        for cell in plan.cells:
            self._halving.add(cell.arm, cell.id)
        for record in history.trials.values():  # what an open plan does not know: in the order they were asked for
            self._halving.add(record.arm, record.cell)
        self._halving.replay(history.rungs)
        self.total = plan.num_trials
        self.unlucky: list[Record] = []  # trials of this attempt that failed or diverged
        self.fault: OSError | None = None  # why the ledger could not be written

    def open(self, ledger: Ledger) -> None:
        """Write down what is planned. From here on the ledger follows every event."""
        self._ledger = ledger
        self._deadline = time.monotonic() + 3600 * (self.study.budget.hours or math.inf)
        self.pause_all("its driver was killed")
        self._write(self._supply.new())

    @property
    def members(self) -> list[Record]:
        """The study's trials that are known so far."""
        return self._supply.members

    @property
    def counts(self) -> Counter[str]:
        """How many of them are in each state."""
        return Counter(record.state for record in self.members)

    @property
    def done(self) -> int:
        """How many have ended."""
        counts = self.counts
        return sum(counts[state] for state in ENDED)

    @property
    def left(self) -> int:
        """How many trials are still to start."""
        return self._supply.left

    def rungs(self, record: Record) -> list[int]:
        """The steps at which the scheduler wants a trial's value."""
        return self.study.scheduler.rungs(record.steps)

    def next(self) -> Record | None:
        """The trial to start now; None: no more in this attempt."""
        if time.monotonic() > self._deadline:
            return None
        record = self._supply.next()
        if new := self._supply.new():
            self._write(new)
            for event in new:
                self._halving.add(event["arm"], event["cell"])
        return record

    def started(self, record: Record) -> None:
        self._note(RUNNING, record, attempt=self._attempt)

    def heard(self, record: Record, step: int, metrics: Mapping[str, float]) -> None:
        """Progress: not written down, for the spool has it."""
        record.step, record.heard = step, time.time()
        record.metrics |= metrics

    def goes_on(self, record: Record, step: int, value: float) -> bool:
        """Whether a trial goes on from a rung."""
        decision = self._halving.report(record.arm, record.cell, record.seed, step, value)
        self._write_rungs()
        return decision == "continue"

    def stopped(self, record: Record) -> None:
        self._note(STOPPED, record, cause=f"{self.study.scheduler.kind}: not among the best at step {record.step}")
        self._supply.ended(record)

    def finished(self, record: Record) -> None:
        self._note(FINISHED, record)
        self._supply.ended(record)

    def diverged(self, record: Record, cause: str) -> None:
        self._halving.report(record.arm, record.cell, record.seed, record.step, math.nan)
        self._write_rungs()
        self._note(DIVERGED, record, cause=cause)
        self.unlucky.append(record)
        self._supply.ended(record)

    def failed(self, record: Record, cause: str) -> None:
        self._note(FAILED, record, cause=cause)
        self.unlucky.append(record)

    def paused(self, record: Record, cause: str) -> None:
        """Its process is gone, its checkpoint is kept."""
        self._note(PAUSED, record, cause=cause)

    def pause_all(self, cause: str) -> None:
        """No trial runs now. Where the ledger cannot say so, the next driver will."""
        if self.fault:
            return
        for record in self._records.values():
            if record.state == RUNNING:
                self.paused(record, cause)

    def _write_rungs(self) -> None:
        if events := self._halving.events():
            self._write([{"event": RUNG, **event} for event in events])

    def _note(self, event: str, record: Record, **fields: Any) -> None:
        written = {"event": event, "trial": record.id, **fields}
        if event != RUNNING:
            written |= {"step": record.step, "metrics": jsonl.plain(record.metrics)}
        self._write([written])
        record.apply({"time": time.time(), **written})

    def _write(self, events: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._ledger.write_all(events)
        except OSError as fault:
            self.fault = fault
            raise
