"""Where training diverges: for each value of each axis, the share of an arm's trials, and the first step and metric."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from analysis import names
from analysis.cells import diverged
from analysis.page import value
from analysis.store import Run

FEW = 10  # values of an axis; more numbers are put into this many bins, of about as many trials each
CAUSE = re.compile(r"(\S+) is not finite at step (\d+)")


@dataclass(frozen=True)
class Place:
    """The trials of an arm at one value of an axis, or in one bin of its values."""

    arm: str
    axis: str | None  # None: all of the arm
    value: str
    trials: int
    diverged: int
    first_step: int | None  # at which one of them was not finite
    metric: str | None  # that was not, most often

    @property
    def share(self) -> float:
        return self.diverged / self.trials

    def row(self) -> dict[str, Any]:
        held = asdict(self)
        first = {key: held.pop(key) for key in ("arm", "axis", "value", "trials", "diverged")}
        return first | {"share": self.share} | held


def atlas(runs: Sequence[Run], metric: str | None = None) -> list[Place]:
    """Of each arm: all its trials, then each value of each axis, in order. A trial that never ran counts nowhere.

    A trial has diverged where it says so, or where it finished with a last value of `metric` that is not finite.
    """
    found = []
    for arm in dict.fromkeys(run.arm for run in runs):
        group = [run for run in runs if run.arm == arm]
        found.append(_place(arm, None, "all", group, metric))
        for axis in dict.fromkeys(axis for run in group for axis in run.axes):
            for label, some in _binned([run for run in group if axis in run.axes], axis):
                found.append(_place(arm, axis, label, some, metric))
    return found


def _binned(runs: Sequence[Run], axis: str) -> list[tuple[str, list[Run]]]:
    def key(run: Run) -> tuple[bool, Any]:
        held = run.axes[axis]
        return (False, held) if isinstance(held, int | float) else (True, json.dumps(held, sort_keys=True))

    ordered = sorted(runs, key=key)
    values = list(dict.fromkeys(map(key, ordered)))
    if len(values) <= FEW or any(text for text, _ in values):
        return [
            (value(some[0].axes[axis]), some) for at in values if (some := [run for run in ordered if key(run) == at])
        ]
    ends = [round(k * len(values) / FEW) for k in range(FEW + 1)]
    bins = []
    for low, high in pairwise(ends):
        inside = set(values[low:high])
        label = f"{values[low][1]:.3g} .. {values[high - 1][1]:.3g}"
        bins.append((label, [run for run in ordered if key(run) in inside]))
    return bins


def _place(arm: str, axis: str | None, label: str, runs: Sequence[Run], metric: str | None) -> Place:
    lost = [run for run in runs if diverged(run, metric)]
    firsts = [first for run in lost if (first := _first(run))]
    common = Counter(name for name, _ in firsts).most_common(1)
    return Place(
        arm=arm,
        axis=axis,
        value=label,
        trials=len(runs),
        diverged=len(lost),
        first_step=min((step for _, step in firsts), default=None),
        metric=common[0][0] if common else (metric if lost else None),
    )


def _first(run: Run) -> tuple[str, int] | None:
    """The metric that was not finite first, and the step; None where that was not recorded."""
    try:
        held = json.loads(run.tags.get(names.NON_FINITE, "{}"))
        step, name = min((int(said["first"]), str(name)) for name, said in held.items())
    except (ValueError, KeyError, TypeError, AttributeError):  # none recorded, or cut
        cause = CAUSE.search(run.cause or "")
        return (cause[1], int(cause[2])) if cause else None
    return name, step
