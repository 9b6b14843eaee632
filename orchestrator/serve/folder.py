"""A study's folder as a tracking store: what its ledger and spools say by now, in the words in which MLflow has it.

So the pages rank, average and draw by the same code as `ancre query` and `ancre report`, while a study runs and where
there is no MLflow. Each look reads only what was added since.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import names
from analysis.store import Points, RawRun
from orchestrator.record import jsonl, spool
from orchestrator.record.ledger import PLANNED, History, Record
from orchestrator.record.tracking import trial_tags


class Rows:
    """The rows of one trial so far, by step."""

    def __init__(self, folder: Path) -> None:
        self._tail = spool.tail(folder)
        self.rows: list[dict[str, Any]] = []

    def update(self) -> list[dict[str, Any]]:
        """Read on; the new rows. A trial that goes on from a checkpoint takes back those behind it."""
        new = self._tail.read()
        for row in new:
            while self.rows and self.rows[-1]["step"] >= row["step"]:
                self.rows.pop()
            self.rows.append(row)
        return new

    def points(self, metric: str) -> Points:
        """The finite values of a metric."""
        found = ((row["step"], row["metrics"].get(metric)) for row in self.rows)
        return [(step, value) for step, value in found if isinstance(value, int | float)]


class StudyFolder:
    """One study, as an `analysis.store.Backend` that `update` brings up to date."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = str(folder)
        self.ledger = History(folder)
        self.version = 0  # grows with each change
        self._size = (0, 0)  # of the ledger at the last look: attempts and trials
        self._rows: dict[str, Rows] = {}
        self._runs: dict[str, RawRun] = {}
        self._one = threading.Lock()  # thread at a time

    def update(self) -> None:
        """Read on.

        Raises:
            InputError: the ledger or a spool was changed by another hand.
        """
        with self._one:
            changed = self.ledger.update()
            size = self.ledger.attempts, len(self.ledger.trials)
            self.version += bool(changed or size != self._size)
            self._size = size
            for trial in changed:
                self._runs.pop(trial, None)
            for record in self.ledger.trials.values():
                if record.state == names.RUNNING:
                    self._read(record)

    @property
    def trials(self) -> list[Record]:
        with self._one:
            return list(self.ledger.trials.values())

    def _read(self, record: Record) -> Rows:
        """The rows of a trial by now. Of a running one, they are what its ledger hears of at its end."""
        rows = self._rows.setdefault(record.id, Rows(self.folder / "trials" / record.id))
        new = rows.update()
        if new and record.state == names.RUNNING:
            self.version += 1
            self._runs.pop(record.id, None)
            for row in new:
                record.step, record.heard = row["step"], row["time"]
                record.metrics |= jsonl.numbers(row["metrics"])
        return rows

    # --- analysis.store.Backend -----------------------------------------------------------------------------------

    def experiments(self) -> dict[str, str]:
        return {self.folder.name: self.folder.name}

    def runs(self, experiment: str) -> list[RawRun]:
        with self._one:
            started = [record for record in self.ledger.trials.values() if record.state != PLANNED]
            trials = [self._run(record) for record in sorted(started, key=lambda record: record.started)]
            own = _raw(experiment, self.ledger.began, None, self.folder, self.ledger.study, {})
            return [own, *trials] if self.ledger.study else trials

    def history(self, run_ids: Sequence[str], metric: str) -> dict[str, Points]:
        with self._one:
            found = {trial: self._read(self.ledger.trials[trial]).points(metric) for trial in run_ids}
        return {trial: points for trial, points in found.items() if points}

    def download(self, run_id: str, artifact: str) -> Path | None:
        """Nothing is elsewhere."""
        return None

    def _run(self, record: Record) -> RawRun:
        if record.id not in self._runs:
            tags = trial_tags(self.folder.name, record)
            tags |= {names.STATE: record.state, names.CAUSE: record.cause}
            if names.SPEC not in tags:  # too long for a tag
                tags[names.SPEC] = json.dumps(record.spec)
            place = self.folder / "trials" / record.id
            ended = None if record.state == names.RUNNING else record.ended
            self._runs[record.id] = _raw(record.id, record.started, ended, place, tags, record.metrics)
        return self._runs[record.id]


def _raw(
    id: str,
    started: float,
    ended: float | None,
    folder: Path,
    tags: Mapping[str, str],
    metrics: Mapping[str, float],
) -> RawRun:
    """A run whose artifacts are the files of its folder."""
    return RawRun(
        run_id=id,
        started=round(started * 1000),
        ended=None if ended is None else round(ended * 1000),
        artifact_uri=folder.absolute().as_uri(),
        tags=tags,
        metrics=dict(metrics),
    )
