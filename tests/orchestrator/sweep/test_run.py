"""Sweeps end to end in one Ray: what runs, what does not, and what the ledger, the spools and MLflow have of it."""

import html
import json
import os
import re
import shutil
import socket
import threading
import time
from collections import Counter

import pytest
import torch

from analysis import names, queries
from analysis.report import report
from analysis.store import open_store
from models.linear import LinearNetwork
from models.linear_spec import LinearSpec
from models.topology.cascaded import Spec as Cascaded
from orchestrator import cli
from orchestrator.errors import InputError
from orchestrator.record import spool
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.record.tracking import uri_of
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster
from orchestrator.sweep.run import resume, start
from tests.orchestrator.local_ray import local_ray

WORKLOAD = "tests.orchestrator.sweep_workload"
LR = {"optim.lr": [0.1, 0.2, 0.3]}


@pytest.fixture(scope="module", autouse=True)
def ray_here():
    """One Ray for the whole file: starting one takes longer than the sweeps."""
    with local_ray(cpus=2):
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """One home, for making MLflow's tables takes longer than the sweeps."""
    return tmp_path_factory.mktemp("home")


def study(name, **changes):
    content = {"workload": WORKLOAD, "seeds": [0, 1], "axes": LR, "trial": {"train": {"steps": 5}}}
    return Study(name=name, **{**content, **changes})


def records(home, name):
    return History(home / "studies" / name).trials


def ended_once(home, name):
    """Whether each planned trial ended exactly once."""
    lines = (home / "studies" / name / LEDGER_FILE).read_text().splitlines()
    seen = [(event["event"], event.get("trial")) for event in map(json.loads, lines)]
    ends = Counter(trial for event, trial in seen if event in (names.FINISHED, names.STOPPED, names.DIVERGED))
    return ends == {trial: 1 for event, trial in seen if event == "planned"}


def recorded(home, name):
    return {run.id: run for run in open_store(uri_of(home)).study(name).runs}


def test_a_study_runs_once_and_only_what_is_new(home, monkeypatch):
    first = start(study("once"), home)
    assert (first.trials, first.ran, first.unsent, first.exit_code) == ({"finished": 6}, 6, 0, 0)
    assert ended_once(home, "once")
    for record in records(home, "once").values():
        assert record.metrics == {"train/loss": pytest.approx(record.axes["optim.lr"] + record.seed / 1000 + 0.2),
                                  "twice": 10.0}  # fmt: skip
        assert [row["step"] for row in spool.rows(home / "studies" / "once" / "trials" / record.id)] == [1, 2, 3, 4, 5]
    runs = recorded(home, "once")
    assert len(runs) == 6 and {run.state for run in runs.values()} == {names.FINISHED}
    store = open_store(uri_of(home))
    curves = store.history(runs.values(), "train/loss")
    assert [[step for step, _ in curve] for curve in curves.values()] == [[1, 2, 3, 4, 5]] * 6
    kept = store.study("once")
    assert (kept.metric, kept.seeds, kept.arms[WORKLOAD]["configurations"]) == ("train/loss", (0, 1), 3)
    assert Study.parse(store.study_file(kept)) == study("once")
    assert (home / "cache" / "prepared").read_text() == "once\n"

    with monkeypatch.context() as patched:  # not even Ray is asked for
        patched.setattr(cluster, "connected", None)
        again = start(study("once"), home)
    assert (again.ran, again.trials) == (0, {"finished": 6})

    more = start(study("once", seeds=[1, 2]), home)
    assert (more.ran, more.trials) == (3, {"finished": 9})
    assert {record.seed for record in records(home, "once").values()} == {0, 1, 2}
    assert open_store(uri_of(home)).study("once").seeds == (0, 1, 2)

    wider = start(study("once", axes={"optim.lr": [0.1, 0.2, 0.3, 0.4]}), home)
    assert (wider.ran, wider.trials) == (2, {"finished": 8})
    assert ended_once(home, "once") and len(recorded(home, "once")) == 11

    with pytest.raises(InputError, match="3 configurations that it no longer has"):
        start(study("once", axes={"optim.lr": [0.4]}), home)
    with pytest.raises(InputError, match="4 configurations that it no longer has"):  # the same cells, trained for less
        start(study("once", trial={"train": {"steps": 4}}), home)


