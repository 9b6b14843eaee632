"""A plan with speeds that were seen: a trial whose pace is known is timed, and one that cannot run is said to."""

import re

import pytest

from orchestrator.study.plan import DEVICES, plan
from orchestrator.study.spec import Study
from orchestrator.sweep import probe
from orchestrator.workloads.base import Row

from ..local_ray import local_ray

WORKLOAD = "tests.orchestrator.sweep_workload"


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    with local_ray(cpus=3):
        yield


def study(**trial):
    return Study(name="pace", workload=WORKLOAD, seeds=[0, 1], trial=trial, resources={"cpus": 2})


def test_a_probe_finds_the_pace_of_a_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "SECONDS", 1.0)
    made = plan(study(train={"steps": 1000, "sleep": 0.05}))
    (side,) = probe.on_cluster(made, None, True, tmp_path).sides
    seconds = side.flops / 2 / side.speed / 2  # of one of two trials, on two cores
    assert 50 <= seconds < 75
    found = re.fullmatch(r"(.*) a trial, up to [\d.]+ [MG]B of memory \((\d+) rows of cell \w{12}\)", side.probe)
    assert int(found[2]) < 100 and found[1] in (f"{round(seconds)} s", f"1 min {round(seconds) - 60:02} s")


def test_what_a_trial_raises_is_said_and_its_hours_stay_those_of_its_flops(tmp_path):
    (side,) = probe.on_cluster(plan(study(train={"fail_at": 1})), None, True, tmp_path).sides
    assert side.probe == "RuntimeError: told to fail at step 1"
    assert side.speed == DEVICES["cpu"].flops


def test_a_trial_whose_process_dies_is_said_to(tmp_path):
    (side,) = probe.on_cluster(plan(study(train={"kill_once_at": 1})), None, True, tmp_path).sides
    assert side.probe.startswith("its process was lost (")


def test_a_trial_that_is_silent_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "PATIENCE", 1.0)
    (side,) = probe.on_cluster(plan(study(train={"sleep": 60.0})), None, True, tmp_path).sides
    assert side.probe == "no two rows in 1 s; its hours are by FLOPs alone"


@pytest.mark.parametrize(("study", "workers", "batch"), [("demo", 2, 8), ("paper_table3", 2, 128)])
def test_a_probe_takes_one_workers_share(study, workers, batch):
    trial = plan(Study.read(study)).cells[0].trial
    short = trial.short(workers)
    assert (trial.train.batch, short.train.batch) == (2 * batch, batch)
    assert type(short).model_validate(short.model_dump(mode="json")) == short
    rows = [Row(step, {}, time=float(2 * step)) for step in range(3)]
    assert trial.seconds(rows) >= 2 * trial.total_steps


def test_a_short_trial_of_contrastive_rl_counts_its_evaluations():
    trial = plan(Study.read("rl_depth_cpu")).cells[0].trial
    short = trial.short(1)
    assert short.train.steps_per_evaluation == 1
    assert type(short).model_validate(short.model_dump(mode="json")) == short
    parts = {"time/rollout": 1.0, "time/learn": 2.0, "time/sync": 0.5, "time/evaluate": 10.0}
    rows = [Row(step, parts) for step in range(4)]
    assert trial.seconds(rows) == pytest.approx(10 * trial.train.evaluations + 3.5 * trial.train.training_steps)
