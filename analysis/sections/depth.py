"""How the metric depends on depth: curves at each depth, the metric over depth, and shallow learned networks against
the deepest cascaded one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis import plots_depth, published_depths
from analysis.cells import Cell
from analysis.drawing import Series
from analysis.facts import Facts
from analysis.page import NONE, Html, element, figure, interval, join, number, table
from analysis.published_depths import LAYERS_PER_BLOCK
from analysis.scaling import Line, Match, Scaling
from analysis.sections import command, key, spread

MOST_PANELS = 12
HOUR = 3600.0  # seconds


def depth(facts: Facts) -> Html | None:
    """None where no task was run at two depths."""
    several = [one for one in facts.scalings if len(one.blocks) > 1]
    if not several:
        return None
    beside = [_against_deepest(facts, one) for one in several]
    return join(_curves(facts, several), _over_depth(facts, several), *beside)


def _curves(facts: Facts, scalings: Sequence[Scaling]) -> Html | None:
    panels = []
    for scaling in scalings:
        looks = {blocks: Series(_blocks(facts, blocks), k) for k, blocks in enumerate(scaling.blocks, start=1)}
        for line in scaling.lines:
            lines = [
                (looks[blocks], facts.depth_curves[cell.cell])
                for blocks, cell in line.cells.items()
                if cell.cell in facts.depth_curves
            ]
            panels += [(scaling.task, line.label, lines)] if lines else []
    if not panels:
        return None
    picture = plots_depth.curves_by_depth(
        panels[:MOST_PANELS], _step(facts), str(facts.metric), facts.mode == "min", key(facts, "depth-curves")
    )
    caption = "The best configuration at each depth, mean over its seeds with the 95 % interval." + _cut(len(panels))
    return figure(Html(picture), caption, command(facts, "cells", "--format", "csv"))


def _over_depth(facts: Facts, scalings: Sequence[Scaling]) -> Html:
    panels = []
    for scaling in scalings:
        lines = [(look, {b: _bar(cell) for b, cell in line.cells.items()}) for line, look in _looks(scaling)]
        panels.append((scaling.task or facts.study.name, lines, _published(facts, scaling)))
    picture = plots_depth.metric_by_depth(
        panels[:MOST_PANELS], _unit(facts), str(facts.metric), facts.mode == "min", key(facts, "depth")
    )
    caption = "The best configuration of each topology at each depth, mean over its seeds with the 95 % interval."
    caption += _cut(len(panels))
    if any(published for *_, published in panels):
        caption += " Grey crosses: published, with the spread that their source gives (see Beside the paper)."
    return figure(Html(picture), caption, command(facts, "cells", "--format", "csv"))


def _looks(scaling: Scaling) -> list[tuple[Line, Series]]:
    """The first baseline has look 0."""
    first = 0 if scaling.lines and scaling.lines[0].baseline else 1
    return [(line, Series(line.label, k, line.baseline)) for k, line in enumerate(scaling.lines, start=first)]


def _published(facts: Facts, scaling: Scaling) -> Mapping[int, plots_depth.Bar]:
    """Blocks -> the first published value of the task in the setting of its baseline."""
    found: dict[int, plots_depth.Bar] = {}
    for row in published_depths.rows():
        lines = (line for line in scaling.lines if line.baseline)
        if row.metric != facts.metric or not any(row.matches(c.spec) for line in lines for c in line.cells.values()):
            continue
        for layers, value in row.values.items():
            low, high = (None, None) if value.spread is None else (value.mean - value.spread, value.mean + value.spread)
            found.setdefault(layers // LAYERS_PER_BLOCK, (value.mean, low, high))
    return found


def _against_deepest(facts: Facts, scaling: Scaling) -> Html | None:
    """Every learned network that is shallower than the deepest cascaded one, beside it."""
    if scaling.deepest is None or not scaling.matches:
        return None
    blocks, line = scaling.deepest
    base, name = line.cells[blocks], f"{_blocks(facts, blocks)}, {line.label}"
    rows = [
        [
            f"{_blocks(facts, one.blocks)}, {one.line.label}",
            number(one.cell.summary.mean),
            spread(one.cell),
            *_difference(one),
            _verdict(facts, one),
            _hours(facts, one.cell),
        ]
        for one in scaling.matches
    ]
    rows.append([name, number(base.summary.mean), spread(base), NONE, NONE, "", _hours(facts, base)])
    heads = ["network", str(facts.metric), "95 % interval", "difference", "95 % interval", "", "hours"]
    task = f"{scaling.task}: " if scaling.task else ""
    text = f"{task}fewer blocks with learned connections against the {blocks} blocks of the deepest cascaded network."
    return join(element("p", text[0].upper() + text[1:]), table(heads, rows, (1, 2, 3, 4, 6)))


def _difference(one: Match) -> tuple[str, str]:
    if one.gap is None:
        return NONE, NONE
    unit = " decades" if one.gap.decades else ""
    return number(one.gap.mean, 3) + unit, interval(one.gap.low, one.gap.high) or NONE


def _verdict(facts: Facts, one: Match) -> str:
    if one.gap is None or one.gap.low is None:
        return "no interval"
    if not one.gap.clear:
        return "not told apart"
    return "better" if one.gap.lower == (facts.mode == "min") else "worse"


def _hours(facts: Facts, cell: Cell) -> str:
    seconds = facts.seconds.get(cell.cell)
    return number(sum(seconds.values()) / HOUR, 3) if seconds else NONE


def _bar(cell: Cell) -> plots_depth.Bar:
    return cell.summary.mean or 0.0, cell.summary.low, cell.summary.high


def _layered(facts: Facts) -> bool:
    """Whether a block has several layers, so that papers count its depth otherwise."""
    return any(published_depths.depth_of(cell.spec) is not None for cell in facts.ranked[:1])


def _blocks(facts: Facts, blocks: int) -> str:
    said = f"{blocks} block{'' if blocks == 1 else 's'}"
    return f"{said} (depth {LAYERS_PER_BLOCK * blocks})" if _layered(facts) else said


def _unit(facts: Facts) -> str:
    return f"blocks (depth = {LAYERS_PER_BLOCK} x blocks)" if _layered(facts) else "blocks"


def _step(facts: Facts) -> str:
    return "environment step" if _layered(facts) else "step"


def _cut(count: int) -> str:
    return f" Drawn are the first {MOST_PANELS} of {count} panels." if count > MOST_PANELS else ""