def test_what_diverges_fails_or_is_killed_does_not_stop_the_rest(home):
    def arm(**train):
        return {"train": {"steps": 6, **train}}

    arms = {
        "good": arm(),
        "diverges": arm(diverge_at=3),
        "fails": arm(fail_at=4),
        "fails-once": arm(fail_once_at=4),
        "killed-once": arm(kill_once_at=3, checkpoint_every=2),
    }
    done = start(study("mixed", arms=arms, axes={}, seeds=[0]), home)
    assert done.trials == {"finished": 3, "diverged": 1, "failed": 1} and done.exit_code == 1
    by_arm = {record.arm: record for record in records(home, "mixed").values()}
    folders = {arm: home / "studies" / "mixed" / "trials" / record.id for arm, record in by_arm.items()}
    assert (by_arm["diverges"].step, by_arm["diverges"].cause) == (3, "train/loss is not finite at step 3")
    assert spool.rows(folders["diverges"])[-1]["metrics"]["train/loss"] == "nan"
    assert by_arm["fails"].cause == "RuntimeError: told to fail at step 4"
    assert "Traceback" in (folders["fails"] / spool.ERROR_FILE).read_text()
    assert (folders["fails"] / "starts").read_text().split() == ["1", "3"]  # tried again, from its checkpoint
    assert (folders["killed-once"] / "starts").read_text().split() == ["1", "2"]
    for arm in ("good", "fails-once", "killed-once"):
        assert [row["step"] for row in spool.rows(folders[arm])] == [1, 2, 3, 4, 5, 6]
    runs = {run.arm: run for run in recorded(home, "mixed").values()}
    assert {arm: run.state for arm, run in runs.items()} == {arm: record.state for arm, record in by_arm.items()}
    assert runs["diverges"].cause == by_arm["diverges"].cause
    assert json.loads(runs["diverges"].tags[names.NON_FINITE]) == {"train/loss": {"count": 1, "first": 3}}

    again = resume("mixed", home)  # what failed is run again, what diverged is not
    assert again.ran == 0 and again.trials == done.trials
    assert len((folders["fails"] / "starts").read_text().split()) == 4
    assert len((folders["diverges"] / "starts").read_text().split()) == 1


def test_first_seeds_race_and_the_survivors_get_their_other_seeds(home):
    race = {"kind": "asha", "grace": 2, "factor": 2, "race": "first-seed"}
    trial, axes = {"train": {"steps": 8, "sleep": 0.01}}, {"optim.lr": [0.1, 0.2, 0.3, 0.4]}
    one = study("race", axes=axes, trial=trial, scheduler=race, seeds=[0, 1, 2], resources={"concurrent": 1})
    done = start(one, home)
    assert (done.trials, done.ran, done.left) == ({"finished": 3, "stopped": 3}, 6, 0)
    states = {(r.axes["optim.lr"], r.seed): r.state for r in records(home, "race").values()}
    assert states == {(0.1, 0): "finished", (0.1, 1): "finished", (0.1, 2): "finished",
                      **{(rate, 0): "stopped" for rate in (0.2, 0.3, 0.4)}}  # fmt: skip
    ranked = queries.cells("race", tracking_uri=uri_of(home))
    assert [(cell.axes["optim.lr"], cell.status, cell.summary.n) for cell in ranked] == [
        (0.1, "complete", 3), (0.2, "stopped", 1), (0.3, "stopped", 1), (0.4, "stopped", 1),
    ]  # fmt: skip
    more = start(study("race", axes=axes, trial=trial, scheduler=race, seeds=[3]), home)
    assert (more.ran, more.trials) == (1, {"finished": 4, "stopped": 3})
    said = reported("race", home)
    assert "up to 4 seeds for each: 0, 1, 2, 3. Sampler: grid; scheduler: asha. It stopped 3 trials early." in said
    assert (
        "First seeds raced: the other seeds were for the 1 of 4 configurations whose first one got to the end." in said
    )
    assert "1 to 4" in said  # seeds that a configuration of the arm was run with
    assert "4 of 7 trials finished" in said and "not started" not in said.split("trials finished")[1][:60]


