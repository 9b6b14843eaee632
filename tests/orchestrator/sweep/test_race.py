"""First seeds race, the survivors' other seeds follow: held to a model that is told everything and reckons afresh.

The model has the rule of `search_spaces.schedulers` in its plainest form: a list of what was reported, ranked anew for
each decision. A sweep is driven by hand, its driver killed wherever it can be.
"""

import json
import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import names
from orchestrator.record.ledger import ENDED, History, Ledger
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep.sweep import Sweep
from search_spaces.schedulers import AshaSpec, HyperbandSpec

WORKLOAD = "tests.orchestrator.sweep_workload"
RATES = [0.4, 0.1, 0.3, 0.2, 0.5, 0.15]
RACE = {"kind": "asha", "grace": 2, "factor": 2, "race": "first-seed"}
ARMS = {"a": {"train": {"steps": 10}}, "b": {"train": {"steps": 12}}}


def study(**changes):
    content = {"workload": WORKLOAD, "seeds": [5, 0, 1], "axes": {"optim.lr": RATES}, "scheduler": RACE}
    return Study(name="race", **{**content, **changes})


class KilledError(Exception):
    """The driver, between two events."""


class Dying(Ledger):
    """A ledger whose driver is killed once so many lines were written."""

    def __init__(self, folder, left):
        super().__init__(folder)
        self.left = left

    def write_all(self, events):
        for event in events:
            if self.left == 0:
                raise KilledError
            self.left -= 1
            super().write_all([event])


class Drive:
    """Trials without processes: each step of one is a call, and what it reports is given by `value`."""

    def __init__(self, study, folder, value, slots=1, random=None):
        self.study, self.folder, self.value, self.slots = study, folder, value, slots
        self.random = random or Random(0)

    def run(self, events=math.inf):
        """An attempt, killed after so many events; whether it got to its end."""
        history = History(self.folder)
        sweep = Sweep(plan(self.study), history, history.attempts + 1)
        ledger = Dying(self.folder, events)
        try:
            sweep.open(ledger)
            self._run(sweep)
        except KilledError:
            return False
        finally:
            ledger.close()
        assert sweep.left == 0 and not sweep.waits
        assert sweep.total == sweep.done == len(sweep.members)
        return True

    def _run(self, sweep):
        running = []
        while True:
            while len(running) < self.slots and (record := sweep.next()):
                sweep.started(record)
                running.append((record, self._steps(sweep, record)))
            if not running:
                assert not sweep.waits
                return
            place = self.random.randrange(len(running))
            if next(running[place][1], None) is None:
                del running[place]

    def _steps(self, sweep, record):
        """From its first step: a checkpoint would only spare steps that were reported before."""
        rungs = sweep.rungs(record)
        for step in range(1, record.steps + 1):
            value = self.value(record, step)
            sweep.heard(record, step, {"train/loss": value})
            if not math.isfinite(value):
                sweep.diverged(record, f"train/loss is not finite at step {step}")
                return
            if step in rungs and not sweep.goes_on(record, step, value):
                sweep.stopped(record)
                return
            yield step
        sweep.finished(record)


def outcome(folder):
    trials = History(folder).trials
    return {trial: (record.state, record.step, str(record.metrics)) for trial, record in trials.items()}


def check(study, folder):
    """What must hold of a ledger whatever happened on the way."""
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    _check_once(lines)
    _check_rungs(study.scheduler, lines)
    history = History(folder)
    by_cell = {}
    for record in history.trials.values():
        by_cell.setdefault(record.cell, []).append(record)
    assert by_cell.keys() == {cell.id for cell in plan(study).cells}
    for first, *others in by_cell.values():
        assert first.seed == study.seeds[0]
        seeds = {record.seed for record in others}
        assert seeds == (set(study.seeds[1:]) if first.state == names.FINISHED else set())
        assert not any(record.state == names.STOPPED for record in others)
    assert {rung["seed"] for rung in history.rungs} <= {study.seeds[0]}


def _check_once(lines):
    planned = [line["trial"] for line in lines if line["event"] == "planned"]
    ends = Counter(line["trial"] for line in lines if line["event"] in ENDED)
    assert len(planned) == len(set(planned)) and ends == Counter(planned)


