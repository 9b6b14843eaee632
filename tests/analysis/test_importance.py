"""Which axes matter, where it is known which does; and how many configurations say so."""

from __future__ import annotations

from typing import Any

from analysis import names, queries
from analysis.importance import importances


def test_the_axis_that_decides_is_the_important_one(store: Any, make: Any) -> None:
    trials = [
        make.Trial("a", 0, 10 * depth + 0.01 * (k * 7 % 5), {"model.depth": depth, "optim.lr": rate, "note": {"x": 1}})
        for k, (depth, rate) in enumerate((depth, rate) for depth in (1, 2, 3) for rate in (1e-3, 1e-2, 1e-1))
    ]
    trials += [make.Trial("b", 0, float(k), {"optim.lr": 1e-3 * (k + 1)}) for k in range(2)]
    trials += [make.Trial("c", 0, 1.0, {"optim.kind": kind}) for kind in "wxyz"]
    trials += [make.Trial("a", 0, None, {"model.depth": 4, "optim.lr": 1.0}, state=names.DIVERGED)]
    store.study("decided", trials, seeds=[0])
    found = {(one.arm, one.axis): one for one in importances(queries.cells("decided", tracking_uri=store.uri))}
    assert set(found) == {("a", "model.depth"), ("a", "optim.lr"), ("b", "optim.lr"), ("c", "optim.kind")}
    depth, rate = found["a", "model.depth"], found["a", "optim.lr"]
    assert depth.importance is not None and rate.importance is not None
    assert depth.importance > 0.95 and abs(depth.importance + rate.importance - 1) < 1e-9
    assert (depth.n, depth.values, depth.note) == (9, 3, "")
    few, flat = found["b", "optim.lr"], found["c", "optim.kind"]
    assert (few.importance, few.n, few.note) == (None, 2, "2 of the 4 configurations that it takes")
    assert (flat.importance, flat.note) == (None, "all configurations have the same mean")


def test_a_study_without_axes_or_values_has_none(store: Any) -> None:
    for name in ("all-nan", "measured", "many"):
        assert importances(queries.cells(name, tracking_uri=store.uri)) == []
