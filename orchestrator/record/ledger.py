"""What happened to every trial of a study: `ledger.jsonl`, one event a line, and all that `resume` and `status` read.

An event names its trial and what became of it; the last one decides the trial's state. Events are only ever appended,
each is on disk before the sweep goes on, and none needs Ray or MLflow to be read. A trial ends once: finished, stopped
by the scheduler, or diverged. A failed or paused one is run again by the next start, and so is one that was running
when its driver was killed.

Each event carries the number of the attempt whose driver wrote it. A driver that was suspended or cut off while another
took over is fenced three times: it checks its lease before it writes, it writes to a file that was replaced, and what
an earlier attempt says after a later one has begun is not read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.names import DIVERGED, FAILED, FINISHED, PAUSED, RUNNING, STOPPED
from orchestrator.record import jsonl

if TYPE_CHECKING:
    from orchestrator.record.lock import Lease

LEDGER_FILE = "ledger.jsonl"

# Events of a trial, which are its states.
PLANNED = "planned"
ENDED = (FINISHED, STOPPED, DIVERGED)
STATES = (PLANNED, RUNNING, PAUSED, *ENDED, FAILED)

# Events of the study.
ATTEMPT = "attempt"  # a driver took over
RUNG = "rung"  # a cell's result at a rung, which the scheduler decides on
WAIT = "wait"  # the decision at a rung where a trial waits for its population
GENERATION = "generation"  # a population was compared: which members go on from which other's checkpoint, and how

# Why a trial's process ended before the trial did: each kind has a budget of its own.
FAILURE = "failure"  # it raised, or said nothing for too long
PREEMPTION = "preemption"  # it, or its machine, was lost

# What an event must have. Readers ignore events and fields that they do not know.
NUMBER = (int, float)
CHANGED: jsonl.Fields = {"trial": str, "time": NUMBER}
FIELDS: Mapping[str, jsonl.Fields] = {
    **dict.fromkeys(STATES, CHANGED),
    PLANNED: {"trial": str, "cell": str, "arm": str, "axes": dict, "seed": int, "steps": int, "spec": dict},
    RUNNING: {**CHANGED, "attempt": int},
    ATTEMPT: {"attempt": int, "study": dict, "time": NUMBER},
    RUNG: {"arm": str, "cell": str, "seed": int, "rung": NUMBER, "value": (*NUMBER, str), "decision": str},
    GENERATION: {"rung": int, "members": list, "exploits": list},
}
EXPLOIT: jsonl.Fields = {"trial": str, "donor": str, "values": dict}
OPTIONAL: jsonl.Fields = {"step": int, "metrics": dict, "cause": str, "fault": str, "until": NUMBER}


@dataclass
class Record:
    """One trial as the ledger has it."""

    id: str
    cell: str
    arm: str
    axes: dict[str, Any]
    seed: int
    spec: dict[str, Any]
    steps: int  # of the last row, where it runs to its end
    state: str = PLANNED
    attempt: int = 0  # of the study, when this trial last started
    step: int = 0  # of the last row that the driver heard of
    metrics: dict[str, float] = field(default_factory=dict)  # the last value of each
    cause: str = ""
    faults: Counter[str] = field(default_factory=Counter)  # FAILURE and PREEMPTION, since it last was given up
    started: float = 0.0  # seconds since the epoch
    ended: float = 0.0
    heard: float = 0.0  # when the driver last heard of it
    began: float = 0.0  # its last start
    seconds: float = 0.0  # that it ran, until then
    # What changed on the way: after which step, whose weights it took, and its values from then on. `axes` and `spec`
    # are what it began with.
    changes: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Record:
        """The trial of a planned event."""
        fields = {key: event[key] for key in ("cell", "arm", "axes", "seed", "spec", "steps")}
        return cls(id=event["trial"], **fields)

    @property
    def values(self) -> dict[str, Any]:
        """Of the axes that changed, their values now."""
        return self.changes[-1]["values"] if self.changes else {}

    def apply(self, event: Mapping[str, Any]) -> None:
        self.state = event["event"]
        if self.state == RUNNING:
            self.attempt, self.heard, self.began = event["attempt"], event["time"], event["time"]
            self.started = self.started or event["time"]
        else:
            self.ended = event["time"]
            self.seconds += max(0.0, event.get("until", event["time"]) - self.began) if self.began else 0.0
            self.began = 0.0
            self.faults.update([event["fault"]] if "fault" in event else [])
            if self.state == FAILED:
                self.faults.clear()
        self.step = event.get("step", self.step)
        self.metrics |= jsonl.numbers(event.get("metrics", {}))
        self.cause = event.get("cause", "")


def apply_exploits(generation: Mapping[str, Any], trials: Mapping[str, Record]) -> None:
    for exploit in generation["exploits"]:
        if exploit["trial"] not in trials or exploit["donor"] not in trials:
            raise ValueError(f"no line above plans {exploit['trial']!r} and {exploit['donor']!r}")
        change = {"step": generation["rung"], "donor": exploit["donor"], "values": exploit["values"]}
        trials[exploit["trial"]].changes.append(change)


class History:
    """The ledger read into states; `update` reads what was added since."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # of the study
        self._tail = jsonl.Tail(folder / LEDGER_FILE, self._take)
        self._forget()
        self.update()

    def _forget(self) -> None:
        self.trials: dict[str, Record] = {}  # in the order they were planned
        self.rungs: list[dict[str, Any]] = []  # events of search_spaces.schedulers, in their order
        self.generations: list[dict[str, Any]] = []
        self.attempts = 0  # the number of the last one
        self.study: dict[str, str] = {}  # what the study's own run is tagged with
        self.began = 0.0  # the last attempt, in seconds since the epoch
        self.before = 0  # steps that were done by then

    def update(self) -> list[str]:
        """Read on; the ids of the trials that changed, each once.

        Raises:
            InputError: a line is no event of this study: the ledger was changed by another hand.
        """
        events = self._tail.read()
        changed = (event["trial"] for event in events if event["event"] in STATES and event["event"] != PLANNED)
        return [trial for trial in dict.fromkeys(changed) if trial in self.trials]

    def _take(self, event: dict[str, Any]) -> None:
        if not self._tail.lines:
            self._forget()  # the next attempt's file begins with the same lines
        jsonl.expect(event, {"event": str})
        if "attempt" in event:
            jsonl.expect(event, {"attempt": int})
        if event.get("attempt", self.attempts) < self.attempts:
            return
        name = event["event"]
        jsonl.expect(event, FIELDS.get(name, {}))
        if name == PLANNED:
            jsonl.expect(event["spec"], {"workload": str})
            self.trials.setdefault(event["trial"], Record.of(event))
        elif name == ATTEMPT:
            self.attempts, self.study = event["attempt"], event["study"]
            self.began = event["time"]
            self.before = sum(record.step for record in self.trials.values())
        elif name == RUNG:
            float(event["value"])
            self.rungs.append(event)
        elif name == GENERATION:
            for exploit in event["exploits"]:
                jsonl.expect(exploit, EXPLOIT)
            self.generations.append(event)
            apply_exploits(event, self.trials)
        elif name in STATES:
            jsonl.expect(event, {field: kind for field, kind in OPTIONAL.items() if field in event})
            if event["trial"] not in self.trials:
                raise ValueError(f"no line above plans trial {event['trial']!r}")
            self.trials[event["trial"]].apply(event)


class Ledger:
    """The one writer of a study's ledger: whoever holds its lease. Each attempt goes on in a copy of its own."""

    def __init__(self, folder: Path, lease: Lease | None = None) -> None:
        self.folder = folder
        self._lease = lease
        path = folder / LEDGER_FILE
        if lease and path.exists():
            jsonl.replace(path, path.read_bytes())
        self._writer = jsonl.Writer(path, durable=True)

    def write(self, event: str, **fields: Any) -> None:
        self.write_all([{"event": event, **fields}])

    def write_all(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Many events with one write to disk. Raises OSError: it is full, or this driver may write no more."""
        self.check()
        stamp: dict[str, Any] = {"time": round(time.time(), 3)}
        if self._lease:
            stamp["attempt"] = self._lease.number
        self._writer.append({**stamp, **event} for event in events)

    def check(self) -> None:
        """Raise OSError where this driver may write no more."""
        if self._lease:
            self._lease.check()

    def close(self) -> None:
        self._writer.close()
