"""Trials on one and on two workers, which die or hang: started again, within a budget, from the newest checkpoint."""

import json

import pytest

from analysis import names
from orchestrator.record import spool
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.study.spec import Study
from orchestrator.sweep.run import start
from tests.orchestrator.local_ray import local_ray


@pytest.fixture(scope="module")
def two_cores():
    with local_ray(cpus=2):
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def events(folder):
    lines = map(json.loads, (folder / LEDGER_FILE).read_text().splitlines())
    return [(line["event"], line.get("fault")) for line in lines if line["event"] not in ("attempt", "planned")]


def run(home, name, steps, workers=1, budget=None, **train):
    """One trial to its end; its folder and the study's."""
    study = Study(
        name=name,
        workload="tests.orchestrator.sweep_workload",
        trial={"train": {"steps": steps, "sleep": 0.1, **train}},
        resources={"workers": workers},
        budget=budget or {},
    )
    done = start(study, home)
    assert done.trials == {names.FINISHED: 1} and done.unsent == 0
    folder = home / "studies" / name
    (record,) = History(folder).trials.values()
    trial = folder / "trials" / record.id
    assert [row["step"] for row in spool.rows(trial)] == [*range(1, steps + 1)]
    assert record.metrics == {"train/loss": pytest.approx(0.1 + 1 / steps), "twice": 2.0 * steps}
    return trial, folder


def test_a_lost_worker_costs_no_step(two_cores, home):
    """Both cores are the workers': the process that waits for them must not need a third."""
    trial, folder = run(home, "wide", 6, workers=2, kill_once_at=4)
    begun = (trial / "starts").read_text().split()
    assert begun[:2] == ["1", "1"] and begun[2] == begun[3] > "1"  # two workers, twice; then from the checkpoint
    assert events(folder) == [("running", None), ("paused", "preemption"), ("running", None), ("finished", None)]
    assert not (trial / "ray-train").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_hung_worker_is_ended_with_its_stacks_on_disk(two_cores, home, workers):
    trial, folder = run(home, f"hung-{workers}", 4, workers, {"silence_minutes": 0.05}, hang_once_at=3)
    assert events(folder) == [("running", None), ("paused", "failure"), ("running", None), ("finished", None)]
    stacks = sorted(trial.glob("stacks-*"))
    assert [file.name for file in stacks] == ["stacks-1-worker1.txt", "stacks-1.txt"][-workers:]
    assert sum("_go_wrong" in file.read_text() for file in stacks) == 1  # the other one waits for it
    lines = (folder / LEDGER_FILE).read_text().splitlines()
    cause = next(line["cause"] for line in map(json.loads, lines) if line["event"] == "paused")
    named = "stacks-1.txt, stacks-1-worker1.txt" if workers == 2 else "stacks-1.txt"
    assert cause == f"no row for 0.05 minutes; its stacks are in {named}; tried again"
