"""Best values at the end of their brackets, and what to try next."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from analysis.edges import Edge, edges

LOG, FLAT = {"low": 1e-4, "high": 1e-2, "log": True}, {"low": 0.0, "high": 1.0}


@pytest.mark.parametrize(
    ("bracket", "best", "side", "next"),
    [
        ([1e-3, 3e-3, 1e-2], 3e-3, None, None),
        ([1e-3, 2e-3, 4e-3], 1e-3, "lowest", (2.5e-4, 5e-4, 1e-3)),
        ([4e-3, 1e-3, 2e-3], 4e-3, "highest", (4e-3, 8e-3, 1.6e-2)),
        ([1e-3], 1e-3, None, None),
        ([4, 8, 16], 16, "highest", (16, 32, 64)),
        ([4, 8, 16], 4, "lowest", (1, 2, 4)),
        ([1, 2, 3], 3, "highest", (3, 4, 5)),
        ([1, 2, 4], 1, None, None),
        ([0.0, 0.1, 0.2], 0.2, "highest", (0.2, 0.3, 0.4)),
        ([0.1, 0.2, 0.3], 0.1, None, None),
        ([-1.0, 0.0], 0.0, "highest", (0.0, 1.0, 2.0)),
        (["adamw", "muon"], "muon", None, None),
        ([True, False], True, None, None),
        (LOG, 9.5e-3, "highest", {"low": 1e-2, "high": 1.0, "log": True}),
        (LOG, 1e-4, "lowest", {"low": 1e-6, "high": 1e-4, "log": True}),
        (LOG, 1e-3, None, None),
        (FLAT, 0.99, "highest", {"low": 1.0, "high": 2.0}),
        ({"low": 1, "high": 9}, 9, "highest", {"low": 9, "high": 17}),
        ({"low": 1.0, "high": 2.0}, 1.0, None, None),
        ({"low": 2.0, "high": 1.0}, 1.0, None, None),
    ],
)
def test_a_value_at_the_end_of_its_bracket(bracket: Any, best: Any, side: str | None, next: Any) -> None:
    found = edges({"optim.lr": best}, {"optim.lr": bracket, "another": [1, 2]})
    assert found == (() if side is None else (Edge("optim.lr", best, side, next),))
    for edge in found:
        (held,) = tomllib.loads(edge.line).values()
        assert held == (next if isinstance(next, dict) else list(next))


def test_every_axis_is_looked_at() -> None:
    brackets = {"optim.lr": [1e-3, 1e-2], "model.depth": [4, 8], "topology.temperature": [0.1, 0.2, 0.4]}
    found = edges({"optim.lr": 1e-2, "model.depth": 4, "topology.temperature": 0.2}, brackets)
    assert [(edge.axis, edge.side) for edge in found] == [("optim.lr", "highest"), ("model.depth", "lowest")]
