"""The results: the best configurations with their spread over seeds, and what is not complete."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import plots
from analysis.cells import COMPLETE, Cell
from analysis.facts import Facts
from analysis.page import Html, element, figure, join, number, table
from analysis.sections import (
    axis_value,
    began,
    cell_name,
    command,
    export,
    key,
    left_out,
    looks,
    short_axes,
    spread,
    status,
)
from analysis.tasks import deep

TOP = 12  # configurations in the table
TROUBLES = 25  # incomplete configurations that are listed one by one


def results(facts: Facts) -> Html:
    look = looks(facts)
    rows = [(look[arm.arm], list(arm.best.values.values()), _bounds(arm.best)) for arm in facts.shown if arm.best]
    drawn = None
    if rows:
        picture = Html(plots.forest(rows, str(facts.metric), key(facts, "forest")))
        caption = f"The best configuration of each arm: mean, 95 % interval and each seed.{left_out(facts)}"
        drawn = figure(picture, caption, command(facts, "cells", "--format", "csv"))
    gaps = element("div", *(element("p", gap) for gap in facts.gaps), class_="note") if facts.gaps else None
    return join(drawn, _table(facts), gaps)


def _bounds(cell: Cell) -> tuple[float, float] | None:
    low, high = cell.summary.low, cell.summary.high
    return None if low is None or high is None else (low, high)


def _table(facts: Facts) -> Html:
    if not facts.ranked:
        return element("p", "No configuration has a recorded value.")
    more = len(facts.ranked) - TOP
    rest = f"{more} more configurations: " if more > 0 else "As a table: "
    lines = [element("p", rest, element("code", command(facts, "cells", "--format", "csv")), class_="muted")]
    if facts.winner:
        again = element("code", export(facts, facts.winner))
        lines.append(element("p", "The best one as a study file, to run again: ", again, class_="muted"))
    said = element("p", f"Best configurations by {facts.metric}.{began(facts)}")
    return join(said, leaderboard(facts.ranked), *lines)


def leaderboard(ranked: Sequence[Cell], top: int = TOP) -> Html:
    """The first of the ranked cells, with their spread over seeds; what is not complete is marked."""
    shown = ranked[:top]
    every = dict.fromkeys(axis for cell in shown for axis in cell.axes)
    axes = [axis for axis in every if len({axis_value(cell, axis) for cell in ranked}) > 1]
    rows = [
        [
            rank,
            cell.arm,
            *(axis_value(cell, axis) for axis in axes),
            number(cell.summary.mean),
            spread(cell),
            number(cell.summary.sd, 2),
            cell.summary.n,
            cell_name(cell) if cell.status == COMPLETE else join(cell_name(cell), " ", status(cell)),
        ]
        for rank, cell in enumerate(shown, start=1)
    ]
    heads = ["", "arm", *short_axes(axes), "mean", "95 % interval", "sd", "n", "cell"]
    return table(heads, rows, [0, *range(len(axes) + 2, len(axes) + 6)])


def troubles(facts: Facts) -> Html:
    """Every configuration that is not complete, and why."""
    listed = [cell for cell in facts.ranked if cell.status != COMPLETE]
    if not listed:
        every = "Every recorded configuration has all its seeds." if facts.ranked else "Nothing was recorded."
        return element("p", every)
    rows = [[cell.arm, _axes(cell), status(cell), cell.reason, cell_name(cell)] for cell in listed[:TROUBLES]]
    more = len(listed) - len(rows)
    rest = f"{more} more: " if more > 0 else "As a table: "
    made = element("p", rest, element("code", command(facts, "runs", "--format", "csv")), class_="muted")
    return join(table(["arm", "axes", "", "why", "cell"], rows), made)


def _axes(cell: Cell) -> str:
    names = short_axes(list(cell.axes))
    return ", ".join(f"{name} {deep(axis, held)}" for name, (axis, held) in zip(names, cell.axes.items(), strict=True))
