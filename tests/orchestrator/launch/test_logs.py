"""What trials print is kept, and `ancre logs` shows it: by a trial's name, by a study's, and while it is written."""

import subprocess
import sys
import threading
import time

import pytest

from orchestrator.cli import main
from orchestrator.launch import logs as module
from orchestrator.record import log, spool
from orchestrator.record.ledger import Ledger

ABOUT = {"cell": "c", "arm": "keep", "axes": {}, "seed": 3, "steps": 9, "spec": {"workload": "w"}}


@pytest.fixture
def show(home, capsys):
    def show(*words, code=0):
        capsys.readouterr()
        assert main(["logs", *words, "--home", str(home)]) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return show


@pytest.fixture
def study(home):
    """Two trials, one of which has failed; the other has not run."""
    folder = home / "studies" / "mine"
    trial = folder / "trials" / "abc1"
    trial.mkdir(parents=True)
    ledger = Ledger(folder)
    ledger.write_all([{"event": "planned", "trial": name, **ABOUT} for name in ("abc1", "abc2")])
    ledger.write("failed", trial="abc1", step=2, cause="RuntimeError: no")
    ledger.close()
    (trial / spool.ERROR_FILE).write_text("RuntimeError: no\n\nTraceback\n")
    (trial / log.TRIAL_FILE).write_text("".join(f"line {number}\n" for number in range(30)) + "cut of")
    rows = spool.Spool(trial / spool.ROWS_FILE)
    for step in (1, 2):
        rows.append(step, spool.row(0.0, {"train/loss": 1 / step}))
    rows.close()
    (folder / log.DRIVER_FILE).write_text("2 trials to run\n")
    (folder / "uploader.log").write_text("https://user:hunter2@tracking.example is gone\n")
    return folder


def test_a_trial(study, show):
    said = show("abc1", "--lines", "3").splitlines()
    assert said == [
        "mine keep seed 3, trial abc1: failed, step 2/9 (RuntimeError: no)",
        *("--- error.txt", "RuntimeError: no", "", "Traceback"),
        *("--- log.txt", "line 28", "line 29", "cut of"),
        *("--- rows.jsonl", "step 1  train/loss 1", "step 2  train/loss 0.5"),
    ]


def test_a_study_without_its_secrets(study, show):
    said = show("mine")
    assert said == "--- driver.log\n2 trials to run\n--- uploader.log\nhttps://***@tracking.example is gone\n"


def test_names_that_mean_nothing_or_several(study, show, home):
    assert "trial 'abc2' has not been started yet" in show("abc2", code=2)
    assert "no trial begins with 'mime' and no study is called so" in show("mime", code=2)
    (study / "trials" / "abc2").mkdir()
    assert "2 trials begin with 'ab' (mine/abc1, mine/abc2)" in show("ab", code=2)
    assert show("mine/abc1").startswith("mine keep")


def test_a_trial_is_followed_to_its_end(study, monkeypatch):
    monkeypatch.setattr(module, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(module.lock, "owner", lambda folder: "a driver")
    ledger, trial = Ledger(study), study / "trials" / "abc2"
    trial.mkdir()
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.extend(module.logs(study.parents[1], "abc2", 20, True)))
    reader.start()
    for number in range(3):
        time.sleep(0.05)
        with (trial / log.TRIAL_FILE).open("a") as file:
            file.write(f"line {number}\nha")
            file.flush()
            time.sleep(0.05)
            file.write("lf\n")
    ledger.write("finished", trial="abc2", step=9)
    ledger.close()
    reader.join(10)
    assert said[1:] == ["--- log.txt", *(f"{line}" for number in range(3) for line in (f"line {number}", "half"))]


def test_what_a_process_and_its_children_print_is_caught(tmp_path):
    code = """
import os, subprocess, sys
from pathlib import Path
from orchestrator.record import log
file = Path(sys.argv[1])
print("before")
with log.caught(file):
    print("printed")
    os.write(2, b"from C\\n")
    subprocess.run(["echo", "a child"])
    sys.stdout.write("at the end")
print("after")
with log.caught(file.with_name("none")):
    pass
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "log"], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["before", "after"], "")
    assert sorted((tmp_path / "log").read_text().split("\n")) == ["a child", "at the end", "from C", "printed"]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
