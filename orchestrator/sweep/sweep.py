"""What a sweep decides: which trial is next, whether one goes on, and what became of it. Knows neither Ray nor MLflow.

Every decision is a function of the study and of the ledger, so a sweep whose driver was killed goes on as if it had
not been: cells are asked for again in the same order, the rung table is replayed, and what has ended does not run
again.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.names import DIVERGED, FAILED, FINISHED, PAUSED, RUNNING, STOPPED
from orchestrator.record import jsonl, spool
from orchestrator.record.ledger import (
    ENDED,
    FAILURE,
    PREEMPTION,
    RUNG,
    WAIT,
    History,
    Ledger,
    Record,
    apply_exploits,
)
from orchestrator.study.plan import Plan
from orchestrator.sweep.generations import Generations
from orchestrator.sweep.supply import Supply


class Sweep:
    """One attempt at a study: takes the events of its trials, writes them down, and says what follows."""

    def __init__(self, plan: Plan, history: History, attempt: int) -> None:
        self.study = plan.study
        self._trials = history.folder / "trials"
        self._records = history.trials
        self._supply = Supply(plan, history)
        self.attempt = attempt
        self._halving = plan.study.scheduler.build(plan.study.mode)
        for cell in plan.cells:
            self._halving.add(cell.arm, cell.id)
        for record in history.trials.values():  # what an open plan does not know: in the order they were asked for
            self._halving.add(record.arm, record.cell)
        self._halving.replay(rung for rung in history.rungs if rung["decision"] != WAIT)
        self._generations = Generations(plan.study, self._supply.members, history)
        for record in list(self._supply.members):
            if self._generations.waiting(record):
                self._supply.hold(record)
        self.unlucky: list[Record] = []  # trials of this attempt that failed or diverged
        self.fault: OSError | None = None  # why the ledger could not be written

    def open(self, ledger: Ledger) -> None:
        """Write down what is planned. From here on the ledger follows every event."""
        self._ledger = ledger
        self._deadline = time.monotonic() + 3600 * (self.study.budget.hours or math.inf)
        self._take_over()
        self._write(self._supply.new())
        for generation in self._generations.unfinished():
            self._generations.carry_out(generation, self._trials)
        self._compare()

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
    def total(self) -> int:
        """How many trials there are in all; where first seeds race, at most."""
        return len(self.members) + self._supply.unplanned

    @property
    def left(self) -> int:
        """How many trials are still to start; where first seeds race, at most."""
        return self._supply.left

    def rungs(self, record: Record) -> list[int]:
        """The steps at which the scheduler wants a trial's value."""
        return self.study.scheduler.rungs(record.steps) if self._on_rungs(record) else []

    def pause_at(self, record: Record) -> int:
        """The step after which it is to end its process and wait for others; 0: none."""
        return self._generations.pause_at(record)

    def _on_rungs(self, record: Record) -> bool:
        """All are, but for the seeds of a cell whose first one has won its race."""
        return not self.study.scheduler.races or self._supply.races(record)

    def next(self) -> Record | None:
        """The trial to start now; None: no more in this attempt."""
        if time.monotonic() > self._deadline:
            return None
        record = self._supply.next()
        self._write_new()
        return record

    @property
    def waits(self) -> bool:
        """Whether `next` may give more in this attempt, although it gave none now."""
        return self._supply.waits and time.monotonic() <= self._deadline

    def started(self, record: Record) -> None:
        self._note(RUNNING, record, attempt=self.attempt)

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
        self._end(STOPPED, record, cause=f"{self.study.scheduler.kind}: not among the best at step {record.step}")

    def finished(self, record: Record) -> None:
        self._end(FINISHED, record)

    def diverged(self, record: Record, cause: str) -> None:
        if self._on_rungs(record):
            self._halving.report(record.arm, record.cell, record.seed, record.step, math.nan)
            self._write_rungs()
        self._end(DIVERGED, record, cause=cause)
        self.unlucky.append(record)

    def _end(self, event: str, record: Record, **fields: Any) -> None:
        self._note(event, record, **fields)
        self._supply.ended(record)
        self._write_new()
        self._compare()

    def reached(self, record: Record, value: float) -> None:
        """A trial came to the step at which it waits for its population."""
        self._write([self._generations.reached(record, value)])
        self.paused(record, f"waits at step {record.step} for its population")
        self._supply.hold(record)
        self._compare()

    def _compare(self) -> None:
        """Let populations that are complete go on, the worst of them from a better one's checkpoint."""
        for generation, members in self._generations.due(self._trials):
            self._write([generation])
            apply_exploits(generation, self._records)
            self._generations.carry_out(generation, self._trials)
            for record in members:
                self._supply.release(record)

    def fell(self, record: Record, cause: str, fault: str) -> None:
        """A trial's process ended before the trial did: it is tried again, while its budget of such faults lasts."""
        budget = {FAILURE: self.study.budget.failures, PREEMPTION: self.study.budget.preemptions}
        if record.faults[fault] < budget[fault]:
            self._note(PAUSED, record, cause=f"{cause}; tried again", fault=fault)
            self._supply.again(record)
        else:
            self.failed(record, cause)

    def failed(self, record: Record, cause: str) -> None:
        self._note(FAILED, record, cause=cause)
        self._supply.gave_up(record)
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

    def _write_new(self) -> None:
        """Write down what was planned since, before it starts."""
        if new := self._supply.new():
            self._write(new)
            for event in new:
                self._halving.add(event["arm"], event["cell"])

    def _take_over(self) -> None:
        """Trials that ran when their driver was killed: nobody wrote down when they ended."""
        for record in self._records.values():
            if record.state == RUNNING:
                until = spool.last_written(self._trials / record.id)
                self._note(PAUSED, record, cause="its driver was killed", until=until)

    def check(self) -> None:
        """Raise OSError where another driver has taken the study over."""
        try:
            self._ledger.check()
        except OSError as fault:
            self.fault = fault
            raise

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
