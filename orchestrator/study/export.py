"""One configuration as a study of its own: what `ancre export` writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import ValidationError

from orchestrator import kinds
from orchestrator.errors import InputError
from orchestrator.record.ledger import Record
from orchestrator.study.complaints import complaint
from orchestrator.study.merge import set_axes
from orchestrator.study.spec import Study
from orchestrator.workloads.base import TrialSpec


def trial_of(recorded: Mapping[str, Any]) -> TrialSpec:
    """The trial that was recorded as JSON, in a ledger or in MLflow.

    Raises:
        InputError: it is no trial of its workload, as that is now.
    """
    spec = cast(type[TrialSpec], kinds.find("workload", str(recorded.get("workload"))))
    try:
        return spec.model_validate(dict(recorded))
    except ValidationError as error:
        raise InputError(f"recorded trial: {complaint(error, '.'.join)}") from error


def trial_now(record: Record) -> TrialSpec:
    """A trial at the values that it has now, where they changed on the way. Raises as `trial_of`."""
    return trial_of(set_axes(record.spec, record.values))


def study_of(trial: TrialSpec, seeds: Iterable[int], name: str = "") -> Study:
    """The study of this configuration alone, with every default written out.

    Args:
        name: of the study; where not given, the workload's and the cell's.

    Raises:
        InputError: it holds something that a study file cannot say.
    """
    table = trial.model_dump(mode="json", exclude={"seed", "workload"}, exclude_none=True)
    name = name or f"{trial.workload.rpartition('.')[2]}-{trial.cell}"
    study = Study.parse(Study(name=name, workload=trial.workload, seeds=list(seeds), trial=table).to_toml(), name)
    (arm,) = study.resolved.values()
    if (written := study.cell(arm.name, {})).id != trial.cell:
        raise InputError(
            f"{name}: reads back as configuration {written.id}: it sets a field to none that has a default"
        )
    return study
