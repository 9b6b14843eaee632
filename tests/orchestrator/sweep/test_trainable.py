"""A trial in its own process, without Ray: what it leaves on disk and what it has to say."""

import json
import math

import pytest

from orchestrator.errors import Diverged
from orchestrator.record import spool
from orchestrator.record.turn import Turn
from orchestrator.sweep.trainable import CAUSE, METRICS, OUTCOME, STEP, VALUE, Job, Run, check_finite
from orchestrator.workloads.base import Row
from tests.orchestrator.sweep_workload import Spec


@pytest.fixture
def job(tmp_path):
    def make(rungs=(), **train):
        spec = Spec.model_validate({"train": {"steps": 6, **train}})
        return Job(
            spec=spec.model_dump(mode="json"),
            folder=str(tmp_path),
            cache=str(tmp_path),
            metric="train/loss",
            rungs=list(rungs),
            cpus=1,
            gpus=0.0,
            workers=1,
            min_workers=0,
            commit="abc",
            attempt=1,
            silence=60.0,
            turn=Turn.take(tmp_path, 1),
        )

    return make


def go_on_from(folder, step):
    """Leave the checkpoint of a trial that goes on with the row of this step."""
    (folder / "checkpoints").mkdir(exist_ok=True)
    (folder / "checkpoints" / "step").write_text(str(step))


def test_a_job_survives_the_way_to_its_process(job):
    sent = job(rungs=[2, 4])
    assert Job(**json.loads(sent.text())) == sent
    assert sent.trial == Spec.model_validate({"train": {"steps": 6}})


def test_only_rungs_are_worth_a_word_to_tune(job):
    run = Run(job(rungs=[2, 4]))
    said = [run.due(row) for row in run.rows()]
    assert [None if report is None else report[STEP] for report in said] == [None, 2, None, 4, None, None]
    assert said[1][VALUE] == pytest.approx(0.1 + 1 / 2)
    assert run.last_report() == {
        STEP: 6,
        METRICS: {"train/loss": pytest.approx(0.1 + 1 / 6), "twice": 12.0},
        OUTCOME: "finished",
    }


def test_a_rung_between_two_rows_counts_at_the_next_one(job, tmp_path):
    run = Run(job(rungs=[2, 3]))
    go_on_from(tmp_path, 4)
    said = [run.due(row) for row in run.rows()]
    assert [report and report[STEP] for report in said] == [4, None, None]


def test_a_trial_that_was_killed_after_its_last_step_knows_its_values(job, tmp_path):
    first = Run(job())
    list(first.rows())
    go_on_from(tmp_path, 7)
    second = Run(job())
    assert list(second.rows()) == []
    assert second.last_report() == first.last_report()


def test_a_resumed_trial_keeps_what_only_early_rows_had(job, tmp_path):
    written = spool.Spool(tmp_path / spool.ROWS_FILE)
    written.append(1, spool.row(1.0, {"train/loss": 1.0, "early": 7.0}))
    written.append(3, spool.row(3.0, {"train/loss": 1.0, "late": 7.0}))
    written.close()
    go_on_from(tmp_path, 3)
    run = Run(job())
    list(run.rows())
    assert run.last_report()[METRICS].keys() == {"train/loss", "early", "twice"}  # step 3 was computed again
    assert [row["step"] for row in spool.rows(tmp_path)] == [1, 3, 4, 5, 6]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["train/loss", "val/loss"])
def test_neither_the_loss_nor_what_ranks_may_be_other_than_finite(name, value):
    check_finite(Row(3, {"train/loss": 1.0, "other": value}), "val/loss")  # and a metric that is not there is no fault
    with pytest.raises(Diverged, match=f"{name} is not finite at step 3"):
        check_finite(Row(3, {"train/loss": 1.0} | {name: value}), "val/loss")


def test_a_value_that_is_not_finite_ends_the_trial(job, tmp_path):
    run = Run(job(diverge_at=3))
    assert [row.step for row in run.rows()] == [1, 2]
    report = run.last_report()
    assert (report[STEP], report[OUTCOME], report[CAUSE]) == (3, "diverged", "train/loss is not finite at step 3")
    assert spool.rows(tmp_path)[-1]["metrics"]["train/loss"] == "nan"


def test_where_it_ran_is_written_down(job, tmp_path):
    list(Run(job()).rows())
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["commit"] == "abc" and environment["device"]
    assert {"ray", "mlflow", "numpy"} <= environment["packages"].keys()
