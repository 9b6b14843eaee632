"""Where the best value of an axis lies at the end of what was tried: the optimum may lie beyond."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

BEYOND = 2  # values suggested beyond the end
NEAR = 0.05  # of a range: its outermost part counts as its end


@dataclass(frozen=True)
class Edge:
    """A best value at the end of its bracket, so try `next`: it and values beyond, or a range that goes on there."""

    axis: str
    value: float
    side: str  # lowest or highest
    next: Any

    @property
    def line(self) -> str:
        """For the table `axes` of a study file."""
        if isinstance(self.next, Mapping):
            held = "{ " + ", ".join(f"{key} = {json.dumps(one)}" for key, one in self.next.items()) + " }"
        else:
            held = json.dumps(list(self.next))
        return f"{json.dumps(self.axis)} = {held}"


def edges(axes: Mapping[str, Any], brackets: Mapping[str, Any]) -> tuple[Edge, ...]:
    """Those of the numeric axes of one configuration whose value is the lowest or the highest of its bracket.

    Nothing is suggested where an axis has but one value, and of whole or positive numbers none that are not.
    """
    found = []
    for axis, bracket in brackets.items():
        value = axes.get(axis)
        if _number(value):
            edge = _of_range(axis, value, bracket) if isinstance(bracket, Mapping) else _of_list(axis, value, bracket)
            found += [edge] if edge else []
    return tuple(found)


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _of_list(axis: str, value: float, bracket: Sequence[Any]) -> Edge | None:
    if not isinstance(bracket, list) or not all(map(_number, bracket)) or len(set(bracket)) < 2:
        return None
    tried = sorted(set(bracket))
    if value == tried[0]:
        beyond = _beyond(tried[::-1])
        return Edge(axis, value, "lowest", (*reversed(beyond), value)) if beyond else None
    if value == tried[-1]:
        beyond = _beyond(tried)
        return Edge(axis, value, "highest", (value, *beyond)) if beyond else None
    return None


def _beyond(tried: Sequence[float]) -> list[float]:
    """The values that go on behind the last: by the same step where steps are equal, else by the same factor."""
    last, before = tried[-1], tried[-2]
    steps = [after - first for first, after in pairwise(tried)]
    even = len(steps) > 1 and all(math.isclose(step, steps[0], rel_tol=1e-6) for step in steps)
    if even or min(tried) <= 0:
        going_on = [last + (last - before) * k for k in range(1, BEYOND + 1)]
    else:
        going_on = [last * (last / before) ** k for k in range(1, BEYOND + 1)]
    if all(isinstance(one, int) for one in tried):
        going_on = [round(one) for one in going_on if math.isclose(one, round(one), rel_tol=1e-9)]
    return [one if isinstance(one, int) else float(f"{one:.3g}") for one in going_on if one > 0 or min(tried) <= 0]


def _of_range(axis: str, value: float, bracket: Mapping[str, Any]) -> Edge | None:
    low, high, log = bracket.get("low"), bracket.get("high"), bool(bracket.get("log"))
    if not (_number(low) and _number(high)) or not low < high or (log and min(low, value) <= 0):
        return None
    scale = math.log if log else float
    place = (scale(value) - scale(low)) / (scale(high) - scale(low))
    if NEAR < place < 1 - NEAR:
        return None
    side = "lowest" if place <= NEAR else "highest"
    if log:
        ends = (low * low / high, low) if side == "lowest" else (high, high * high / low)
    else:
        ends = (2 * low - high, low) if side == "lowest" else (high, 2 * high - low)
    whole = isinstance(low, int) and isinstance(high, int)
    shown = [round(end) if whole else float(f"{end:.3g}") for end in ends]
    if shown[0] >= shown[1] or (shown[0] <= 0 < low):
        return None
    return Edge(axis, value, side, dict(bracket) | {"low": shown[0], "high": shown[1]})