def test_asha_stops_the_worse_cells_and_remembers(home):
    half = {"kind": "asha", "grace": 2, "factor": 2}
    axes = {"optim.lr": [0.1, 0.2, 0.3, 0.4]}
    trial = {"train": {"steps": 8, "sleep": 0.02}}
    done = start(study("asha", axes=axes, trial=trial, scheduler=half, resources={"concurrent": 1}), home)
    seen = records(home, "asha").values()
    best = [record for record in seen if record.axes["optim.lr"] == 0.1]
    assert {record.state for record in best} == {names.FINISHED}
    rest = [record for record in seen if record not in best]
    assert {(record.state, record.step) for record in rest} == {(names.STOPPED, 2)}
    assert rest[0].cause == "asha: not among the best at step 2"
    assert done.trials == {"finished": 2, "stopped": 6} and done.exit_code == 0
    steps = {run.id: run.metrics["twice"] / 2 for run in recorded(home, "asha").values()}
    assert steps == {record.id: record.step for record in seen}

    wider = start(study("asha", axes={"optim.lr": [*axes["optim.lr"], 0.5]}, trial=trial, scheduler=half), home)
    assert wider.ran == 2  # stopped counts as ended, and the rung table is as it was
    new = [r for r in records(home, "asha").values() if r.axes["optim.lr"] == 0.5]
    assert {(record.state, record.step) for record in new} == {(names.STOPPED, 2)}


def test_a_population_trains_on_from_the_best_at_the_values_that_the_ledger_says(home, capsys):
    one = Study(
        name="pbt",
        workload="lnn",
        seeds=[0],
        trial={"train": {"steps": 40, "log_every": 10, "checkpoint_every": 10}},
        axes={"optim.lr": [1e-4, 3e-3, 1e-2, 3e-2]},
        scheduler={"kind": "pbt", "interval": 10, "mutate": ["optim.lr"], "seed": 1},
    )
    done = start(one, home)
    assert (done.trials, done.left, done.unsent) == ({"finished": 4}, 0, 0)
    trials = records(home, "pbt")
    assert sum(len(record.changes) for record in trials.values()) == 3  # one of four, after steps 10, 20 and 30

    def rates(record, until):
        """The rate of each step that led to its weights."""
        change = next((change for change in reversed(record.changes) if change["step"] < until), None)
        if change is None:
            return [record.axes["optim.lr"]] * until
        return rates(trials[change["donor"]], change["step"]) + [change["values"]["optim.lr"]] * (
            until - change["step"]
        )

    for record in trials.values():
        network = LinearNetwork(LinearSpec(), Cascaded(), seed=0)
        for rate in rates(record, 40):
            network().backward()
            with torch.no_grad():
                for weights in network.parameters():
                    weights -= rate * weights.grad
                    weights.grad = None
        assert record.metrics["train/loss"] == pytest.approx(network().item(), rel=1e-9)

    runs = recorded(home, "pbt")
    assert {trial: run.changes for trial, run in runs.items()} == {trial: r.changes for trial, r in trials.items()}
    assert {run.axes["optim.lr"] for run in runs.values()} == {1e-4, 3e-3, 1e-2, 3e-2}
    assert start(one, home).ran == 0

    said = reported("pbt", home)
    assert "In populations: 3 times a trial took over the weights of a better one of its arm and seed, and went" in said
    assert said.count("Values of optim.lr are those that a trial began with: they changed on the way.") == 2
    best = queries.best("pbt", tracking_uri=uri_of(home))[0]
    assert best.row()["changed"] == (["optim.lr"] if trials[f"{best.cell}-s0"].changes else [])
    (replaced, *_) = [record for record in trials.values() if record.changes]
    assert cli.main(["query", "runs", "pbt", "--home", str(home)]) == 0
    assert f"lr {replaced.axes['optim.lr']:g} at first" in capsys.readouterr().out
    assert cli.main(["export", replaced.cell, "--home", str(home)]) == 0
    assert capsys.readouterr().out.startswith("# What its trials began with: optim.lr changed on the way.\n")


