"""`ancre logs`: what a trial or a study's driver said, from the home folder alone, and what it goes on to say."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.names import PAUSED, RUNNING
from analysis.store import redacted
from orchestrator.errors import InputError, did_you_mean
from orchestrator.record import lock, log, spool
from orchestrator.record.ledger import PLANNED, History, Record
from orchestrator.record.spool import ERROR_FILE, ROWS_FILE
from orchestrator.sweep.upload_process import LOG_FILE as UPLOADER_FILE

LOOK_EVERY = 0.5  # seconds
LARGEST = 2**22  # bytes at the end of a file that are read


def logs(home: Path, name: str, lines: int, follow: bool) -> Iterator[str]:
    """Lines for the user.

    Raises:
        InputError: no study and no trial has this name, or several trials begin with it.
    """
    studies = {path.name: path for path in sorted((home / "studies").glob("*")) if path.is_dir()}
    if study := studies.get(name):
        files = [study / log.DRIVER_FILE, study / UPLOADER_FILE]
        return _printed(lambda: files, lines, follow, lambda: lock.owner(study) is not None)
    return _of_trial(_trial(home, studies, name), lines, follow)


def _trial(home: Path, studies: dict[str, Path], name: str) -> Path:
    """The folder of the one trial whose name begins so; of one study, as STUDY/TRIAL."""
    study, _, start = name.rpartition("/")
    studies = {key: path for key, path in studies.items() if study in ("", key)}
    trials = [trial for study in studies.values() for trial in sorted((study / "trials").glob("*"))]
    found = [trial for trial in trials if start and trial.name.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(f"{trial.parent.parent.name}/{trial.name}" for trial in found[:5])
        raise InputError(f"{len(found)} trials begin with {start!r} ({some}{', ..' if len(found) > 5 else ''})")
    if start and any(trial.startswith(start) for study in studies.values() for trial in History(study).trials):
        raise InputError(f"trial {name!r} has not been started yet; `ancre status STUDY` lists them")
    raise InputError(f"no trial begins with {name!r} and no study is called so in {home}{did_you_mean(name, studies)}")


def _of_trial(trial: Path, lines: int, follow: bool) -> Iterator[str]:
    study = trial.parent.parent
    history = History(study)
    record = history.trials.get(trial.name)
    if record is None:
        raise InputError(f"{trial}: the ledger of {study.name} has no such trial")
    yield f"{study.name} {record.arm} seed {record.seed}, trial {record.id}: {_state(study, record)}"

    def files() -> list[Path]:
        workers = sorted(trial.glob(log.WORKER_FILE.format("*")))
        return [trial / ERROR_FILE, trial / log.TRIAL_FILE, *workers, trial / ROWS_FILE]

    def runs() -> bool:
        history.update()
        return record.state in (PLANNED, RUNNING, PAUSED) and lock.owner(study) is not None

    yield from _printed(files, lines, follow, runs)


def _state(study: Path, record: Record) -> str:
    gone = record.state == RUNNING and lock.owner(study) is None
    state = "was running when its driver was lost" if gone else record.state
    return f"{state}, step {record.step}/{record.steps}" + (f" ({record.cause})" if record.cause else "")


class Text:
    """A file of text, read on each time it is asked."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0  # bytes

    def new(self, rest: bool) -> list[str]:
        """The lines since the last look; `rest`: the last one too where it has no end yet."""
        try:
            with self._file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = self._read if self._read <= size else 0  # written anew
                start = file.seek(max(size - LARGEST, start))
                data = file.read()
        except OSError:
            return []
        whole = data if rest else data[: data.rfind(b"\n") + 1]
        self._read = start + len(whole)
        return [redacted(line) for line in whole.decode(errors="replace").splitlines()]


class Rows:
    """A trial's rows, read on in the same way."""

    def __init__(self, trial: Path) -> None:
        self._tail = spool.tail(trial)

    def new(self, rest: bool) -> list[str]:
        return [_row(row) for row in self._tail.read()]


def _row(row: dict[str, Any]) -> str:
    values = (f"{name} {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in row["metrics"].items())
    return f"step {row['step']}  " + "  ".join(values)


def _printed(files: Callable[[], Sequence[Path]], last: int, follow: bool, runs: Callable[[], bool]) -> Iterator[str]:
    """The last lines of each file under its name, then what each gets, while `runs` says that there may be more."""
    sources: dict[Path, Text | Rows] = {}
    title, going, first = "", follow, True
    while first or going:
        going = follow and runs()  # asked before the look, so that what comes at the end is printed
        for file in files():
            source = sources.setdefault(file, Rows(file.parent) if file.name == ROWS_FILE else Text(file))
            if new := source.new(rest=not going)[-last if first else 0 :]:
                if title != file.name:
                    title = file.name
                    yield f"--- {title}"
                yield from new
        first = False
        if going:
            time.sleep(LOOK_EVERY)
    if not title:
        yield "nothing was said yet"
