"""The driver dies or is told to stop, at any point; what is left then runs, once each, from its newest checkpoint."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from analysis import names
from analysis.store import open_store
from orchestrator.record import lock, spool
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.record.tracking import uri_of
from orchestrator.study.spec import Study

STEPS = 12
TRIALS = 9
PATIENCE = 240  # seconds; on a machine that does nothing else a tenth is enough

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


class Driver:
    """`ancre start` or `ancre resume` in a process of its own."""

    def __init__(self, *words):
        command = [sys.executable, "-m", "orchestrator", *map(str, words)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def end(self):
        """Its exit code, and what it said."""
        try:
            _, said = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        return self.process.returncode, said


def write_study(home, name, seeds=(0,), **train):
    study = Study(
        name=name,
        workload="tests.orchestrator.sweep_workload",
        seeds=list(seeds),
        axes={"optim.lr": [0.1, 0.2, 0.3]},
        trial={"train": {"steps": STEPS, "sleep": 0.1, **train}},
    )
    path = home / f"{name}.toml"
    path.write_text(study.to_toml())
    return path


def wait_for(driver, home, name, state, count):
    """Until so many trials have been in a state; a trial that runs is then in the middle of its steps."""
    ledger = home / "studies" / name / LEDGER_FILE
    limit = time.monotonic() + PATIENCE
    while not ledger.exists() or ledger.read_text().count(f'"event":"{state}"') < count:
        if time.monotonic() > limit or driver.process.poll() is not None:
            driver.process.kill()
            pytest.fail(f"the driver did not get that far: {driver.end()}")
        time.sleep(0.05)
    time.sleep(0.4)


def check_whole(home, name):
    """Each planned trial ended once, with each of its steps once, in its spool and in its one MLflow run."""
    folder = home / "studies" / name
    events = [json.loads(line) for line in (folder / LEDGER_FILE).read_text().splitlines()]
    planned = [event["trial"] for event in events if event["event"] == "planned"]
    assert Counter(event["trial"] for event in events if event["event"] == names.FINISHED) == dict.fromkeys(planned, 1)
    assert len(planned) == TRIALS
    every = list(range(1, STEPS + 1))
    for trial in planned:
        assert [row["step"] for row in spool.rows(folder / "trials" / trial)] == every
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri_of(home))
    experiment = client.get_experiment_by_name(name).experiment_id
    runs = client.search_runs([experiment], f"tags.`{names.ROLE}` = 'trial'")
    assert Counter(run.data.tags[names.TRIAL_ID] for run in runs) == dict.fromkeys(planned, 1)
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        history = client.get_metric_history(run.info.run_id, "train/loss")
        assert sorted(point.step for point in history) == every
    assert len(open_store(uri_of(home)).study(name).runs) == TRIALS


def starts(home, name):
    """The first step of each time that a trial was started."""
    return {path.parent.name: path.read_text().split() for path in (home / "studies" / name).glob("trials/*/starts")}


def left_behind(driver, home):
    """Processes that outlive a driver by more than ten seconds. Ray's own agents take up to a minute to notice."""
    limit = time.monotonic() + 10
    while True:
        listed = subprocess.run(["ps", "-eo", "pid,sid,args"], capture_output=True, text=True, check=True).stdout
        rows = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
        mine = [args for _, sid, args in rows if sid == str(driver.process.pid) or str(home) in args]
        mine = [args for args in mine if not args.endswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))]
        if not mine or time.monotonic() > limit:
            return mine
        time.sleep(0.2)


def stop_in_the_middle(home, words, number, running):
    """Start a driver and send it a signal once so many trials have been started in all; its exit code and words."""
    driver = Driver(*words, "--home", home)
    wait_for(driver, home, "stopped", names.RUNNING, running)
    driver.process.send_signal(number)
    code, said = driver.end()
    assert lock.owner(home / "studies" / "stopped") is None
    assert not left_behind(driver, home)
    return code, said


def states(home, name):
    return Counter(record.state for record in History(home / "studies" / name).trials.values())


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")
def test_a_driver_that_is_killed_interrupted_and_terminated_in_turn(home):
    path = write_study(home, "stopped", seeds=[0, 1, 2])
    code, _ = stop_in_the_middle(home, ("start", path), signal.SIGKILL, running=3)
    assert code == -signal.SIGKILL
    before = states(home, "stopped")
    assert before[names.FINISHED] >= 1 and before[names.RUNNING] >= 1

    code, said = stop_in_the_middle(home, ("resume", "stopped"), signal.SIGINT, running=6)
    assert code == 130 and "resume with: ancre resume stopped" in said
    after = states(home, "stopped")
    assert after[names.PAUSED] >= 1 and not after[names.RUNNING] and after[names.FINISHED] < TRIALS
    runs = open_store(uri_of(home)).study("stopped").runs
    assert {run.state for run in runs} == {names.PAUSED, names.FINISHED}

    code, said = stop_in_the_middle(home, ("resume", "stopped"), signal.SIGTERM, running=9)
    assert code == 143, said

    code, said = Driver("resume", "stopped", "--home", home).end()
    assert code == 0, said
    check_whole(home, "stopped")
    again = [first for first in starts(home, "stopped").values() if len(first) > 1]
    assert any(int(step) > 1 for first in again for step in first[1:])  # from a checkpoint, not from the start


def test_a_second_interrupt_does_not_wait(home):
    path = write_study(home, "twice", sleep=60)  # no trial ever gets to a report
    first = Driver("start", path, "--home", home)
    wait_for(first, home, "twice", names.RUNNING, 1)
    first.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert first.process.poll() is None  # in order, it would wait for the trial
    first.process.send_signal(signal.SIGINT)
    code, said = first.end()
    assert code == 130, said
    assert states(home, "twice").keys() == {names.PAUSED, "planned"}
    assert not left_behind(first, home)
