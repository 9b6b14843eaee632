"""What Wang et al. published of contrastive RL at several depths: time at goal, and hours on their device.

Read from published.toml beside this file. A depth is a number of hidden layers, `LAYERS_PER_BLOCK` a block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analysis.published import at, holds, read

LAYERS_PER_BLOCK = 4  # of a residual MLP, as in models/resnet_spec.py


@dataclass(frozen=True)
class Value:
    """As printed."""

    mean: float
    spread: float | None = None  # what stands behind ±

    def __str__(self) -> str:
        return f"{self.mean:g}" + (f" ± {self.spread:g}" if self.spread is not None else "")


@dataclass(frozen=True)
class Row:
    """One task in one published setting."""

    title: str
    source: str
    metric: str
    task: str
    match: Mapping[str, Any]  # dotted paths of a trial spec and their values, the depth left out
    values: Mapping[int, Value]  # depth -> value

    def matches(self, spec: Mapping[str, Any]) -> bool:
        """Whether a configuration, but for its depth, is the one that was published."""
        return holds(spec, self.match)


@dataclass(frozen=True)
class Hours:
    """What a run took them, at our number of env steps."""

    task: str
    depth: int
    hours: float
    inside: bool  # the depth lies between published ones; else the line through the nearest two goes on


def depth_of(spec: Mapping[str, Any]) -> int | None:
    """The hidden layers of a residual MLP's spec; None of any other model."""
    blocks = at(spec, "model.num_blocks")
    return LAYERS_PER_BLOCK * blocks if isinstance(blocks, int) else None


def rows() -> list[Row]:
    """Every published row, task by task within its table."""
    return [
        Row(
            title=table["title"],
            source=table["source"],
            metric=table["metric"],
            task=row["task"],
            match=table["match"] | read()["tasks"][row["task"]],
            values={int(depth): Value(*value) for depth, value in _by_depth(row).items()},
        )
        for table in read()["depths"].values()
        for row in table["rows"]
    ]


def hours(spec: Mapping[str, Any], env_steps: int) -> Hours | None:
    """The published hours of a run like this, linear in depth between those published and in env steps.

    None where the task, or the share of gradient steps, was not published.
    """
    table, depth = read()["hours"], depth_of(spec)
    if depth is None or not holds(spec, table["match"]):
        return None
    for row in table["rows"]:
        if holds(spec, read()["tasks"][row["task"]]):
            known = {int(key): value for key, value in _by_depth(row).items()}
            share = env_steps / table["env_steps"]
            return Hours(row["task"], depth, share * _linear(known, depth), min(known) <= depth <= max(known))
    return None


def hours_source() -> tuple[str, str]:
    """The device of the published hours, and where they stand."""
    return read()["hours"]["device"], read()["hours"]["source"]


def _by_depth(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key.isdigit()}


def _linear(known: Mapping[int, float], x: int) -> float:
    """Through the two known points around x, or the last two on its side."""
    points = sorted(known.items())
    right = min(max(bisect_left(points, (x,)), 1), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (x - x0) / (x1 - x0) * (y1 - y0)
