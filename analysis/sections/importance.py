"""What decides the metric: the importance of each axis, and every configuration as a line across the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analysis.cells import Cell
from analysis.facts import Facts
from analysis.importance import SOUND, importances
from analysis.page import Html, element, figure, join, number, percent, table, value
from analysis.plots_tuning import Upright, parallel
from analysis.sections import command, key, short_axes

LINES = 200  # configurations drawn: the best ones
TICKS = 8  # labels of an upright; of more values, the ends


def importance(facts: Facts) -> Html | None:
    """None where no axis was varied, or nothing has a value."""
    sound = [cell for cell in facts.ranked if cell.status in SOUND and cell.summary.mean is not None]
    axes = [axis for axis in dict.fromkeys(axis for cell in sound for axis in cell.axes) if _varies(sound, axis)]
    if not axes or len(sound) < 2:
        return None
    parts = [_lines(facts, sound, axes) if len(axes) + (len({cell.arm for cell in sound}) > 1) > 1 else None]
    found = importances(sound)
    if any(one.importance is not None for one in found):
        rows = [
            [one.arm, one.axis, percent(one.importance) if one.importance is not None else one.note, one.values, one.n]
            for one in found
        ]
        text = "The share of an arm's differences that each axis explains, by fANOVA over n configurations."
        made = table(["arm", "axis", "importance", "values", "n"], rows, [2, 3, 4])
        again = element("p", element("code", command(facts, "importance")), class_="muted")
        parts.append(join(element("p", text), made, again))
    return join(*parts) if any(parts) else None


def _varies(cells: Sequence[Cell], axis: str) -> bool:
    return len({value(cell.axes[axis]) for cell in cells if axis in cell.axes}) > 1


def _lines(facts: Facts, sound: Sequence[Cell], axes: Sequence[str]) -> Html:
    sign = 1 if facts.mode == "min" else -1
    drawn = sorted(sound, key=lambda cell: sign * (cell.summary.mean or 0.0))[:LINES]
    uprights = [_words("arm", [cell.arm for cell in drawn])] if len({cell.arm for cell in drawn}) > 1 else []
    for axis, short in zip(axes, short_axes(axes), strict=True):
        held = [cell.axes.get(axis) for cell in drawn]
        there = [one for one in held if one is not None]
        plain = all(isinstance(one, int | float) and not isinstance(one, bool) for one in there)
        uprights.append(
            _scale(short, held) if plain else _words(short, [None if one is None else value(one) for one in held])
        )
    uprights.append(_scale(str(facts.metric), [cell.summary.mean for cell in drawn], ends=True))
    more = f" Drawn are the best {LINES}." if len(sound) > LINES else ""
    caption = f"Each line is a configuration; darker ones are better, the best one is black.{more}"
    picture = Html(parallel(uprights, key(facts, "parallel")))
    return figure(picture, caption, command(facts, "cells", "--format", "csv"))


def _words(name: str, held: Sequence[str | None]) -> Upright:
    known = sorted({one for one in held if one is not None})
    places = {one: (k + 0.5) / len(known) for k, one in enumerate(known)}
    shown = known if len(known) <= 2 * TICKS else known[:: math.ceil(len(known) / TICKS)]
    return Upright(name, [None if one is None else places[one] for one in held], [(places[one], one) for one in shown])


def _scale(name: str, held: Sequence[float | None], ends: bool = False) -> Upright:
    """Logarithmic where numbers are positive and span a factor of ten."""
    known = sorted({one for one in held if one is not None})
    log = known[0] > 0 and known[-1] >= 10 * known[0]
    low, high = (math.log(known[0]), math.log(known[-1])) if log else (known[0], known[-1])

    def place(one: float) -> float:
        return ((math.log(one) if log else one) - low) / (high - low) if high > low else 0.5

    shown = [known[0], known[-1]] if ends or len(known) > TICKS else known
    ticks = [(place(one), number(one) if ends else f"{one:g}") for one in shown]
    return Upright(name, [None if one is None else place(one) for one in held], ticks)
