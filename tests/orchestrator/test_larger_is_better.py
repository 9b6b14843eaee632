"""A workload whose metric is to be large: the study, its scheduler and its sampler all go for the larger end."""

import math
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.record.ledger import History, Ledger
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep.sweep import Sweep
from orchestrator.workloads.base import Place

RATES = [0.01, 0.05, 0.2, 0.4]


def study(**changes: object) -> Study:
    return Study(**{"name": "hill", "workload": "toys.hill", "axes": {"rate": RATES}, **changes})


def test_mode_is_the_workloads_unless_given() -> None:
    assert [study(**said).mode for said in ({}, {"mode": ""}, {"mode": "min"})] == ["max", "max", "min"]
    assert Study.parse(study().to_toml()) == study(mode="max")
    assert Study(name="bowl", workload="toys.bowl", trial={"optim": {"kind": "sgd"}}).mode == "min"
    assert "ranked by eval/height (max)" in plan(study()).text()


@pytest.mark.parametrize(("metric", "mode"), [("eval/height", "max"), ("val/loss", "min"), ("eval/own", "max")])
def test_another_metric_has_its_own_end_where_that_is_known(metric: str, mode: str) -> None:
    assert study(metric=metric).mode == mode


def heights(rate: float, tmp_path: Path) -> list[float]:
    trial = next(cell.trial for cell in plan(study()).cells if cell.axes["rate"] == rate)
    return [row.metrics["eval/height"] for row in trial.rows(Place(tmp_path, tmp_path))]


@pytest.mark.parametrize(("mode", "survivor"), [("max", 0.4), ("min", 0.01)])
def test_halving_keeps_the_better_end(tmp_path: Path, mode: str, survivor: float) -> None:
    """Trials report in order of rate, so each is the best so far in one mode and the worst in the other."""
    asha = study(mode=mode, scheduler={"kind": "asha", "grace": 2, "factor": 4})
    sweep = Sweep(plan(asha), History(tmp_path), 1)
    with closing(Ledger(tmp_path)) as ledger:
        sweep.open(ledger)
        records = {}
        while record := sweep.next():
            records[record.axes["rate"]] = record
        order = RATES if mode == "min" else RATES[::-1]
        goes_on = [rate for rate in order if sweep.goes_on(records[rate], 2, heights(rate, tmp_path)[2])]
    assert goes_on == [survivor]


@pytest.mark.parametrize(("mode", "best"), [("max", 0.9), ("min", 0.1)])
def test_tpe_goes_where_the_better_end_is(mode: str, best: float) -> None:
    """The metric is the rate itself; a diverged configuration is the worst in both modes."""
    asked = study(
        mode=mode, axes={"rate": {"low": 0.0, "high": 1.0}}, sampler={"kind": "optuna", "cells": 40, "startup": 10}
    )
    sampler = asked.sampler_of("toys.hill")
    drawn = []
    while values := sampler.ask():
        drawn.append(values["rate"])
        sampler.tell(values, values["rate"] if 0.05 < values["rate"] < 0.95 else math.nan)
    late = drawn[20:]
    assert abs(sum(late) / len(late) - best) < 0.2
