"""One configuration leaves a study and comes back as one of its own."""

import json

import pytest

from orchestrator.errors import InputError
from orchestrator.study.export import study_of, trial_of
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.workloads.base import TrialSpec


def cells() -> list[TrialSpec]:
    wide = Study(
        name="wide",
        workload="toys.bowl",
        trial={"optim": {"kind": "sgd", "lr": 0.1}},
        axes={
            "topology": [{"kind": "cascaded"}, {"kind": "ancre"}, {"kind": "ancre-sparse", "mask": "boundary-targets"}],
            "train.betas": [[0.5, 0.9], [0.9, 0.99]],
        },
    )
    return [cell.trial for cell in plan(wide).cells]


@pytest.mark.parametrize("trial", cells(), ids=lambda trial: trial.cell)
def test_exported_study_runs_the_same_cell(trial: TrialSpec) -> None:
    study = Study.parse(study_of(trial, (0, 3)).to_toml())
    (cell,) = plan(study).cells
    assert (cell.id, study.seeds, study.name) == (trial.cell, (0, 3), f"bowl-{trial.cell}")


def test_recorded_trial_reads_back() -> None:
    trial = cells()[1].with_seed(5)
    assert trial_of(json.loads(trial.model_dump_json())) == trial


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ({}, "no workload of kind 'None'"),
        ({"workload": "toys.bowl"}, "recorded trial: optim: is required"),
        ({"workload": "toys.bowl", "optim": {"kind": "sgd", "lr": 1}, "old": 3}, "recorded trial: old: no such key"),
    ],
)
def test_record_of_another_version_is_refused(recorded: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        trial_of(recorded)
