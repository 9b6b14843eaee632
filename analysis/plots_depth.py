"""Figures of several panels: a metric over steps at each depth, over depth, other metrics; and where the time went."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from analysis.curves import Curve
from analysis.drawing import (
    MUTED,
    PAPER,
    SERIES,
    WIDTH,
    Series,
    canvas,
    line,
    log_y,
    near,
    short,
    step_axis,
    svg,
    whole_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Bar = tuple[float, float | None, float | None]  # mean, low, high
COLUMNS = 3
LEGEND = 5  # labels in a line
MARKED = 32  # depths at which points are drawn; of more, lines alone
PUBLISHED = "published"  # the label of grey points


def curves_by_depth(
    panels: Sequence[tuple[str, str, Sequence[tuple[Series, Curve]]]],
    step: str,
    metric: str,
    logarithmic: bool,
    key: str,
) -> str:
    """A panel for each topology, a line for each depth: mean and 95 % interval over the step.

    Args:
        panels: (task, topology, (the look of a depth, its curve)); those of a task have the same scale.
        step: what a step is called.
        metric: its name.
        logarithmic: values that span much are drawn so.
        key: of the figure.
    """
    with _panels(len(panels), key) as (figure, places):
        for axes, (task, topology, lines) in zip(places, panels, strict=True):
            for series, curve in lines:
                line(axes, series, curve, 0.0)
            means = [value for other, _, held in panels if other == task for _, curve in held for value in curve.mean]
            if logarithmic:
                log_y(axes, means)
            near(axes, means)
            axes.set_title(short(f"{task}: {topology}" if task else topology, 44), fontsize=8)
            step_axis(axes, step, max(curve.steps[-1] for _, curve in lines))
        _same_scale(places, [task for task, *_ in panels])
        _label(places, metric)
        _key(figure, places)
        return svg(figure, key)


def metric_by_depth(
    panels: Sequence[tuple[str, Sequence[tuple[Series, Mapping[int, Bar]]], Mapping[int, Bar]]],
    depth: str,
    metric: str,
    logarithmic: bool,
    key: str,
) -> str:
    """A panel for each task, a line for each topology over the depth: mean and 95 % interval over seeds.

    Args:
        panels: (title, (the look of a topology, its values by depth), published values by depth, whose bounds are the
            spread that their source gives).
        depth: what a depth is called.
        metric: its name.
        logarithmic: values that span much are drawn so.
        key: of the figure.
    """
    with _panels(len(panels), key) as (figure, places):
        for axes, (title, lines, published) in zip(places, panels, strict=True):
            for k, (series, points) in enumerate(lines):
                shift = 2.0 ** (0.04 * (k - (len(lines) - 1) / 2))  # so that intervals do not hide each other
                _points(axes, series, {at * shift: bar for at, bar in points.items()})
            for at, bar in published.items():
                axes.errorbar([at], [bar[0]], _arms(bar), fmt="+", color=MUTED, markersize=9, label=PUBLISHED)
            if logarithmic:
                log_y(axes, [bar[0] for _, points in lines for bar in points.values()])
            ticks = sorted({*published, *(at for _, points in lines for at in points)})
            axes.set_xscale("log", base=2)
            axes.minorticks_off()
            axes.set_xticks(ticks, [str(at) for at in ticks])
            axes.set_title(short(title, 44), fontsize=8)
            axes.set_xlabel(depth)
        _label(places, metric)
        _key(figure, places)
        return svg(figure, key)


def several_metrics(panels: Sequence[tuple[str, Sequence[tuple[Series, Curve]]]], key: str) -> str:
    """A panel for each metric (its name, the curves of arms): mean and 95 % interval over the step."""
    with _panels(len(panels), key) as (figure, places):
        for axes, (metric, lines) in zip(places, panels, strict=True):
            for series, curve in lines:
                line(axes, series, curve, 0.0)
            near(axes, [value for _, curve in lines for value in curve.mean])
            axes.set_title(metric, fontsize=8)
            step_axis(axes, "step", max(curve.steps[-1] for _, curve in lines))
        _key(figure, places)
        return svg(figure, key)


def at_each_depth(
    panels: Mapping[str, str], lines: Sequence[tuple[Series, Mapping[str, Sequence[float]]]], key: str
) -> str:
    """A panel for each measure over the depth j, a line for each arm; measures that span much are logarithmic.

    Args:
        panels: name of a measure -> its title.
        lines: (the look of an arm, name of a measure -> its values at the last so many depths up to K).
        key: of the figure.
    """
    with _panels(len(panels), key, columns=2) as (figure, places):
        for axes, (name, title) in zip(places, panels.items(), strict=True):
            for series, measures in lines:
                depth = max(map(len, measures.values())) - 1
                held = measures[name]
                axes.plot(
                    range(depth + 1 - len(held), depth + 1),
                    held,
                    series.marker if depth <= MARKED else "",
                    color=series.colour,
                    linestyle=series.dash,
                    markersize=3.5,
                    label=short(series.label),
                )
            log_y(axes, [value for _, measures in lines for value in measures[name] if math.isfinite(value)] or [1.0])
            axes.set_title(title, fontsize=8)
            axes.set_xlabel("depth j")
            whole_ticks(axes.xaxis)
        _key(figure, places)
        return svg(figure, key)


def time_split(rows: Sequence[tuple[str, Mapping[str, float]]], key: str) -> str:
    """One bar a row: the share of a run's seconds that each part took, with the hours behind it."""
    parts = list(dict.fromkeys(part for _, seconds in rows for part in seconds))
    height = 0.85 + 0.3 * len(rows)
    with canvas(WIDTH, height, key) as figure:
        figure.subplots_adjust(top=1 - 0.35 / height)
        axes = figure.subplots()
        for y, (_, seconds) in enumerate(rows):
            total, left = sum(seconds.values()) or 1.0, 0.0
            for k, part in enumerate(parts, start=1):
                share = seconds.get(part, 0.0) / total
                axes.barh(y, share, 0.7, left, color=SERIES[k], edgecolor=PAPER, label=part if y == 0 else None)
                left += share
        labels = [short(label, 46) for label, _ in rows]
        axes.set_yticks(range(len(rows)), labels)
        figure.subplots_adjust(left=(0.35 + 0.075 * max(map(len, labels))) / WIDTH)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, 1)
        figure.subplots_adjust(right=0.96)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.grid(visible=False)
        figure.legend(*axes.get_legend_handles_labels(), loc="upper left", ncols=len(parts), bbox_to_anchor=(0.05, 1.0))
        return svg(figure, key)


