"""What runs saw at each depth: the last look of each, mean over seeds, as rows and as a figure."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from analysis import plots_depth, queries
from analysis.drawing import Series
from analysis.sections.depths import PANELS
from analysis.store import QueryError, open_store


def test_rows_are_means_over_seeds_of_the_last_look(store: Any) -> None:
    """States of seed s grow by 2 + s / 10 (cascaded) a block."""
    rows = [row for row in queries.depths("measured", tracking_uri=store.uri) if row["arm"] == "cascaded"]
    assert [row["depth"] for row in rows] == [0, 1, 2, 3, 4]
    assert {row["step"] for row in rows} == {100}
    assert [row["state_rms"] for row in rows] == pytest.approx([(2.0**j + 2.1**j) / 2 for j in range(5)])
    assert [row["cosine"] for row in rows] == [None, 0.5, 0.75, 0.875, 0.9375]
    assert rows[0]["output_rms"] is None and rows[4]["output_rms"] == rows[4]["state_rms"]
    assert math.isnan(rows[2]["gradient_norm"]) and rows[3]["gradient_norm"] == pytest.approx(0.3)


def test_a_study_that_never_looked_says_how_to(store: Any) -> None:
    with pytest.raises(QueryError, match=r"no run looked into its depths; train\.depths_every says how often"):
        queries.depths("small", tracking_uri=store.uri)


@pytest.mark.parametrize("text", ["{", "[]", '{"step": 1}', '{"step": "x", "state_rms": []}'])
def test_a_damaged_file_is_named(store: Any, make: Any, text: str) -> None:
    name = f"damaged-{len(text)}"
    store.study(name, [make.Trial("a", 0, 1.0, depths=[{"step": 1}])], seeds=[0])
    (run,) = open_store(store.uri).study(name).runs
    Path(run.artifact_uri, "depths.jsonl").write_text(text)
    with pytest.raises(QueryError, match=r"depths.jsonl of trial .* cannot be read"):
        queries.depths(name, tracking_uri=store.uri)


def test_the_figure_draws_states_from_depth_0_and_blocks_from_depth_1() -> None:
    """Five states, four blocks; the first and last tick of each panel say where its lines begin and end."""
    measures = {name: [1.0, 10.0, 100.0, 1000.0] for name in PANELS} | {"state_rms": [1.0, 2.0, 3.0, 4.0, 5.0]}
    lines = [(Series("cascaded", 0, True), measures), (Series("ancre", 1), measures)]
    text = plots_depth.at_each_depth(PANELS, lines, "k")
    assert text == plots_depth.at_each_depth(PANELS, lines, "k")
    said = [found.text for found in ElementTree.fromstring(text).iter("text")]
    assert set(PANELS.values()) | {"cascaded", "ancre", "depth j"} <= set(said)
    assert said.count("depth j") == 4 and said.count("cascaded") == 1
    assert said.count("0") == 1  # depth 0 is on the axis of states alone
