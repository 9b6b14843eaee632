"""The one process that writes to MLflow: it reads a study's ledger and spools, and sends what was not sent yet.

`python -m orchestrator.record.uploader HOME STUDY`, started by the sweep's driver. A tracking server that is dead, slow
or answers 500 is asked again later; the sweep never waits for it. The driver writes "finish" to our standard input once
the sweep is over; where that input closes without a word the driver was killed, and we end with it.

What was sent is kept in `uploaded.json`, per study and per trial. Where a request may or may not have arrived, the run
is looked up in MLflow before anything more is sent.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis import names
from analysis.store import redacted, sqlite_file
from orchestrator.errors import InputError
from orchestrator.record import environment, spool
from orchestrator.record.ledger import ENDED, PLANNED, History, Record
from orchestrator.record.spool import ERROR_FILE
from orchestrator.record.tracking import (
    BATCH,
    STATUS,
    Run,
    Runs,
    axis_points,
    non_finite,
    params,
    points,
    trial_tags,
    uri_of,
)

UPLOADED_FILE = "uploaded.json"
PERIOD = 1.0  # seconds between two looks at the study
LONGEST_WAIT = 30.0  # seconds before a tracking server that failed is asked again
LAST_TRIES = 3  # after the sweep has ended, without a run more that is up to date
NICE = 10  # the sweep goes first
TRIAL_FILES = (
    names.SPEC_FILE,
    names.TOPOLOGY_FILE,
    names.CHANGES_FILE,
    names.DEPTHS_FILE,
    names.SAMPLES_FILE,
    names.ENVIRONMENT_FILE,
    ERROR_FILE,
)
REFUSED = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "PERMISSION_DENIED"}  # asking again would not help
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
# We ask again ourselves, after a look at what arrived; MLflow would create a run twice whose first answer got lost.
ASK_ONCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}


def unsent(home: Path, study: str, history: History) -> list[str]:
    """The trials whose run in MLflow is not what the ledger says. Needs no MLflow."""
    folder = home / "studies" / study
    known = _read_json(folder / UPLOADED_FILE).get("store") == redacted(uri_of(home)) and _store_exists(home)
    started = [record for record in history.trials.values() if record.state != PLANNED]
    return [
        record.id
        for record in started
        if not known or _read_json(folder / "trials" / record.id / UPLOADED_FILE).get("state") != record.state
    ]


def _store_exists(home: Path) -> bool:
    file = sqlite_file(uri_of(home))
    return file is None or file.exists()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):  # never written, or its writer was killed
        return {}
    return found if isinstance(found, dict) else {}


class Upload:
    """What one trial's run has of it."""

    def __init__(self, folder: Path, sure: bool) -> None:
        self.folder = folder
        self.tail = spool.tail(folder)
        self.run: Run | None = None
        self.step = -1  # the last one sent
        self.state = ""  # the last one sent
        self.sure = sure  # that all this is what MLflow has

    def load(self, run: Run, believe: bool) -> None:
        """Take up a run. What was kept of one that was closed is true; any other may have got more."""
        self.run, self.sure = run, False
        kept = _read_json(self.folder / UPLOADED_FILE)
        ended = kept.get("state") in ENDED and kept.get("run") == run.id and isinstance(kept.get("step"), int)
        if believe and ended:
            self.step, self.state, self.sure = kept["step"], kept["state"], True

    def sent(self, run: Run, step: int, state: str) -> None:
        self.run, self.step, self.state, self.sure = run, step, state, True
        (self.folder / UPLOADED_FILE).write_text(json.dumps({"run": run.id, "step": step, "state": state}))


