"""A driver is stopped from its own machine and from another, and `status` claims no dead one alive."""

import json
import platform
import signal
import subprocess
import sys
import threading
import time

import pytest

from analysis.names import PAUSED, RUNNING
from orchestrator.cli import main
from orchestrator.record import lock, stop_request
from orchestrator.record.ledger import History, Ledger
from orchestrator.sweep.interrupt import Interrupt
from tests.orchestrator.launch.conftest import NAME, write_study

PATIENCE = 120  # seconds
HOLD = """
import sys, time
from pathlib import Path
from orchestrator.record import lock
with lock.hold(Path(sys.argv[1])) as sign:
    sign(1)
    print("held", flush=True)
    time.sleep(60)
"""


def stop(home, capsys, *words):
    capsys.readouterr()
    assert main(["stop", NAME, *words, "--home", str(home)]) == 0
    return capsys.readouterr().out


def planned(home, *events):
    """A study of one trial, with more events in its ledger."""
    folder = home / "studies" / NAME
    folder.mkdir(parents=True)
    (folder / lock.LOCK_FILE).touch()
    ledger = Ledger(folder)
    about = {"trial": "t1", "cell": "c", "arm": "a", "axes": {}, "seed": 0, "steps": 9, "spec": {"workload": "w"}}
    ledger.write_all([{"event": "planned", **about}, *({"trial": "t1", **event} for event in events)])
    ledger.close()
    return folder


def test_a_study_that_does_not_run_is_one_line(home, capsys):
    planned(home)
    said = stop(home, capsys)
    assert said.startswith(f"{NAME}: is not running; 0 of 1 trials have ended, 0 are paused, 1 have not run; go on")
    assert said.count("\n") == 1
    assert main(["stop", "itt_s", "--home", str(home)]) == 2
    assert f"no study 'itt_s' in {home}; did you mean '{NAME}'?" in capsys.readouterr().err


def test_a_driver_on_this_machine_gets_a_signal(home, capsys):
    folder = planned(home)
    holder = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    reaper = threading.Thread(target=holder.wait)
    reaper.start()
    assert f"{NAME}: stopped; " in stop(home, capsys)
    reaper.join()
    assert holder.wait() == -signal.SIGTERM and not (folder / stop_request.STOP_FILE).exists()
    holder.stdout.close()


@pytest.mark.parametrize(("now", "orderly", "raised"), [(False, True, 0), (True, True, 1), (False, False, 1)])
def test_a_request_counts_as_one_signal_or_as_two(tmp_path, now, orderly, raised):
    stop_request.ask(tmp_path, True)  # of an earlier driver
    before = signal.getsignal(signal.SIGTERM)
    times = 0
    with Interrupt(tmp_path) as interrupt:
        interrupt.orderly = orderly
        try:
            time.sleep(1.2)
            assert not interrupt.signal
            stop_request.ask(tmp_path, now)
            time.sleep(2.5)
        except KeyboardInterrupt:
            times = 1
    assert (interrupt.signal, times) == (signal.SIGTERM, raised)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_driver_on_another_machine_reads_the_request(home, tmp_path, capsys, monkeypatch):
    path = write_study(tmp_path, steps=200, sleep=0.2)
    command = [sys.executable, "-m", "orchestrator", "start", str(path), "--home", str(home)]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    study = home / "studies" / NAME
    limit = time.monotonic() + PATIENCE
    while RUNNING not in [record.state for record in History(study).trials.values()]:
        assert time.monotonic() < limit and driver.poll() is None
        time.sleep(0.1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(platform, "node", lambda: "elsewhere")
        assert main(["status", NAME, "--home", str(home), "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [row["state"] for row in rows].count(RUNNING) >= 1
        said = stop(home, capsys)
    _, told = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 128 + signal.SIGTERM, told
    states = [record.state for record in History(study).trials.values()]
    assert PAUSED in states and RUNNING not in states
    assert f"{states.count(PAUSED)} are paused" in said and f"ancre resume {NAME} --home {home}" in said


def test_no_dead_driver_is_claimed_alive(home, capsys):
    folder = planned(home, {"event": "running", "attempt": 1})
    dead = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, text=True)
    assert dead.stdout.readline() == "held\n"
    dead.kill()
    dead.wait()
    dead.stdout.close()
    main(["status", "--home", str(home), "--format", "json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["running"], row["left"], row["driver"]) == (0, 1, None)
    main(["status", NAME, "--home", str(home), "--format", "json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["cause"]) == (PAUSED, "its driver was lost")
    assert "1 are paused" in stop(home, capsys)
