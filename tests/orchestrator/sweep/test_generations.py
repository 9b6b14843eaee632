"""Populations: who is replaced by whom, at which values, what is on disk afterwards, and what a killed driver changes.

Trials are driven by hand and leave real checkpoints. A member's state is one number, so what it must be in the end
follows from the ledger: the numbers that its lineage added at the rates that it then had.
"""

import json
import random
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import InputError
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.record.ledger import ENDED, History
from orchestrator.study.export import trial_now
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep.exploit import Member, decide
from orchestrator.sweep.sweep import Sweep
from search_spaces.domains import Choices, Range
from search_spaces.schedulers import PbtSpec
from tests.orchestrator.sweep.test_race import Dying, KilledError

RATES = [0.1, 0.2, 0.3, 0.4, 0.5]
PBT = {"kind": "pbt", "interval": 4, "mutate": ["optim.lr"]}
TRAIN = {"steps": 12, "log_every": 2, "checkpoint_every": 2}


def study(**changes):
    content = {"workload": "lnn", "seeds": [0, 1], "axes": {"optim.lr": RATES}, "scheduler": PBT}
    return Study(name="pbt", **{**content, "trial": {"train": TRAIN}, **changes})


class Drive:
    """Attempts at a study whose trials add their rate to a number at each step, kept in checkpoints every 2 steps."""

    def __init__(self, study, folder, slots=1, bad=(), order=None):
        self.study, self.folder, self.slots, self.bad = study, folder, slots, bad
        self.order = order or random.Random(0)

    def run(self, events=10**9):
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
        return True

    def _run(self, sweep):
        running = []
        while True:
            while len(running) < self.slots and (record := sweep.next()):
                sweep.started(record)
                running.append(self._steps(sweep, record))
            if not running:
                return
            trial = self.order.choice(running)
            if next(trial, None) is None:
                running.remove(trial)

    def _steps(self, sweep, record):
        trial, until = trial_now(record), sweep.pause_at(record)
        kept = Checkpoints(self.folder / "trials" / record.id / "checkpoints", trial.model_dump(mode="json"))
        step = kept.newest() or 0
        total = kept.load(step)["total"] if step else torch.zeros(())
        if step:
            sweep.heard(record, step, {"train/loss": total.item()})
        while step < record.steps and (step != until or not until):
            step += 1
            total = total + trial.optim.lr
            if step % 2 == 0:
                kept.save(step, {"total": total})
            sweep.heard(record, step, {"train/loss": total.item()})
            if (record.axes["optim.lr"], step) in self.bad:
                sweep.diverged(record, f"train/loss is not finite at step {step}")
                return
            yield step
        if step == until:
            sweep.reached(record, total.item())
        else:
            sweep.finished(record)


def outcome(folder):
    """What there is of a sweep in the end; the order of events apart."""
    trials = History(folder).trials.values()
    return {r.id: (r.state, r.step, round(r.metrics["train/loss"], 5), r.changes) for r in trials}


def events(folder, name):
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


