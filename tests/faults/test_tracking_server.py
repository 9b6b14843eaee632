"""A tracking server that loses requests and answers: every point arrives, and arrives once."""

import subprocess
import sys
from pathlib import Path

import pytest

from analysis import names
from orchestrator.record.ledger import ATTEMPT, FINISHED, PLANNED, RUNNING, History, Ledger
from orchestrator.record.spool import ROWS_FILE, Spool, row
from orchestrator.record.uploader import ASK_ONCE, QUIET, Uploader, unsent

pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"),  # MLflow's models
    pytest.mark.timeout(900),
]
TRIALS = [f"c{number}-s0" for number in range(5)]


@pytest.fixture
def server(tmp_path):
    """Its URI."""
    script = Path(__file__).with_name("flaky_server.py")
    command = [sys.executable, str(script), str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()
    process.stdout.close()


def write_rows(folder, trial, *steps):
    folder = folder / "trials" / trial
    folder.mkdir(parents=True, exist_ok=True)
    spool = Spool(folder / ROWS_FILE)
    for step in steps:
        spool.append(step, row(1000.0 + step, {"train/loss": 1.0 / (1 + step), "val/loss": 2.0}))
    spool.close()


def look_until_done(uploader):
    """How often a look failed until one went well."""
    from mlflow.exceptions import MlflowException

    for failures in range(100):
        try:
            uploader.look()
        except MlflowException as error:
            assert "500" in str(error)
        else:
            return failures
    return pytest.fail("it never went well")


def test_every_point_arrives_once(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    for name, value in {**QUIET, **ASK_ONCE, "MLFLOW_HTTP_REQUEST_TIMEOUT": "120"}.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "home" / "studies" / "s"
    folder.mkdir(parents=True)
    ledger = Ledger(folder)
    ledger.write(ATTEMPT, attempt=1, study={names.ROLE: names.STUDY, names.STUDY_NAME: "s"})
    spec = {"workload": "lnn", **{f"f{number}": number for number in range(120)}}
    for trial in TRIALS:
        planned = {
            "trial": trial,
            "cell": trial[:2],
            "arm": "a",
            "axes": {"f1": 1},
            "seed": 0,
            "steps": 3,
            "spec": spec,
        }
        ledger.write(PLANNED, **planned)
        ledger.write(RUNNING, trial=trial, attempt=1)
        write_rows(folder, trial, 1, 2)
    uploader = Uploader(tmp_path / "home", "s")
    failures = look_until_done(uploader)
    for trial in TRIALS:
        write_rows(folder, trial, 2, 3)  # the second step again, after a restart from a checkpoint
        ledger.write(FINISHED, trial=trial, step=3)
    failures += look_until_done(uploader)
    assert failures > 5
    assert unsent(tmp_path / "home", "s", History(folder)) == []

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/server.db")
    experiment = client.get_experiment_by_name("s").experiment_id
    runs = client.search_runs([experiment], f"tags.`{names.ROLE}` = 'trial'")
    assert sorted(run.data.tags[names.TRIAL_ID] for run in runs) == TRIALS
    assert len(client.search_runs([experiment], f"tags.`{names.ROLE}` = 'study'")) == 1
    for run in runs:
        assert run.info.status == "FINISHED" and run.data.tags[names.STATE] == FINISHED
        assert len(run.data.params) == 121
        for metric in ("train/loss", "val/loss"):
            points = client.get_metric_history(run.info.run_id, metric)
            assert sorted(point.step for point in points) == [1, 2, 3]
    ledger.close()
