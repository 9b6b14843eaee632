"""Rankings, arms, curves and topologies of recorded studies, against what was written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import cells as ranking
from analysis import names, queries
from analysis.edges import Edge
from analysis.report import report
from analysis.store import QueryError, open_store


def test_best_of_the_small_study(store: Any) -> None:
    found = queries.best("small", tracking_uri=store.uri)
    assert [(cell.arm, cell.axes["optim.lr"]) for cell in found] == [
        ("drop", 3e-3),
        ("drop", 1e-3),
        ("cascaded", 3e-3),
        ("cascaded", 1e-3),
    ]
    row = found[0].row()
    assert (row["n"], row["mean"], row["sd"], row["status"]) == (3, pytest.approx(12.0), pytest.approx(1.0), "complete")
    assert row["low"] == pytest.approx(12.0 - 2.4841377)
    assert (row["seeds"], row["values"], row["missing"], row["reason"]) == ([0, 1, 2], [11.0, 12.0, 13.0], [], "")
    assert row["spec"]["topology"] == {"kind": "ancre", "inner_residual": "drop", "normalization": "ingoing"}
    assert "seed" not in row["spec"]
    assert len(set(row["runs"])) == 3
    json.dumps(row, allow_nan=False)


def test_mode_and_top(store: Any) -> None:
    (worst,) = queries.best("small", top=1, mode="max", tracking_uri=store.uri)
    assert (worst.arm, worst.summary.mean) == ("cascaded", pytest.approx(16.0))


def test_every_status_in_its_place(store: Any) -> None:
    found = queries.cells("mixed", tracking_uri=store.uri)
    assert [(cell.arm, cell.status) for cell in found] == [
        ("complete", "complete"),
        ("incomplete", "incomplete"),
        ("stopped", "stopped"),
        ("unfinished", "unfinished"),
        ("diverged", "diverged"),
        ("not-a-number", "diverged"),
        ("infinite", "diverged"),
        ("failed", "failed"),
    ]
    by_arm = {cell.arm: cell for cell in found}
    part = by_arm["incomplete"]
    assert (part.summary.n, part.summary.mean, part.missing) == (2, 10.5, (2,))
    assert part.reason == "seed 2 running"
    assert by_arm["unfinished"].reason == "seed 0 paused; not started: seeds 1, 2"
    assert by_arm["diverged"].reason == "seed 2 diverged: train/loss is not finite at step 7"
    assert by_arm["not-a-number"].reason == "seed 1: val/perplexity ended as nan; seed 2: val/perplexity ended as nan"
    assert by_arm["failed"].reason == "seed 0 failed: out of memory; not started: seeds 1, 2"
    assert (by_arm["stopped"].summary.n, by_arm["infinite"].summary.mean) == (3, None)
    for cell in found:
        json.dumps(cell.row(), allow_nan=False)
        json.dumps([run.row() for run in cell.runs], allow_nan=False)


def test_another_metric_and_an_unknown_one(store: Any) -> None:
    assert queries.best("small", "tokens/s", tracking_uri=store.uri)[0].summary.mean == 1000.0
    with pytest.raises(QueryError, match=r"logged the metric 'val/perplexty'; did you mean 'val/perplexity'\?") as said:
        queries.best("small", "val/perplexty", tracking_uri=store.uri)
    assert "spec/" not in str(said.value)


@pytest.mark.parametrize(
    ("study", "options", "said"),
    [
        ("all-nan", {}, r"no finished run has a finite val/perplexity to rank by \(runs: 3 finished\)"),
        ("all-diverged", {}, r"no run has logged a metric yet \(3 runs read\)"),
        ("just-started", {}, r"no run has logged a metric yet \(0 runs read\)"),
        ("small", {"mode": "smallest"}, "mode 'smallest': it is min or max"),
        ("small", {"top": 0}, "ask for at least 1"),
    ],
)
def test_questions_without_an_answer(store: Any, study: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(QueryError, match=said) as error:
        queries.best(study, **options, tracking_uri=store.uri)
    assert "\n" not in str(error.value)


def test_cells_of_a_study_of_nan_are_still_listed(store: Any) -> None:
    (cell,) = queries.cells("all-nan", tracking_uri=store.uri)
    assert (cell.status, cell.summary.n) == ("diverged", 0)


def test_names_with_quotes_are_data(store: Any, make: Any) -> None:
    (cell,) = queries.best("hostile", tracking_uri=store.uri)
    assert (cell.arm, cell.axes) == (make.hostile, {"data.path": make.hostile})
    with pytest.raises(QueryError, match="no study"):
        queries.best("'; DROP TABLE runs; --", tracking_uri=store.uri)


def test_a_spec_too_long_for_a_tag_is_read_from_its_artifact(store: Any) -> None:
    (cell,) = queries.best("large-spec", tracking_uri=store.uri)
    assert len(cell.spec["note"]) == 6000


def test_runs_are_listed_as_they_started(store: Any) -> None:
    found = queries.runs("small", store.uri)
    assert [run.arm for run in found] == ["cascaded"] * 6 + ["drop"] * 6
    assert found[0].row()["metrics"][names.VAL_PERPLEXITY] == 15.0


def test_arms_say_how_much_tuning_each_had(store: Any) -> None:
    cascaded, drop = queries.arms("small", tracking_uri=store.uri)
    assert (cascaded.arm, cascaded.planned, cascaded.configurations, cascaded.runs) == ("cascaded", 2, 2, 6)
    assert drop.brackets == {"optim.lr": [1e-3, 3e-3], "topology.temperature": [0.1]}
    assert drop.best is not None and drop.best.summary.mean == pytest.approx(12.0)
    assert drop.edges == (Edge("optim.lr", 3e-3, "highest", (0.003, 0.009, 0.027)),)
    json.dumps(drop.row(), allow_nan=False)


def test_arms_of_a_study_whose_plan_was_not_recorded(store: Any) -> None:
    (arm,) = queries.arms("no-parent", tracking_uri=store.uri)
    assert (arm.planned, arm.brackets) == (None, {"optim.lr": [1e-3, 3e-3]})


def test_gaps_are_paired_by_seed(store: Any) -> None:
    drop, _, cascaded, _ = queries.best("small", tracking_uri=store.uri)
    gap = ranking.gap(drop, cascaded)
    assert gap is not None and (gap.mean, gap.low, gap.high, gap.n) == (-3.0, -3.0, -3.0, 3)
    assert gap.clear and gap.lower and not gap.decades


def test_gaps_of_orders_of_magnitude(store: Any) -> None:
    fast, slow = queries.best("linear", tracking_uri=store.uri)
    gap = ranking.gap(fast, slow)
    assert gap is not None and gap.decades
    assert gap.mean == pytest.approx(math.log10(1e-12 / 0.03))


def test_curves_of_each_arms_best_cell(store: Any) -> None:
    rows = queries.curves("small", tracking_uri=store.uri)
    assert {row["arm"] for row in rows} == {"cascaded", "drop"}
    last = rows[-1]
    assert (last["arm"], last["step"], last["n"], last["mean"]) == ("drop", 100, 3, pytest.approx(12.0))
    assert rows[0]["mean"] == pytest.approx(3 * 15.0)
    (arm,) = {row["arm"] for row in queries.curves("small", rows[0]["cell"][:6], tracking_uri=store.uri)}
    assert arm == rows[0]["arm"]
    with pytest.raises(QueryError, match="no cell 'zzz'"):
        queries.curves("small", "zzz", tracking_uri=store.uri)
    one = queries.curves("one-seed", tracking_uri=store.uri)[0]
    assert (one["low"], one["high"]) == (None, None)


def test_topologies_of_the_best_cells(store: Any) -> None:
    (found,) = queries.topology("small", tracking_uri=store.uri)
    assert (found.cell.arm, found.network, found.seeds, found.p.shape) == ("drop", "decoder", (0, 1, 2), (3, 5, 5))
    row = found.row()
    assert row["pearson"] > 0.8 and row["pearson_p"] < 0.05
    assert np.array(row["p"]) == pytest.approx(found.p.mean(axis=0))
    assert row["first"] + row["previous"] + row["middle"] == pytest.approx(1.0)
    json.dumps(row, allow_nan=False)


def test_the_topology_of_one_cell_by_the_start_of_its_name(store: Any) -> None:
    cell = queries.best("small", tracking_uri=store.uri)[1]
    (found,) = queries.topology("small", cell.cell[:6], tracking_uri=store.uri)
    assert found.cell.cell == cell.cell
    with pytest.raises(QueryError, match="has no cell 'nothing'"):
        queries.topology("small", "nothing", tracking_uri=store.uri)
    with pytest.raises(QueryError, match="recorded a learned topology"):
        queries.topology("many", tracking_uri=store.uri)


def recorded(store: Any, make: Any, name: str, **entries: Mapping[str, Any]) -> None:
    """A study with an arm for each entry, whose topology.json it changes."""
    p = [[0, 1, 0.5], [0, 0, 0.5], [0, 0, 0]]
    store.study(name, [make.Trial(arm, 0, 1.0, p=p) for arm in entries], seeds=[0])
    for run in open_store(store.uri).study(name).runs:
        path = Path(run.artifact_uri) / names.TOPOLOGY_FILE
        content = json.loads(path.read_text())
        content["networks"]["decoder"].update(entries[run.arm])
        path.write_text(json.dumps(content))


def test_a_network_without_a_matrix_is_left_out_or_named(store: Any, make: Any) -> None:
    without = {"kind": "attention-residual", "rule": "outputs", "p": None}
    recorded(store, make, "no-matrix", usual={}, streams={"rule": "outputs"}, attention=without)
    found = queries.topology("no-matrix", tracking_uri=store.uri)
    assert {one.cell.arm: one.outputs for one in found} == {"usual": False, "streams": True}
    (cell,) = [one.cell for one in queries.best("no-matrix", tracking_uri=store.uri) if one.arm == "attention"]
    with pytest.raises(QueryError, match=r"attention-residual has no matrix, since every weight depends on the input$"):
        queries.topology("no-matrix", cell, tracking_uri=store.uri)
    page = report(["no-matrix"], Path(store.folder) / "no-matrix.html", store.uri).path.read_text()
    assert "attention-residual has no matrix" in page
    assert "Of streams, the weights are those of outputs, not of states" in page


def test_comparisons_are_made_within_a_model(store: Any) -> None:
    ranked = queries.cells("small", tracking_uri=store.uri)
    (one,) = ranking.comparisons(ranked)
    assert (one.cell, one.base, one.gap.mean) == (ranked[0], ranked[2], -3.0)
    deeper = [replace(cell, spec={**cell.spec, "model": {"depth": 8}}) for cell in ranked]
    assert [two.model["depth"] for two in ranking.comparisons([*deeper, *ranked])] == [8, 4]
    assert ranking.comparisons([deeper[0], *ranked[2:]]) == []  # no model has both


@pytest.mark.parametrize(
    ("arm", "kind", "is_one"), [("a", "cascaded", True), ("none", "shortcuts", True), ("a", "ancre", False)]
)
def test_what_others_are_measured_against(store: Any, arm: str, kind: str, is_one: bool) -> None:
    cell = queries.best("small", tracking_uri=store.uri)[0]
    assert ranking.is_baseline(replace(cell, arm=arm, spec={"topology": {"kind": kind}})) is is_one