def check(folder):
    """What must hold of a ledger: populations apart, the worst by the best, and every total explained by it."""
    history = History(folder)
    values = {(f"{one['cell']}-s{one['seed']}", one["rung"]): one["value"] for one in history.rungs}
    assert len(values) == len(history.rungs)
    totals = {trial: {0: 0.0} for trial in history.trials}
    rates = {trial: record.axes["optim.lr"] for trial, record in history.trials.items()}
    for generation in sorted(history.generations, key=lambda one: one["rung"]):
        step, members = generation["rung"], generation["members"]
        assert len({(history.trials[trial].arm, history.trials[trial].seed) for trial in members}) == 1
        here = [trial for trial in members if (trial, step) in values]
        for trial in here:
            totals[trial][step] = totals[trial][step - 4] + 4 * rates[trial]
            assert values[trial, step] == pytest.approx(totals[trial][step], rel=1e-5)
        worst_first = sorted(here, key=lambda trial: -values[trial, step])
        count = min(-(-len(here) // 4), len(here) // 2)
        exploits = generation["exploits"]
        assert {one["trial"] for one in exploits} == set(worst_first[:count])
        assert {one["donor"] for one in exploits} <= set(worst_first[len(here) - count :])
        for one in exploits:
            totals[one["trial"]][step] = totals[one["donor"]][step]
            rate = rates[one["trial"]] = one["values"]["optim.lr"]
            assert rate in RATES
    for trial, record in history.trials.items():
        assert record.axes["optim.lr"] == record.spec["optim"]["lr"]  # what it began with
        if record.state == "finished":
            last = max(totals[trial])
            assert record.metrics["train/loss"] == pytest.approx(
                totals[trial][last] + (12 - last) * rates[trial], rel=1e-5
            )
    ends = Counter(line["trial"] for name in ENDED for line in events(folder, name))
    assert set(ends.values()) == {1}


def test_the_worst_go_on_from_the_best_and_every_number_is_explained_by_the_ledger(tmp_path):
    assert Drive(study(), tmp_path).run()
    assert len(events(tmp_path, "generation")) == 4  # two seeds, after steps 4 and 8
    assert Counter(len(one["exploits"]) for one in events(tmp_path, "generation")) == {2: 4}
    check(tmp_path)


def test_a_driver_killed_at_any_event_changes_nothing(tmp_path):
    one = study(seeds=[0], axes={"optim.lr": RATES[:4]})
    straight = tmp_path / "straight"
    straight.mkdir()
    assert Drive(one, straight, bad={(0.3, 7)}).run()
    expected = outcome(straight)
    assert Counter(state for state, *_ in expected.values()) == {"finished": 3, "diverged": 1}
    for count in range(0, len((straight / "ledger.jsonl").read_text().splitlines()), 1):
        folder = tmp_path / str(count)
        folder.mkdir()
        drive = Drive(one, folder, bad={(0.3, 7)})
        assert not drive.run(count)
        while not drive.run(12):
            pass
        assert outcome(folder) == expected, count
        check(folder)


def test_a_driver_killed_while_it_copies_makes_the_copies_before_anyone_goes_on(tmp_path, monkeypatch):
    one = study(seeds=[0])
    straight, torn = tmp_path / "straight", tmp_path / "torn"
    straight.mkdir()
    torn.mkdir()
    assert Drive(one, straight).run()
    copies, copy = [], Checkpoints.take_over

    def dies(own, donor, step):
        copies.append(step)
        if len(copies) in (2, 3, 5):
            raise KilledError
        return copy(own, donor, step)

    monkeypatch.setattr(Checkpoints, "take_over", dies)
    while not Drive(one, torn).run():
        pass
    assert outcome(torn) == outcome(straight)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(3, 40), max_size=3), st.randoms(use_true_random=False))
def test_neither_order_nor_kills_matter(tmp_path_factory, slots, kills, order):
    straight, torn = (tmp_path_factory.mktemp("pbt") for _ in range(2))
    assert Drive(study(seeds=[0]), straight).run()
    drive = Drive(study(seeds=[0]), torn, slots, order=order)
    for count in [*kills, 10**9]:
        if drive.run(count):
            break
    assert outcome(torn) == outcome(straight)
    check(torn)


def test_a_member_that_fails_holds_its_population_up_until_it_is_run_again(tmp_path):
    one = study(seeds=[0], axes={"optim.lr": RATES[:2]})
    sweep = Sweep(plan(one), History(tmp_path), 1)
    ledger = Dying(tmp_path, 10**9)
    sweep.open(ledger)
    drive = Drive(one, tmp_path)
    first, second = sweep.next(), sweep.next()
    sweep.started(first)
    assert list(drive._steps(sweep, first)) and sweep.next() is None and sweep.waits
    sweep.started(second)
    sweep.failed(second, "RuntimeError: no")
    assert sweep.next() is None and not sweep.waits and sweep.left == 1
    assert (first.state, first.cause) == ("paused", "waits at step 4 for its population")
    ledger.close()
    assert drive.run()
    check(tmp_path)


