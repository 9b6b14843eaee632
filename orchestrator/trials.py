"""Which trial a user means by the start of its id or of its MLflow run's, and where its checkpoints lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from analysis.store import QueryError, near, open_store
from orchestrator.errors import InputError
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.record.tracking import uri_of
from orchestrator.study.export import trial_of
from orchestrator.workloads.base import TrialSpec

Wanted = TypeVar("Wanted", bound=TrialSpec)


@dataclass(frozen=True)
class Found(Generic[Wanted]):
    """A trial that was started."""

    study: str
    trial: str
    spec: Wanted
    folder: Path  # trials/<id>


def find(run: str, home: Path, wanted: type[Wanted], purpose: str) -> Found[Wanted]:
    """The one trial whose id, or whose MLflow run's, begins with `run`.

    Args:
        purpose: what trials of this workload alone can be, such as "played".

    Raises:
        InputError: none or several, or its workload is another.
    """
    known = {(folder.name, trial): folder for folder in _studies(home) for trial in History(folder).trials}
    chosen = {(study, trial) for study, trial in known if run and trial.startswith(run)}
    if not chosen and run:
        chosen = set(_by_mlflow(run, home)) & known.keys()
    if len({trial for _, trial in chosen}) != 1:
        number = f"{len(chosen)} trials begin" if chosen else "no trial begins"
        hint = "" if chosen else near(run, {trial for _, trial in known})
        raise InputError(f"{number} with {run!r} in {home}{hint}; `ancre query runs STUDY` lists them")
    study, trial = min(chosen)
    folder = known[study, trial]
    spec = trial_of(History(folder).trials[trial].spec)
    if not isinstance(spec, wanted):
        only = wanted.model_fields["workload"].default
        raise InputError(
            f"trial {trial} of study {study} is of workload {spec.workload!r}; only {only} can be {purpose}"
        )
    return Found(study, trial, spec, folder / "trials" / trial)


def _studies(home: Path) -> Iterator[Path]:
    yield from sorted(file.parent for file in (home / "studies").glob(f"*/{LEDGER_FILE}"))


def _by_mlflow(run: str, home: Path) -> Iterator[tuple[str, str]]:
    """(study, trial) of the MLflow runs whose id begins so; none where there is no store to ask."""
    try:
        store = open_store(uri_of(home))
        studies = [store.study(folder.name) for folder in _studies(home)]
    except QueryError:
        return
    yield from ((study.name, one.id) for study in studies for one in study.runs if one.run_id.startswith(run))