def reported(name, home):
    """What a report says, as words."""
    text = report([name], home / f"{name}.html", uri_of(home)) and (home / f"{name}.html").read_text()
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_optuna_learns_from_what_ended_also_across_starts(home):
    search = {
        "axes": {"optim.lr": {"low": 0.001, "high": 1.0, "log": True}},
        "sampler": {"kind": "optuna", "cells": 6, "startup": 2, "seed": 1},
        "trial": {"train": {"steps": 2}},
        "resources": {"concurrent": 1},
    }
    start(study("straight", **search, seeds=[0]), home)
    asked = [record.axes for record in records(home, "straight").values()]
    assert len(asked) == 6 and ended_once(home, "straight")

    folder = home / "studies" / "torn"  # as a driver leaves it that was killed after four trials
    shutil.copytree(home / "studies" / "straight", folder, ignore=shutil.ignore_patterns("uploaded.json"))
    text = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text(text.replace('name = "straight"', 'name = "torn"'))
    lines = (folder / LEDGER_FILE).read_text().splitlines(keepends=True)
    fourth = [place for place, line in enumerate(lines) if '"event":"finished"' in line][3]
    (folder / LEDGER_FILE).write_text("".join(lines[: fourth + 1]))
    assert resume("torn", home).trials == {"finished": 6}
    assert [record.axes for record in records(home, "torn").values()] == asked

    assert start(study("torn", **search, seeds=[0, 1]), home).ran == 6  # a new seed of every cell, and no new cell
    assert ended_once(home, "torn")


def test_a_dead_tracking_server_stops_nothing_and_gets_everything_later(home, monkeypatch, capfd):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://me:secret@127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", dead)
    done = start(study("dead"), home)
    assert (done.trials, done.unsent, done.exit_code) == ({"finished": 6}, 6, 0)
    said = capfd.readouterr().err
    assert "6 runs were not sent to http://***@127.0.0.1" in said and "Connection refused" in said
    assert "ancre sync dead" in said and "secret" not in said
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    later = resume("dead", home)
    assert (later.ran, later.unsent) == (0, 0)
    assert len(recorded(home, "dead")) == 6


def test_two_starts_at_once_are_refused(home):
    slow = study("two", trial={"train": {"steps": 5, "sleep": 0.2}}, seeds=[0])
    first = threading.Thread(target=start, args=(slow, home))
    first.start()
    try:
        while not (home / "studies" / "two" / LEDGER_FILE).exists():
            time.sleep(0.05)
        with pytest.raises(InputError, match=rf"study 'two' is run by {os.getpid()}@"):
            start(slow, home)
    finally:
        first.join()
    assert ended_once(home, "two")


def test_a_metric_that_never_comes_costs_no_trial_and_is_named(home, capsys):
    halving = {"kind": "asha", "grace": 2, "factor": 2}  # has nothing to decide on
    done = start(study("absent", metric="val/loss", seeds=[0], scheduler=halving), home)
    assert done.trials == {"finished": 3}
    assert cli.main(["query", "best", "absent", "--home", str(home)]) == 2
    assert "'val/loss'" in capsys.readouterr().err


def test_what_the_cluster_can_never_give_is_refused_before_anything_starts(home):
    for resources in ({"cpus": 3}, {"workers": 3}, {"gpus": 1}):
        with pytest.raises(InputError, match="resources: a trial takes"):
            start(study("large", resources=resources), home)
    assert not (home / "studies" / "large").exists()


def test_a_study_file_that_was_renamed_is_refused(home):
    folder = home / "studies" / "before"
    folder.mkdir(parents=True)
    (folder / names.STUDY_FILE).write_text(study("after").to_toml())
    with pytest.raises(InputError, match="name: should be 'before', as its folder, got 'after'"):
        resume("before", home)
    shutil.rmtree(folder)


def test_answers_that_cannot_be_written_are_refused_in_one_line(home, capsys):
    assert cli.main(["export", "", "--home", str(home), "--study", "once", "--out", str(home)]) == 2
    assert cli.main(["report", "once", "--home", str(home), "--out", str(home)]) == 2
    assert "Is a directory" in capsys.readouterr().err


def test_an_unknown_study_is_named(home):
    folder = home / "studies" / "some-study"
    folder.mkdir()
    (folder / "study.toml").write_text(study("some-study").to_toml())
    with pytest.raises(InputError, match=r"no study 'some-studi' was started in .*; did you mean 'some-study'"):
        resume("some-studi", home)
