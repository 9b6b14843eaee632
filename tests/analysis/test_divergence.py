"""The shares of trials that diverged, by arm and value, against a count by hand."""

from __future__ import annotations

import json
import math
from typing import Any

from analysis import names
from analysis.divergence import Place, atlas
from analysis.report import report
from analysis.store import open_store

LOST = {"state": names.DIVERGED}


def test_each_value_of_each_axis(store: Any, make: Any) -> None:
    cause = "train/loss is not finite at step {}"
    trials = [
        make.Trial("a", 0, 1.0, {"optim.lr": 0.1, "kind": "x"}),
        make.Trial("a", 0, None, {"optim.lr": 0.2, "kind": "x"}, **LOST, cause=cause.format(40)),
        make.Trial("a", 1, None, {"optim.lr": 0.2, "kind": "x"}, **LOST, cause=cause.format(7)),
        make.Trial("a", 0, math.nan, {"optim.lr": 0.2, "kind": "y"}),
        make.Trial("b", 0, 2.0, {"optim.lr": 0.1}, state=names.FAILED),
    ]
    store.study("places", trials, seeds=[0, 1])
    assert atlas(open_store(store.uri).study("places").runs, names.VAL_PERPLEXITY) == [
        Place("a", None, "all", 4, 3, 7, "train/loss"),
        Place("a", "optim.lr", "0.1", 1, 0, None, None),
        Place("a", "optim.lr", "0.2", 3, 3, 7, "train/loss"),
        Place("a", "kind", "x", 3, 2, 7, "train/loss"),
        Place("a", "kind", "y", 1, 1, None, names.VAL_PERPLEXITY),
        Place("b", None, "all", 1, 0, None, None),
        Place("b", "optim.lr", "0.1", 1, 0, None, None),
    ]
    page = report(["places"], store.folder / "places.html", store.uri).path.read_text()
    assert "Where training diverges" in page and "2/3" in page and "3/3" in page
    page = report(["small"], store.folder / "small-whole.html", store.uri).path.read_text()
    assert "Where training diverges" not in page and "What matters" in page


def test_the_recorded_first_step_goes_before_the_cause(store: Any, make: Any) -> None:
    store.study("first", [make.Trial("a", 0, None, **LOST, cause="train/loss is not finite at step 9")], seeds=[0])
    (run,) = open_store(store.uri).study("first").runs
    for held, first in (
        (json.dumps({"val/loss": {"count": 2, "first": 5}, "train/loss": {"count": 1, "first": 8}}), (5, "val/loss")),
        ("{cut", (9, "train/loss")),
        ("[]", (9, "train/loss")),
    ):
        store.client.set_tag(run.run_id, names.NON_FINITE, held)
        place = atlas(open_store(store.uri).study("first").runs)[0]
        assert (place.first_step, place.metric) == first


def test_many_numbers_are_put_into_bins(store: Any, make: Any) -> None:
    trials = [
        make.Trial("a", 0, None if k > 80 else 1.0, {"x": float(k)}, state="diverged" if k > 80 else "finished")
        for k in range(95)
    ]
    store.study("bins", trials, seeds=[0])
    places = [place for place in atlas(open_store(store.uri).study("bins").runs) if place.axis]
    assert len(places) == 10 and sum(place.trials for place in places) == 95
    assert sum(place.diverged for place in places) == 14 and places[-1].share == 1.0 and places[0].share == 0.0
    assert places[0].value == "0 .. 9" and places[-1].value.endswith(".. 94")
