"""What happened to every trial of a study: `ledger.jsonl`, one event a line, and all that `resume` and `status` read.

An event names its trial and what became of it; the last one decides the trial's state. Events are only ever appended,
each is on disk before the sweep goes on, and none needs Ray or MLflow to be read. A trial ends once: finished, stopped
by the scheduler, or diverged. A failed or paused one is run again by the next start, and so is one that was running
when its driver was killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.names import DIVERGED, FAILED, FINISHED, PAUSED, RUNNING, STOPPED
from orchestrator.record import jsonl

LEDGER_FILE = "ledger.jsonl"

# Events of a trial, which are its states.
PLANNED = "planned"
ENDED = (FINISHED, STOPPED, DIVERGED)
STATES = (PLANNED, RUNNING, PAUSED, *ENDED, FAILED)

# Events of the study.
ATTEMPT = "attempt"  # a driver took over
RUNG = "rung"  # a cell's result at a rung, which the scheduler decides on

# What an event must have. Readers ignore events and fields that they do not know.
NUMBER = (int, float)
CHANGED: jsonl.Fields = {"trial": str, "time": NUMBER}
FIELDS: Mapping[str, jsonl.Fields] = {
    **dict.fromkeys(STATES, CHANGED),
    PLANNED: {"trial": str, "cell": str, "arm": str, "axes": dict, "seed": int, "steps": int, "spec": dict},
    RUNNING: {**CHANGED, "attempt": int},
    ATTEMPT: {"attempt": int, "study": dict, "time": NUMBER},
    RUNG: {"arm": str, "cell": str, "seed": int, "rung": NUMBER, "value": (*NUMBER, str), "decision": str},
}
OPTIONAL: jsonl.Fields = {"step": int, "metrics": dict, "cause": str}


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
    started: float = 0.0  # seconds since the epoch
    ended: float = 0.0
    heard: float = 0.0  # when the driver last heard of it

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Record:
        """The trial of a planned event."""
        fields = {key: event[key] for key in ("cell", "arm", "axes", "seed", "spec", "steps")}
        return cls(id=event["trial"], **fields)

    def apply(self, event: Mapping[str, Any]) -> None:
        self.state = event["event"]
        if self.state == RUNNING:
            self.attempt, self.heard = event["attempt"], event["time"]
            self.started = self.started or event["time"]
        else:
            self.ended = event["time"]
        self.step = event.get("step", self.step)
        self.metrics |= jsonl.numbers(event.get("metrics", {}))
        self.cause = event.get("cause", "")


class History:
    """The ledger read into states; `update` reads what was added since."""

    def __init__(self, folder: Path) -> None:
        self._tail = jsonl.Tail(folder / LEDGER_FILE, self._take)
        self.trials: dict[str, Record] = {}  # in the order they were planned
        self.rungs: list[dict[str, Any]] = []  # events of search_spaces.schedulers, in their order
        self.attempts = 0
        self.study: dict[str, str] = {}  # what the study's own run is tagged with
        self.began = 0.0  # the last attempt, in seconds since the epoch
        self.before = 0  # steps that were done by then
        self.update()

    def update(self) -> list[str]:
        """Read on; the ids of the trials that changed, each once.

        Raises:
            InputError: a line is no event of this study: the ledger was changed by another hand.
        """
        events = self._tail.read()
        changed = (event["trial"] for event in events if event["event"] in STATES and event["event"] != PLANNED)
        return list(dict.fromkeys(changed))

    def _take(self, event: dict[str, Any]) -> None:
        jsonl.expect(event, {"event": str})
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
        elif name in STATES:
            jsonl.expect(event, {field: kind for field, kind in OPTIONAL.items() if field in event})
            if event["trial"] not in self.trials:
                raise ValueError(f"no line above plans trial {event['trial']!r}")
            self.trials[event["trial"]].apply(event)


class Ledger:
    """The one writer of a study's ledger. Whoever holds the study's lock may open it."""

    def __init__(self, folder: Path) -> None:
        self._writer = jsonl.Writer(folder / LEDGER_FILE, durable=True)

    def write(self, event: str, **fields: Any) -> None:
        self.write_all([{"event": event, **fields}])

    def write_all(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Many events with one write to disk."""
        now = round(time.time(), 3)
        self._writer.append({"time": now, **event} for event in events)

    def close(self) -> None:
        self._writer.close()
