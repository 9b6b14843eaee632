"""How far studies are, read from their ledgers alone: neither Ray nor MLflow needs to be there."""

import time
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from analysis.names import DIVERGED, FAILED, FINISHED, PAUSED, RUNNING, STOPPED
from orchestrator.errors import InputError, did_you_mean
from orchestrator.record import lock, spool
from orchestrator.record.ledger import ENDED, LEDGER_FILE, PLANNED, History, Record

MOST_AT_ONCE = 64  # studies


def status(home: Path, study: str | None) -> list[dict[str, Any]]:
    """One row per study under `home`, or one per trial of `study`.

    A study whose ledger cannot be read has a row that says so under `fault`.

    Raises:
        InputError: no such study, or its ledger cannot be read.
    """
    folders = sorted(path.parent for path in (home / "studies").glob(f"*/{LEDGER_FILE}"))
    if study is None:
        with ThreadPoolExecutor(MOST_AT_ONCE) as pool:  # a driver on another machine is watched for some seconds
            return list(pool.map(_study_or_fault, folders))
    if study not in (names := [folder.name for folder in folders]):
        raise InputError(f"no study {study!r} in {home}{did_you_mean(study, names)}")
    return list(_trials(home / "studies" / study))


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without columns that say nothing in any of them."""
    said = {key for row in rows for key, value in row.items() if value or key == "left"}
    return [{key: value for key, value in row.items() if key in said} for row in rows]


def _study_or_fault(folder: Path) -> dict[str, Any]:
    try:
        return _study(folder)
    except InputError as error:
        return {"study": folder.name, "fault": str(error)}


def _study(folder: Path) -> dict[str, Any]:
    owner = lock.owner(folder)
    return standing(folder.name, History(folder).trials.values(), str(owner) if owner else None)


def standing(study: str, trials: Collection[Record], driver: str | None) -> dict[str, Any]:
    """How many of a study's trials are in which state; without a driver, none runs."""
    counts = Counter(record.state for record in trials)
    states = (FINISHED, STOPPED, DIVERGED, FAILED, PAUSED)
    return {
        "study": study,
        "trials": len(trials),
        **{state: counts[state] for state in states},
        "running": counts[RUNNING] if driver else 0,
        "left": counts[PLANNED] + counts[PAUSED] + counts[RUNNING],
        "driver": driver,
    }


def _trials(folder: Path) -> Iterator[dict[str, Any]]:
    trials = History(folder).trials.values()
    now = time.time() if lock.owner(folder) else 0.0
    for record in trials:
        killed = record.state == RUNNING and not now
        place = folder / "trials" / record.id
        step = record.step if record.state in ENDED else max(record.step, spool.last_step(place))
        yield {
            "trial": record.id,
            "arm": record.arm,
            "seed": record.seed,
            "state": PAUSED if killed else record.state,
            "step": f"{step}/{record.steps}",
            "seconds": _seconds(record, now or spool.last_written(place)),
            "cause": "its driver was killed" if killed else record.cause,
        }


def _seconds(record: Record, until: float) -> float | None:
    """How long a trial ran, without the time between its starts."""
    if not record.started:
        return None
    return round(record.seconds + (max(0.0, until - record.began) if record.began else 0.0), 1)
