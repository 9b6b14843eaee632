import json

import pytest

from orchestrator.errors import InputError
from orchestrator.record.ledger import ATTEMPT, FINISHED, LEDGER_FILE, PAUSED, PLANNED, RUNNING, History, Ledger


def planned(trial, cell="c", seed=0):
    spec = {"workload": "lnn", "seed": seed, "model": {"width": 50, "depth": 3}, "optim": {"kind": "sgd", "lr": 0.1}}
    return {"event": PLANNED, "trial": trial, "cell": cell, "arm": "a", "axes": {"optim.lr": 0.1}, "seed": seed,
            "steps": 100, "spec": spec}  # fmt: skip


def test_the_last_event_decides_the_state(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write(ATTEMPT, attempt=1, study={"ancre.study": "s"})
    ledger.write_all([planned("t0"), planned("t1", seed=1)])
    ledger.write(RUNNING, trial="t0", attempt=1)
    ledger.write(PAUSED, trial="t0", step=40, metrics={"train/loss": "nan", "val/loss": 2.0})
    ledger.write(RUNNING, trial="t0", attempt=2)
    ledger.write(FINISHED, trial="t0", step=100, metrics={"train/loss": 1.0})
    ledger.close()
    history = History(tmp_path)
    first, second = history.trials.values()
    assert (first.state, first.attempt, first.step) == (FINISHED, 2, 100)
    assert first.metrics == {"train/loss": 1.0, "val/loss": 2.0}
    assert first.started <= first.ended
    assert (second.state, second.axes, second.steps) == (PLANNED, {"optim.lr": 0.1}, 100)
    assert history.attempts == 1 and history.study == {"ancre.study": "s"}


def test_a_history_follows_a_ledger_that_is_written(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write_all([planned("t0"), planned("t1")])
    history = History(tmp_path)
    assert history.update() == []
    ledger.write(RUNNING, trial="t1", attempt=1)
    ledger.write(FINISHED, trial="t1", step=100)
    with (tmp_path / LEDGER_FILE).open("ab") as file:
        file.write(b'{"time":1,"event":"running","tri')  # being written
    assert history.update() == ["t1"]
    assert history.trials["t1"].state == FINISHED


def test_planned_again_changes_nothing(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write_all([planned("t0")])
    ledger.write(FINISHED, trial="t0", step=100)
    ledger.write_all([planned("t0")])
    assert History(tmp_path).trials["t0"].state == FINISHED


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({}, "it has no 'event'"),
        ({"event": ["finished"]}, "its 'event' is"),
        ({"time": 1, "event": "finished", "trial": "zzz"}, "no line above plans trial 'zzz'"),
        ({"time": 1, "event": "planned", "trial": "zz"}, "it has no 'cell'"),
        ({**planned("zz"), "spec": {}}, "it has no 'workload'"),
        ({"event": "finished", "trial": "t0"}, "it has no 'time'"),
        ({"time": "now", "event": "finished", "trial": "t0"}, "its 'time' is 'now'"),
        ({"time": 1, "event": "running", "trial": "t0"}, "it has no 'attempt'"),
        ({"time": 1, "event": "finished", "trial": "t0", "metrics": {"x": "abc"}}, "could not convert"),
        ({"time": 1, "event": "finished", "trial": "t0", "metrics": {"x": 10**400}}, "too large"),
        ({"time": 1, "event": "finished", "trial": "t0", "metrics": [1]}, "its 'metrics' is"),
        ({"time": 1, "event": "finished", "trial": "t0", "step": "9"}, "its 'step' is '9'"),
        ({"time": 1, "event": "attempt"}, "it has no 'attempt'"),
        ({"time": 1, "event": "attempt", "attempt": "x", "study": {}}, "its 'attempt' is 'x'"),
        ({"event": "rung"}, "it has no 'arm'"),
    ],
)
def test_a_line_that_is_no_event_of_the_study_is_named(tmp_path, event, said):
    ledger = Ledger(tmp_path)
    ledger.write_all([planned("t0")])
    with (tmp_path / LEDGER_FILE).open("ab") as file:
        file.write(json.dumps(event).encode() + b"\n")
    with pytest.raises(InputError) as caught:
        History(tmp_path)
    assert f"{LEDGER_FILE}, line 2: " in str(caught.value) and said in str(caught.value)
    ledger.close()


def test_events_and_fields_of_a_later_version_are_ignored(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.write_all([planned("t0")])
    ledger.write("weighed", trial=5)
    ledger.write(FINISHED, trial="t0", step=100, colour="red")
    ledger.close()
    assert History(tmp_path).update() == [] and History(tmp_path).trials["t0"].state == FINISHED