def test_a_population_that_has_begun_cannot_change(tmp_path):
    assert Drive(study(seeds=[0]), tmp_path).run()
    with pytest.raises(InputError, match="a population of 5 trials that has begun cannot become one of 6; "):
        Drive(study(seeds=[0], axes={"optim.lr": [*RATES, 0.6]}), tmp_path).run()
    assert Drive(study(seeds=[0, 7]), tmp_path).run()  # another seed is another population
    check(tmp_path)
    with pytest.raises(InputError, match="a population of 5 trials that has begun needs pbt to go on"):
        Drive(study(seeds=[0, 7, 8], scheduler={"kind": "none"}), tmp_path).run()


def test_trials_that_ran_without_pbt_are_no_population(tmp_path):
    assert Drive(study(seeds=[0], scheduler={"kind": "none"}), tmp_path).run()
    with pytest.raises(InputError, match="'pbt': trials of it ran to their end without pbt"):
        Drive(study(seeds=[0]), tmp_path).run()


MEMBERS = st.lists(st.floats(-100, 100), min_size=2, max_size=9, unique=True)


@given(MEMBERS, st.sampled_from([0.1, 0.25, 0.5]), st.sampled_from(["min", "max"]), st.integers(0, 3))
def test_tunes_rule_takes_from_the_best_and_stays_inside_the_axes(values, quantile, mode, seed):
    spec = PbtSpec(interval=5, mutate=["a", "b", "c"], quantile=quantile, seed=seed)
    domains = {"a": Choices((3.0, 1.0, 2.0)), "b": Range(0.5, 2.0, log=True), "c": Range(1, 9, step=4)}
    members = [Member(f"t{n}", {"a": 2.0, "b": 1.0 + n / 10, "c": 5}, value) for n, value in enumerate(values)]
    before = random.getstate()
    exploits = decide(spec, mode, domains, members, 5)
    assert random.getstate() == before
    assert decide(spec, mode, domains, members, 5) == exploits
    ranked = sorted(members, key=lambda member: member.value, reverse=mode == "max")
    count = min(int(-(-len(members) * quantile // 1)), len(members) // 2)
    assert [one["trial"] for one in exploits] == [m.trial_id for m in reversed(ranked[len(ranked) - count :])]
    best = {member.trial_id: member for member in ranked[:count]}
    for one in exploits:
        assert one["donor"] in best
        a, b, c = (one["values"][axis] for axis in "abc")
        assert a in (1.0, 2.0, 3.0) and 0.5 <= b <= 2.0 and c in (1, 5, 9) and type(c) is int


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheduler": {**PBT, "mutate": ["optim.lt"]}}, "scheduler.mutate: no axis 'optim.lt'; did you mean"),
        ({"scheduler": {**PBT, "interval": 5}},
         "scheduler.interval: should be below the 12 steps of arm cascaded and a multiple of 2, when its trials both "
         "save and evaluate, got 5"),
        ({"scheduler": {**PBT, "interval": 12}}, "scheduler.interval: should be below the 12 steps"),
        ({"axes": {"optim.lr": [0.1]}},
         "scheduler.mutate: arm cascaded has a population of 1; it should have 2 or more values of optim.lr"),
        ({"axes": {"optim.lr": RATES, "model.depth": [2, 3]}, "scheduler": {**PBT, "mutate": ["model.depth"]}},
         "scheduler.mutate: model.depth change the network of arm cascaded, which a checkpoint cannot"),
        ({"trial": {"train": {"steps": 12, "log_every": 2}}}, "scheduler.kind: pbt needs checkpoints and evaluations"),
        ({"axes": {"optim.lr": {"low": 0.1, "high": 1.0}}, "sampler": {"kind": "optuna", "cells": 4}},
         'sampler.kind: a population is whole from its start; should be "grid" or "random" with pbt'),
        ({"axes": {"topology.inner_residual": ["keep", "drop"]}, "trial": {"topology.kind": "ancre", "train": TRAIN},
          "scheduler": {**PBT, "mutate": ["topology.inner_residual"]}}, "should be an axis of numbers, got 'keep' in"),
        ({"workload": "tests.orchestrator.sweep_workload", "trial": {}},
         "trials of workload tests.orchestrator.sweep_workload cannot take each other's checkpoints"),
    ],
)  # fmt: skip
def test_what_is_no_population_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError) as caught:
        plan(study(**changes))
    assert message in str(caught.value) and "\n" not in str(caught.value)
