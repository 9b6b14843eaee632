"""A trial on two workers, one of which dies."""

import json
import logging

import pytest

from analysis import names
from orchestrator.record import spool
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster
from orchestrator.sweep.run import start


@pytest.fixture
def two_cores():
    cluster.configure()
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield
    ray.shutdown()


def test_a_lost_worker_costs_no_step(two_cores, tmp_path):
    """Both cores are the workers': the process that waits for them must not need a third."""
    study = Study(
        name="wide",
        workload="tests.orchestrator.sweep_workload",
        trial={"train": {"steps": 6, "sleep": 0.1, "kill_once_at": 4}},
        resources={"workers": 2},
    )
    done = start(study, tmp_path)
    assert done.trials == {names.FINISHED: 1} and done.unsent == 0
    (record,) = History(tmp_path / "studies" / "wide").trials.values()
    folder = tmp_path / "studies" / "wide" / "trials" / record.id
    assert [row["step"] for row in spool.rows(folder)] == [1, 2, 3, 4, 5, 6]
    assert record.metrics == {"train/loss": pytest.approx(0.1 + 1 / 6), "twice": 12.0}
    begun = (folder / "starts").read_text().split()
    assert begun[:2] == ["1", "1"] and begun[2] == begun[3] > "1"  # two workers, twice; then from the checkpoint
    events = (tmp_path / "studies" / "wide" / LEDGER_FILE).read_text().splitlines()
    assert [json.loads(line)["event"] for line in events[2:]] == ["running", "paused", "running", "finished"]
    assert not (folder / "ray-train").exists()