def _check_rungs(spec, lines):
    """Each decision, reckoned afresh from all that had been reported until then."""
    halving, seen = spec.build(), []
    order = {}
    for line in lines:
        if line["event"] == "planned" and line["cell"] not in order.setdefault(line["arm"], []):
            order[line["arm"]].append(line["cell"])
    for arm, cells in order.items():
        for cell in cells:
            halving.add(arm, cell)
    for line in (line for line in lines if line["event"] == "rung"):
        bracket = halving.bracket(line["arm"], line["cell"])
        assert line["rung"] in [spec.grace * spec.factor ** (bracket + power) for power in range(12)]
        seen.append((line["arm"], bracket, line["rung"], line["cell"], line["seed"], float(line["value"])))
        assert line["decision"] == model(spec, seen)
    keys = [one[:5] for one in seen]
    assert len(keys) == len(set(keys))


def model(spec, seen):
    """Whether the cell that reported last goes on: the rule in its plainest form (smaller is better)."""
    arm, bracket, rung, mine = seen[-1][:4]
    at = [one for one in seen if one[:3] == (arm, bracket, rung)]
    cells = list(dict.fromkeys(one[3] for one in at))
    values = {cell: [one[5] for one in at if one[3] == cell] for cell in cells}
    means = {c: sum(v) / len(v) if all(map(math.isfinite, v)) else math.inf for c, v in values.items()}
    ranked = sorted(cells, key=lambda cell: (means[cell], cells.index(cell)))
    kept = ranked[: max(1, len(cells) // spec.factor)]
    return "continue" if mine in kept and math.isfinite(means[mine]) else "stop"


def loss(record, step):
    """Cells differ; one of each arm diverges with its first seed after a rung, one with another seed."""
    rate = record.axes["optim.lr"]
    if (rate == 0.15 and record.seed == 5 and step == 3) or (rate == 0.1 and record.seed == 0 and step == 7):
        return math.nan
    return rate + record.seed / 1000 + 1 / step


def test_only_survivors_get_their_other_seeds_and_those_run_to_the_end(tmp_path):
    one = study()
    assert Drive(one, tmp_path, loss).run()
    check(one, tmp_path)
    records = list(History(tmp_path).trials.values())
    ends = {record.axes["optim.lr"]: (record.state, record.step) for record in records if record.seed == 5}
    # By hand, in the plan's order: 0.4 is alone and goes on; 0.1 is better; 0.3 is not; 0.2 is second of 4, of which 2
    # go on at step 2, and second of 3, of which one does, at step 4; 0.5 is not. 0.15 is second of 6 at step 2, where
    # three go on, and diverges before the next rung.
    assert ends == {
        0.4: ("finished", 10), 0.1: ("finished", 10), 0.3: ("stopped", 2),
        0.2: ("stopped", 4), 0.5: ("stopped", 2), 0.15: ("diverged", 3),
    }  # fmt: skip
    others = {(record.axes["optim.lr"], record.seed): record.state for record in records if record.seed != 5}
    assert others == {(0.4, 0): "finished", (0.4, 1): "finished", (0.1, 0): "diverged", (0.1, 1): "finished"}


@pytest.mark.parametrize("scheduler", [RACE, {**RACE, "kind": "hyperband", "brackets": 2}])
def test_a_driver_killed_at_any_event_changes_nothing(tmp_path, scheduler):
    one = study(scheduler=scheduler, axes={"optim.lr": RATES[:4] + RATES[-1:]}, arms=ARMS)
    straight = tmp_path / "straight"
    straight.mkdir()
    assert Drive(one, straight, loss).run()
    expected = outcome(straight)
    assert len(expected) > 10 + 2
    for events in range(len((straight / "ledger.jsonl").read_text().splitlines())):
        folder = tmp_path / str(events)
        folder.mkdir()
        drive = Drive(one, folder, loss)
        assert not drive.run(events)
        while not drive.run(25):  # killed again and again
            pass
        assert outcome(folder) == expected, events
        check(one, folder)


VALUES = st.lists(
    st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, math.nan, math.inf]), min_size=10, max_size=10),
    min_size=len(RATES),
    max_size=len(RATES),
)


@settings(max_examples=150)
@given(
    VALUES,
    st.sampled_from([RACE, {**RACE, "factor": 3}, {**RACE, "kind": "hyperband", "brackets": 2}]),
    st.integers(1, 4),
    st.lists(st.integers(1, 40), max_size=4),
    st.randoms(use_true_random=False),
)
def test_whatever_is_reported_and_whenever_it_is_killed(tmp_path_factory, values, scheduler, slots, kills, random):
    def value(record, step):
        ours = values[RATES.index(record.axes["optim.lr"])][step - 1]
        return ours + record.seed / 1000 if math.isfinite(ours) else ours

    folder = tmp_path_factory.mktemp("race")
    one = study(scheduler=scheduler, trial={"train": {"steps": 9}}, seeds=[5, 0])
    drive = Drive(one, folder, value, slots, random)
    for events in [*kills, math.inf]:
        if drive.run(events):
            break
    check(one, folder)
    rungs = [rung for rung in History(folder).rungs if rung["decision"] == "continue"]
    assert all(math.isfinite(float(rung["value"])) for rung in rungs)


