"""The tracking server is away, or answers nothing: trials never wait, and `ancre sync` sends what is left."""

import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from analysis import names
from orchestrator.cli import main
from orchestrator.record.ledger import FINISHED, RUNNING, History
from orchestrator.study.spec import Study
from orchestrator.sweep import run
from orchestrator.sweep.run import start
from tests.orchestrator.local_ray import local_ray

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")]
STEPS = 5


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    with local_ray(cpus=2):
        yield


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def serve(tmp_path, port):
    """Starts MLflow's server, which loses requests and answers; the function that ends it."""
    processes = []

    def begin():
        command = [sys.executable, Path(__file__).with_name("flaky_server.py"), str(tmp_path), str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        processes.append(process)
        assert int(process.stdout.readline()) == port
        return process.kill

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def study(name, sleep=0.0, seeds=(0, 1, 2)):
    return Study(
        name=name,
        workload="tests.orchestrator.sweep_workload",
        seeds=list(seeds),
        trial={"train": {"steps": STEPS, "sleep": sleep}},
    )


def test_a_server_that_comes_late_and_leaves_early(tmp_path, port, serve, monkeypatch, capfd):
    """Down at the start, there while trials run, gone at the end; each of its third answers is lost."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # a user's own: it would create runs twice
    monkeypatch.setattr(run, "UPLOAD_SECONDS", 2.0)
    home = tmp_path / "home"
    ledger = home / "studies" / "late" / "ledger.jsonl"

    def come_and_go():
        while not ledger.exists() or f'"event":"{RUNNING}"' not in ledger.read_text():
            time.sleep(0.05)
        end = serve()
        while ledger.read_text().count(f'"event":"{FINISHED}"') < 3:
            time.sleep(0.05)
        end()

    coming = threading.Thread(target=come_and_go)
    coming.start()
    done = start(study("late", sleep=0.3, seeds=range(6)), home)
    coming.join()
    assert done.trials == {FINISHED: 6} and done.unsent > 0 and done.exit_code == 0
    assert f"send them with: ancre sync late --home {home}" in capfd.readouterr().err

    assert main(["sync", "--home", str(home)]) == 1  # still away
    assert "Connection refused" in capfd.readouterr().out
    serve()
    left = done.unsent
    for _ in range(10):  # of three requests in a row all may be lost
        code = main(["sync", "late", "--home", str(home), "--format", "csv"])
        _, sent, still, _ = capfd.readouterr().out.splitlines()[1].split(",", 3)
        assert int(sent) + int(still) == left and code == (1 if int(still) else 0)
        left = int(still)
    assert left == 0
    assert main(["sync", "--home", str(home), "--format", "csv"]) == 0  # nothing to do
    assert capfd.readouterr().out.splitlines()[1] == "late,0,0,"

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/server.db")
    experiment = client.get_experiment_by_name("late").experiment_id
    runs = client.search_runs([experiment], f"tags.`{names.ROLE}` = 'trial'")
    trials = History(home / "studies" / "late").trials
    assert Counter(run.data.tags[names.TRIAL_ID] for run in runs) == dict.fromkeys(trials, 1)
    for found in runs:
        points = client.get_metric_history(found.info.run_id, "train/loss")
        assert sorted(point.step for point in points) == list(range(1, STEPS + 1))


def test_a_server_that_never_answers_holds_up_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "UPLOAD_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        done = start(study("silent"), tmp_path)
    assert done.trials == {FINISHED: 3} and done.unsent == 3


def test_what_cannot_be_sent_is_told(tmp_path, capsys):
    assert main(["sync", "nobody", "--home", str(tmp_path)]) == 2
    assert "no study 'nobody'" in capsys.readouterr().err
