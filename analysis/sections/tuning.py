"""The tuning: how the metric depends on the learning rate, and on temperature and learning rate together."""

from __future__ import annotations

import numpy as np

from analysis import plots
from analysis.cells import COMPLETE, INCOMPLETE, STOPPED, Arm, Cell
from analysis.facts import Facts
from analysis.page import Html, figure, join
from analysis.sections import began, command, key, left_out, looks

SOUND = (COMPLETE, INCOMPLETE, STOPPED)


def tuning(facts: Facts) -> Html | None:
    """None where no arm varied its learning rate."""
    rate = _axis(facts, "lr")
    if rate is None:
        return None
    drawn = [_bracket(facts, rate)]
    heat = _axis(facts, "temperature")
    drawn.append(_marginals(facts, heat, rate) if heat else None)
    return join(*drawn) if any(drawn) else None


def _axis(facts: Facts, word: str) -> str | None:
    axes = (axis for arm in facts.shown for axis in arm.brackets)
    return next((axis for axis in axes if axis.rpartition(".")[2] == word), None)


def _bracket(facts: Facts, rate: str) -> Html | None:
    look = looks(facts)
    lines = [(look[arm.arm], _best_at(facts, arm, rate)) for arm in facts.shown]
    lines = [(series, points) for series, points in lines if points]
    if not any(len(points) > 1 for _, points in lines):
        return None
    picture = Html(plots.brackets(lines, rate, str(facts.metric), key(facts, "bracket")))
    caption = f"The best mean {facts.metric} at each {rate}, over each arm's other axes.{began(facts)}{left_out(facts)}"
    return figure(picture, caption, command(facts, "cells", "--format", "csv"))


def _sound(facts: Facts, arm: Arm, *axes: str) -> list[Cell]:
    """The cells of an arm with a mean and a number on each axis, best first; none that diverged or failed."""
    return [
        cell
        for cell in facts.ranked
        if cell.arm == arm.arm
        and cell.status in SOUND
        and cell.summary.mean is not None
        and all(isinstance(cell.axes.get(axis), int | float) for axis in axes)
    ]


def _best_at(facts: Facts, arm: Arm, axis: str) -> dict[float, float]:
    """Value of an axis -> best mean of the arm's cells there."""
    pick = min if facts.mode == "min" else max
    found: dict[float, float] = {}
    for cell in _sound(facts, arm, axis):
        at, mean = float(cell.axes[axis]), float(cell.summary.mean or 0.0)
        found[at] = pick(found.get(at, mean), mean)
    return found


def _marginals(facts: Facts, heat: str, rate: str) -> Html | None:
    maps = []
    for arm in facts.shown:
        cells = _sound(facts, arm, heat, rate)
        rows, columns = (sorted({float(cell.axes[axis]) for cell in cells}) for axis in (heat, rate))
        if not (2 <= len(rows) <= plots.FEW and 2 <= len(columns) <= plots.FEW):
            continue
        matrix = np.full((len(rows), len(columns)), np.nan)
        pick = np.fmin if facts.mode == "min" else np.fmax
        for cell in cells:
            place = rows.index(float(cell.axes[heat])), columns.index(float(cell.axes[rate]))
            matrix[place] = pick(matrix[place], float(cell.summary.mean or 0.0))
        maps.append((arm.arm, rows, columns, matrix))
    if not maps:
        return None
    picture = Html(plots.marginal_maps(maps, (heat, rate), facts.mode, key(facts, "marginal")))
    caption = (
        f"The best mean {facts.metric} over {heat} and {rate}; brighter is better. The two are coupled: one step of"
        f" Adam moves a logit by about rate / temperature.{began(facts)}"
    )
    return figure(picture, caption, command(facts, "cells", "--format", "csv"))
