"""Drivers in processes of their own, to be killed in tests, and what a study must hold when all is over."""

import json
import subprocess
import sys
import time
from collections import Counter

import pytest

from analysis import names
from analysis.store import open_store
from orchestrator.record import spool
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.record.tracking import uri_of
from orchestrator.study.spec import Study

STEPS = 12
TRIALS = 9
PATIENCE = 240  # seconds; on a machine that does nothing else a tenth is enough


class Driver:
    """A command of ancre in a process of its own."""

    def __init__(self, *words, code=None):
        command = [sys.executable, *(("-c", code) if code else ("-m", "orchestrator")), *map(str, words)]
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


def check_whole(home, name, trials=TRIALS, steps=STEPS):
    """Each planned trial ended once, with each of its steps once, in its spool and in its one MLflow run."""
    folder = home / "studies" / name
    events = [json.loads(line) for line in (folder / LEDGER_FILE).read_text().splitlines()]
    planned = [event["trial"] for event in events if event["event"] == "planned"]
    assert Counter(event["trial"] for event in events if event["event"] == names.FINISHED) == dict.fromkeys(planned, 1)
    assert len(planned) == trials
    every = list(range(1, steps + 1))
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
    assert len(open_store(uri_of(home)).study(name).runs) == trials


def starts(home, name):
    """The first step of each time that a trial was started."""
    return {path.parent.name: path.read_text().split() for path in (home / "studies" / name).glob("trials/*/starts")}


def processes():
    """Process id, session and command line of all processes."""
    listed = subprocess.run(["ps", "-wweo", "pid,sid,args"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines()[1:]:
        pid, sid, args = line.split(maxsplit=2)
        yield int(pid), int(sid), args


def left_behind(driver, home):
    """Processes that outlive a driver by more than ten seconds. Ray's own agents take up to a minute to notice."""
    limit = time.monotonic() + 10
    while True:
        mine = [args for _, sid, args in processes() if sid == driver.process.pid or str(home) in args]
        mine = [args for args in mine if not args.endswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent"))]
        if not mine or time.monotonic() > limit:
            return mine
        time.sleep(0.2)


def states(home, name):
    return Counter(record.state for record in History(home / "studies" / name).trials.values())