def _points(axes: Axes, series: Series, points: Mapping[float, Bar]) -> None:
    x = list(points)
    axes.plot(
        x,
        [points[at][0] for at in x],
        series.marker,
        color=series.colour,
        linestyle=series.dash,
        markersize=5,
        label=short(series.label),
    )
    for at, bar in points.items():
        axes.errorbar([at], [bar[0]], _arms(bar), fmt="none", ecolor=series.colour, elinewidth=1.2, capsize=2.5)


def _arms(bar: Bar) -> list[list[float]] | None:
    mean, low, high = bar
    return None if low is None or high is None else [[mean - low], [high - mean]]


@contextmanager
def _panels(count: int, key: str, columns: int = COLUMNS) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with so many axes, in rows."""
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    height = 0.5 + 2.35 * rows
    with canvas(WIDTH, height, key) as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        figure.subplots_adjust(hspace=0.5, wspace=0.22, bottom=0.5 / height, top=1 - 0.52 / height)
        for axes in grid.flat[count:]:
            axes.set_axis_off()
        yield figure, list(grid.flat[:count])


def _same_scale(places: Sequence[Axes], tasks: Sequence[str]) -> None:
    for task in set(tasks):
        own = [axes for axes, held in zip(places, tasks, strict=True) if held == task]
        bounds = [axes.get_ylim() for axes in own]
        for axes in own:
            axes.set_ylim(min(low for low, _ in bounds), max(high for _, high in bounds))


def _label(places: Sequence[Axes], metric: str) -> None:
    for axes in places[::COLUMNS]:
        axes.set_ylabel(metric)


def _key(figure: Figure, places: Sequence[Axes]) -> None:
    """One legend for all panels; the figure grows by its further lines."""
    found: dict[str, Any] = {}
    for axes in places:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    height, more = float(figure.get_size_inches()[1]), 0.2 * (math.ceil(len(found) / LEGEND) - 1)
    figure.set_size_inches(WIDTH, height + more)
    figure.subplots_adjust(bottom=0.5 / (height + more), top=1 - (0.52 + more) / (height + more))
    figure.legend(
        found.values(), found.keys(), loc="upper left", ncols=LEGEND, bbox_to_anchor=(0.05, 1.0), handlelength=2.8
    )