class Uploader:
    """Brings MLflow's runs of one study up to date, each time `look` is called."""

    def __init__(self, home: Path, study: str) -> None:
        self._home, self._study = home, study
        self._folder = home / "studies" / study
        self._history = History(self._folder)
        self._open = set(unsent(home, study, self._history))
        self._uploads: dict[str, Upload] = {}
        self._runs: Runs | None = None
        self._attempt = 0  # of the study, when the store was opened
        self._refused: dict[str, str] = {}  # trial -> why it cannot be sent

    def look(self) -> None:
        """Send what is new. Raises what MLflow raises; what was sent until then is not sent again."""
        self._open.update(self._history.update())
        if self._open and (self._runs is None or self._attempt != self._history.attempts):
            self._runs = self._connect()
        if self._runs is None:
            return
        for trial in sorted(self._open):
            record = self._history.trials[trial]
            upload = self._uploads.get(trial) or Upload(self._folder / "trials" / trial, sure=True)
            self._uploads[trial] = Upload(upload.folder, sure=False)  # until this one has gone well
            try:
                self._send(self._runs, record, upload)
            except _failures() as error:
                if not _lasting(error, upload.folder):
                    raise
                self._refuse(trial, f"trial {trial}: {_reason(error)}")
            else:
                self._uploads[trial] = upload
                self._refused.pop(trial, None)
            if record.state != names.RUNNING:
                self._open.discard(trial)

    @property
    def behind(self) -> int:
        """How many trials have something to send."""
        return len(self._open)

    @property
    def refused(self) -> str:
        """Why a trial cannot be sent, and how many more there are; empty where all can."""
        more = len(self._refused) - 1
        first = next(iter(self._refused.values()), "")
        return f"{first} (and {more} more, see uploader.log)" if more > 0 else first

    def _refuse(self, trial: str, why: str) -> None:
        if self._refused.get(trial) != why:
            print(redacted(why), file=sys.stderr, flush=True)
        self._refused[trial] = why

    def close(self) -> None:
        """Close the study's own run."""
        if self._runs is not None:
            over = all(record.state in ENDED for record in self._history.trials.values())
            self._runs.set_status(self._runs.parent, "FINISHED" if over else "KILLED", time.time())

    def _connect(self) -> Runs:
        """Open the store, created or upgraded where needed: no other process does that, so there is no race."""
        runs = Runs(uri_of(self._home), self._study, self._history.study, self._home / "artifacts")
        runs.attach(runs.parent, _existing(self._folder, names.STUDY_FILE, names.ARMS_FILE))
        if self._runs is None:
            self._load(runs)
        self._attempt = self._history.attempts
        return runs

    def _load(self, runs: Runs) -> None:
        """Take up what an earlier uploader did. A trial that has no run by now gets it from this one."""
        mine = {"store": redacted(uri_of(self._home)), "run": runs.parent.id}
        here = _read_json(self._folder / UPLOADED_FILE) == mine
        for trial, run in runs.find_all().items():
            self._uploads[trial] = Upload(self._folder / "trials" / trial, sure=True)
            self._uploads[trial].load(run, believe=here)
        for trial in () if here else self._history.trials:  # what they say is about another store
            (self._folder / "trials" / trial / UPLOADED_FILE).unlink(missing_ok=True)
        (self._folder / UPLOADED_FILE).write_text(json.dumps(mine))

    def _send(self, runs: Runs, record: Record, upload: Upload) -> None:
        over = record.state != names.RUNNING
        rows = spool.rows(upload.folder) if over else upload.tail.read()
        run, step = upload.run, upload.step
        if not upload.sure:
            run = run or runs.find(record.id)
            step = runs.last_step(run) if run else -1
        rows = [row for row in rows if row["step"] > step]
        if not rows and record.state == upload.state:
            return
        tags = {names.STATE: record.state, names.CAUSE: record.cause}
        if record.changes and len(changes := json.dumps(record.changes)) <= names.SPEC_LIMIT:
            tags[names.CHANGES] = changes
        if over:
            tags |= self._last_tags(upload.folder)
        run = run or runs.create(record, trial_tags(self._study, record) | tags)
        runs.set_status(run, "RUNNING")  # so that no run changes while MLflow says that it has ended
        first = [] if upload.state else [point for point in axis_points(record) if point.key not in run.metrics]
        for batch in _batches(rows):
            runs.write(run, [*first, *points(batch)], {} if upload.state else params(record), tags)
            first = []
        if over:
            runs.attach(run, _existing(upload.folder, *TRIAL_FILES))
            runs.set_status(run, STATUS[record.state], record.ended)
        upload.sent(run, rows[-1]["step"] if rows else step, record.state)

    def _last_tags(self, folder: Path) -> dict[str, str]:
        """What is known of a trial once it has run."""
        try:
            tags = environment.tags(_read_json(folder / names.ENVIRONMENT_FILE))
        except (KeyError, TypeError):  # none where the trial had no row
            tags = {}
        if found := non_finite(spool.rows(folder)):
            tags[names.NON_FINITE] = json.dumps(found)[: names.SPEC_LIMIT]
        return tags


def _batches(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Whole rows, up to `BATCH` values at a time, so that a step arrives whole or not at all; at least one batch."""
    batch: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        if batch and size + len(row["metrics"]) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row["metrics"])
    yield batch


def _existing(folder: Path, *files: str) -> list[Path]:
    return [folder / name for name in files if (folder / name).exists()]


def main(home: Path, study: str) -> None:
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()} | ASK_ONCE)
    os.nice(NICE)
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    over = threading.Event()
    threading.Thread(target=_follow_driver, args=(over,), daemon=True).start()
    uploader = Uploader(home, study)
    error, failures = "", 0
    while True:
        last, behind = over.is_set(), uploader.behind
        try:
            uploader.look()
            if last:
                uploader.close()
            error, failures = "", 0
        except _failures() as fault:
            error, failures = _reason(fault), 1 if uploader.behind < behind else failures + 1
        if last and (not error or failures >= LAST_TRIES):
            break
        over.wait(PERIOD if not failures or last else min(PERIOD * 2**failures, LONGEST_WAIT))
    print(redacted(error or uploader.refused), flush=True)


def _follow_driver(over: threading.Event) -> None:
    """The driver says "finish", or its end of the pipe closes as it dies."""
    if sys.stdin.readline().strip() != "finish":
        os._exit(1)
    over.set()


def _failures() -> tuple[type[Exception], ...]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return MlflowException, SQLAlchemyError, OSError, InputError


def _lasting(error: Exception, folder: Path) -> bool:
    """Whether asking again would not help: a file in the trial's `folder` is damaged, or MLflow refuses it."""
    ours = isinstance(error, OSError) and str(error.filename or "").startswith(str(folder))
    return ours or isinstance(error, InputError) or getattr(error, "error_code", "") in REFUSED


def _reason(error: BaseException) -> str:
    """The first cause in one line: MLflow wraps "connection refused" four times."""
    if isinstance(error, InputError):
        return str(error)
    while cause := error.__cause__ or error.__context__:
        error = cause
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