def test_added_seeds_are_for_survivors_and_added_cells_race(tmp_path):
    assert Drive(study(seeds=[5, 0]), tmp_path, loss).run()
    before = outcome(tmp_path)
    more = study(seeds=[5, 0, 1, 2])
    assert Drive(more, tmp_path, loss).run()
    check(more, tmp_path)
    new = {trial: state for trial, (state, *_) in outcome(tmp_path).items() if trial not in before}
    survivors = {trial[:-3] for trial, (state, *_) in before.items() if trial.endswith("-s5") and state == "finished"}
    assert new.keys() == {f"{cell}-s{seed}" for cell in survivors for seed in (1, 2)}

    wider = study(seeds=[5, 0, 1, 2], axes={"optim.lr": [*RATES, 0.05, 0.9]})
    first = outcome(tmp_path)
    assert Drive(wider, tmp_path, loss).run()
    check(wider, tmp_path)
    records = [r for trial, r in History(tmp_path).trials.items() if trial not in first]
    assert Counter(r.axes["optim.lr"] for r in records) == {0.05: 4, 0.9: 1}
    assert {trial: outcome(tmp_path)[trial] for trial in first} == first
    assert Drive(wider, tmp_path, loss).run() and len(outcome(tmp_path)) == len(first) + 5


def test_a_failed_first_seed_keeps_the_others_waiting(tmp_path):
    one = study(axes={"optim.lr": [0.1]})
    sweep = Sweep(plan(one), History(tmp_path), 1)
    ledger = Ledger(tmp_path)
    sweep.open(ledger)
    assert (sweep.left, sweep.total) == (3, 3)
    first = sweep.next()
    sweep.started(first)
    assert sweep.next() is None and sweep.waits and sweep.left == 2
    sweep.failed(first, "RuntimeError: no")
    assert sweep.next() is None and not sweep.waits and sweep.left == 0
    ledger.close()
    assert Drive(one, tmp_path, loss).run()
    assert {trial[-2:]: state for trial, (state, *_) in outcome(tmp_path).items()} == {
        "s5": "finished", "s0": "diverged", "s1": "finished",
    }  # fmt: skip


def test_the_sampler_is_told_the_mean_of_the_seeds_that_ran(tmp_path, monkeypatch):
    told = {}
    search = {"kind": "optuna", "cells": 5, "startup": 2}
    one = study(sampler=search, axes={"optim.lr": {"low": 0.01, "high": 1.0, "log": True}}, seeds=[5, 0])

    class Told:
        def __init__(self, sampler):
            self.ask, self.replay, self.inner = sampler.ask, sampler.replay, sampler

        def tell(self, assignment, value):
            assert told.setdefault(assignment["optim.lr"], value) == value  # once
            self.inner.tell(assignment, value)

    build = Study.sampler_of
    monkeypatch.setattr(Study, "sampler_of", lambda study, arm: Told(build(study, arm)))
    assert Drive(one, tmp_path, lambda record, step: record.axes["optim.lr"] + record.seed + 1 / step).run()
    records = list(History(tmp_path).trials.values())
    by_rate = {}
    for record in records:
        by_rate.setdefault(record.axes["optim.lr"], []).append(record.metrics["train/loss"])
    assert told == {rate: pytest.approx(sum(values) / len(values)) for rate, values in by_rate.items()}
    assert {len(values) for values in by_rate.values()} == {1, 2}


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(1, 20), st.sampled_from([0.0, 1.0, 2.0, math.nan])),
        max_size=50,
    ),
    st.sampled_from([AshaSpec(grace=2, factor=2), AshaSpec(grace=1, factor=3), HyperbandSpec(grace=1, factor=2)]),
)
def test_the_mean_over_seeds_decides_as_the_model_does(reports, spec):
    halving, order = spec.build(), [{"event": "planned", "arm": "a", "cell": str(cell)} for cell in range(7)]
    for line in order:
        halving.add("a", line["cell"])
    for cell, seed, step, value in reports:
        halving.report("a", str(cell), seed, step, value)
    _check_rungs(spec, order + [{"event": "rung", **event} for event in halving.events()])
