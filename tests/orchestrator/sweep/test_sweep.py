"""The decisions of a sweep, driven by hand: no Ray, no MLflow."""

import math
import signal

import pytest

from analysis import names
from orchestrator.record.ledger import History, Ledger
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep.progress import Progress, duration
from orchestrator.sweep.sweep import Sweep

WORKLOAD = "tests.orchestrator.sweep_workload"


def study(**changes):
    content = {"workload": WORKLOAD, "seeds": [0, 1], "axes": {"optim.lr": [0.1, 0.2]}}
    return Study(name="by-hand", **{**content, **changes})


@pytest.fixture
def attempt(tmp_path):
    """Starts an attempt at a study, as another driver would after the last one."""
    ledgers = []

    def begin(study):
        history = History(tmp_path)
        sweep = Sweep(plan(study), history, history.attempts + 1)
        ledger = Ledger(tmp_path)
        ledgers.append(ledger)
        sweep.open(ledger)
        return sweep

    yield begin
    for ledger in ledgers:
        ledger.close()


def run(sweep, until=None):
    """Start and finish trials in the order they are given; the axes and seed of each."""
    order = []
    while len(order) != until and (record := sweep.next()):
        sweep.started(record)
        sweep.heard(record, record.steps, {"train/loss": record.axes["optim.lr"] + record.seed})
        sweep.finished(record)
        order.append((record.arm, record.axes["optim.lr"], record.seed))
    return order


def test_arms_take_turns_and_seeds_stand_together(attempt):
    arms = {"a": {"train": {"steps": 3}}, "b": {"train": {"steps": 4}}}
    order = run(attempt(study(arms=arms)))
    assert order == [("a", 0.1, 0), ("a", 0.1, 1), ("b", 0.1, 0), ("b", 0.1, 1),
                     ("a", 0.2, 0), ("a", 0.2, 1), ("b", 0.2, 0), ("b", 0.2, 1)]  # fmt: skip


def test_what_ended_does_not_run_again_and_what_was_torn_does(attempt):
    first = attempt(study())
    run(first, until=1)
    torn, failed, diverged = first.next(), first.next(), first.next()
    for record in (torn, failed, diverged):
        first.started(record)
    first.failed(failed, "RuntimeError: no")
    first.diverged(diverged, "train/loss is not finite at step 1")
    assert first.left == 0 and first.next() is None

    second = attempt(study())
    assert second.counts == {names.FINISHED: 1, names.PAUSED: 1, names.FAILED: 1, names.DIVERGED: 1}
    assert second.left == 2
    assert [second.next().id, second.next().id, second.next()] == [torn.id, failed.id, None]


def test_a_resumed_optuna_asks_as_if_nothing_had_happened(tmp_path_factory, attempt):
    search = {
        "axes": {"optim.lr": {"low": 0.001, "high": 1.0, "log": True}},
        "sampler": {"kind": "optuna", "cells": 7, "startup": 2},
        "seeds": [0],
    }
    folder = tmp_path_factory.mktemp("straight")
    straight = Sweep(plan(study(**search)), History(folder), 1)
    ledger = Ledger(folder)
    straight.open(ledger)
    assert straight.left == 7
    whole = run(straight)
    ledger.close()
    assert len(set(whole)) == 7

    torn = run(attempt(study(**search)), until=3)
    resumed = attempt(study(**search))
    assert resumed.left == 4
    assert torn + run(resumed) == whole


def test_an_edited_optuna_study_forgets_what_it_no_longer_has(attempt):
    search = {"sampler": {"kind": "optuna", "cells": 2, "startup": 1}, "seeds": [0]}
    run(attempt(study(**search, axes={"optim.lr": [0.1, 0.2]})))
    assert run(attempt(study(**search, axes={"optim.lr": [0.2, 0.3]}))) == [(WORKLOAD, 0.3, 0)]


def test_a_stopped_cell_stays_stopped_after_a_restart(attempt):
    asha = study(scheduler={"kind": "asha", "grace": 2, "factor": 2}, axes={"optim.lr": [0.1, 0.2]}, seeds=[0, 1])
    first = attempt(asha)
    good, _, bad, late = first.next(), first.next(), first.next(), first.next()
    assert first.rungs(good) == [2, 4, 8]
    assert first.goes_on(good, 2, 0.5)
    assert not first.goes_on(bad, 3, 0.9)
    second = attempt(asha)
    assert not second.goes_on(late, 2, 0.1)  # the other seed of the cell that was stopped


def test_a_diverged_trial_stops_its_cell(attempt):
    asha = study(scheduler={"kind": "asha", "grace": 2, "factor": 2}, seeds=[0, 1])
    sweep = attempt(asha)
    first, second = sweep.next(), sweep.next()
    sweep.started(first)
    sweep.heard(first, 1, {"train/loss": math.nan})
    sweep.diverged(first, "train/loss is not finite at step 1")
    assert not sweep.goes_on(second, 2, 0.1)


def test_a_spent_budget_starts_no_more(attempt):
    sweep = attempt(study(budget={"hours": 1e-9}))
    assert sweep.next() is None and sweep.left == 4


def test_progress_says_what_runs_and_what_is_left(attempt, tmp_path, capfd):
    sweep = attempt(study())
    run(sweep, until=1)
    running = sweep.next()
    sweep.started(running)
    sweep.heard(running, 4, {"train/loss": 1.23456})
    bad = sweep.next()
    sweep.started(bad)
    sweep.diverged(bad, "train/loss is not finite at step 7")
    progress = Progress(sweep, tmp_path)
    assert progress.headline() == "by-hand: 2/4 done, 1 running, 1 left, 1 diverged"
    assert list(progress.running()) == [f"{WORKLOAD} {running.id}  step 4/10  train/loss 1.235"]
    progress.tick()
    progress._next_line = 0.0
    progress.tick()
    said = capfd.readouterr().err.splitlines()
    assert said[0] == f"diverged: {WORKLOAD} {bad.id} at step 0: train/loss is not finite at step 7"
    assert said[1].startswith("by-hand: 2/4 done") and len(said) == 2
    sweep.heard(running, 10, {})
    assert ", about 0 s to go" in progress.headline()


def test_a_trial_that_says_nothing_is_named_once(attempt, tmp_path, capfd):
    sweep = attempt(study())
    record = sweep.next()
    sweep.started(record)
    record.heard -= 700
    progress = Progress(sweep, tmp_path)
    progress._watch()
    progress._watch()
    said = capfd.readouterr().err
    assert said == f"no report for 11 min 40 s: {WORKLOAD} {record.id} after step 0\n"


def test_a_ledger_that_cannot_be_written_is_remembered(attempt, tmp_path):
    resource = pytest.importorskip("resource")  # a limit on the file's size stands for the full disk
    sweep = attempt(study())
    record = sweep.next()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "ledger.jsonl").stat().st_size, before[1]))
        with pytest.raises(OSError, match="File too large"):
            sweep.started(record)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert sweep.fault is not None and record.state == "planned"
    assert attempt(study()).left == 4


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 00 s"), (187, "3 min 07 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
