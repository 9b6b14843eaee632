"""The figures that every report has, as SVG text; what they look like is decided in drawing.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.curves import Curve
from analysis.drawing import (
    DASHES,
    INK,
    MUTED,
    ON_DARK,
    ON_LIGHT,
    PAPER,
    PARTS,
    SERIES,
    WIDTH,
    Series,
    canvas,
    legend,
    line,
    log_y,
    near,
    short,
    step_axis,
    svg,
    whole_ticks,
)
from analysis.topology import Array, Mask, Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10  # values of an axis that are a bracket; more are a sample of a range


def learning_curves(arms: Sequence[tuple[Series, Curve]], metric: str, key: str, logarithmic: bool = True) -> str:
    """Mean curves with their 95 % intervals: the whole run and its second half.

    Where `logarithmic`, values of the whole run that span much are drawn so; a metric that grows from near 0 is not.
    """
    with canvas(WIDTH, 3.5, key) as figure:
        whole, half = figure.subplots(1, 2)
        last = max(curve.steps[-1] for _, curve in arms)
        for axes, start in ((whole, 0.0), (half, last / 2)):
            for series, curve in arms:
                line(axes, series, curve, start)
            step_axis(axes, "step", last)
        whole.set_title("whole run")
        whole.set_ylabel(metric)
        means = [value for _, curve in arms for value in curve.mean]
        if logarithmic:
            log_y(whole, means)
        near(whole, means)
        half.set_title("second half")
        legend(figure, whole, len(arms))
        return svg(figure, key)


def linear_network(
    arms: Sequence[tuple[Series, Curve]], theory: Sequence[tuple[str, Sequence[float], Sequence[float]]], key: str
) -> str:
    """Losses of deep linear networks over the step, logarithmic, with theory curves (label, steps, losses) in grey."""
    with canvas(WIDTH, 4.2, key) as figure:
        axes = figure.subplots()
        values = [value for _, curve in arms for value in curve.mean if value > 0] or [1.0]
        for series, curve in arms:
            line(axes, series, curve, 0.0)
        low, high = min(values) / 3, max(values) * 3
        for dash, (label, steps, losses) in zip(DASHES[2:], theory, strict=False):
            inside = [(step, loss) for step, loss in zip(steps, losses, strict=True) if low < loss < high]
            axes.plot(*zip(*inside, strict=True), color=MUTED, linestyle=dash, linewidth=1.2, label=label)
        log_y(axes, values)
        axes.set_ylim(low, high)
        axes.set_xlabel("step")
        axes.set_ylabel("loss")
        legend(figure, axes, len(arms) + len(theory))
        return svg(figure, key)


def forest(rows: Sequence[tuple[Series, Sequence[float], tuple[float, float] | None]], metric: str, key: str) -> str:
    """One row an arm: each seed's value, their mean and its 95 % interval; the first row's mean as a line."""
    height = 0.55 + 0.34 * len(rows)
    with canvas(WIDTH, height, key) as figure:
        figure.subplots_adjust(top=1 - 0.05 / height)
        axes = figure.subplots()
        values = [value for _, seeds, _ in rows for value in seeds]
        for y, (series, seeds, interval) in enumerate(rows):
            mean = float(np.mean(seeds))
            if interval:
                axes.plot(interval, [y, y], color=series.colour, linewidth=2.2, solid_capstyle="butt")
            axes.plot(seeds, [y] * len(seeds), "|", color=series.colour, markersize=9, markeredgewidth=1.2)
            axes.plot([mean], [y], series.marker, color=series.colour, markersize=7, mec=PAPER, mew=0.7)
        axes.axvline(float(np.mean(rows[0][1])), color=SERIES[0], linewidth=1, linestyle=DASHES[0], zorder=0)
        labels = [short(series.label, 34) for series, _, _ in rows]
        axes.set_yticks(range(len(rows)), labels)
        figure.subplots_adjust(left=(0.35 + 0.075 * max(map(len, labels))) / WIDTH)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(metric)
        if min(values) > 0 and max(values) > 30 * min(values):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.set_xlim(min(values) / 3, max(values) * 3)  # an interval may reach below zero
        return svg(figure, key)


def heat_maps(rows: Sequence[tuple[str, Array, Sequence[int], Mask]], key: str, seeds: int = 4) -> str:
    """Coefficients |p|, logarithmic: sources i downwards, steps j to the right, what is not allowed left blank.

    Args:
        rows: (label, p (S, K+1, K+1), its S seeds, allowed (K+1, K+1)).
        key: of the figure.
        seeds: how many are shown at most, beside their mean.
    """
    from matplotlib.colors import LogNorm

    columns = 1 + max(min(len(p), seeds) for _, p, _, _ in rows)
    norm = LogNorm(*_decades([np.abs(p[:, allowed]).ravel() for _, p, _, allowed in rows]), clip=True)
    size = min(1.75, (WIDTH - 1.6) / columns - 0.3)  # of one map, inches
    height = 0.35 + (size + 0.62) * len(rows)
    with canvas(WIDTH, height, key) as figure:
        for row, (label, p, names, allowed) in enumerate(rows):
            top = height - 0.45 - row * (size + 0.62)
            figure.text(0.5 / WIDTH, (top + 0.22) / height, short(label, 90), weight="bold")
            titles = ["mean" if len(p) > 1 else f"seed {names[0]}", *(f"seed {seed}" for seed in names[:seeds])]
            maps = [np.abs(p).mean(axis=0), *(np.abs(p[:seeds]) if len(p) > 1 else [])]
            for column, (title, matrix) in enumerate(zip(titles, maps, strict=False)):
                axes = _axes(figure, 0.5 + column * (size + 0.3), top - size, size, size)
                _map(axes, matrix, allowed, norm)
                axes.set_title(title, fontweight="normal", fontsize=7.5, pad=3)
                if column == 0:
                    axes.set_ylabel("source i")
                if row == len(rows) - 1:
                    axes.set_xlabel("step j")
        _colour_bar(_axes(figure, WIDTH - 0.62, height - 0.45 - size, 0.12, size), norm, "|p|")
        return svg(figure, key)


def depth_profiles(rows: Sequence[tuple[str, Profile]], key: str) -> str:
    """Bars of the share of each step's incoming weight that comes from h_0, from between, and from h_{j-1}."""
    columns = min(len(rows), 4)
    lines = math.ceil(len(rows) / columns)
    with canvas(WIDTH, 0.5 + 1.75 * lines, key) as figure:
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        figure.subplots_adjust(hspace=0.55, wspace=0.12, top=1 - 0.62 / (0.5 + 1.75 * lines))
        for axes in grid.flat[len(rows) :]:
            axes.set_axis_off()
        for axes, (label, profile) in zip(grid.flat, rows, strict=False):
            base = np.zeros(len(profile.steps))
            parts = (profile.first, "h₀"), (profile.middle, "between"), (profile.previous, "previous")
            for colour, (share, part) in zip(PARTS, parts, strict=True):
                mean = share.mean(axis=0)
                axes.bar(profile.steps, mean, 0.82, bottom=base, color=colour, label=part)
                base = base + mean
            axes.set_title(short(label, 100 // columns), fontsize=8)
            axes.set_xlabel("step j")
            axes.set_ylim(0, 1)
            axes.grid(axis="x", visible=False)
            whole_ticks(axes.xaxis)
        for axes in grid[:, 0]:
            axes.set_ylabel("share of weight")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="upper left", ncols=3, bbox_to_anchor=(0.05, 1.0))
        return svg(figure, key)


def brackets(arms: Sequence[tuple[Series, Mapping[float, float]]], axis: str, metric: str, key: str) -> str:
    """How the metric depends on one numeric axis: for each arm, its best mean at each value, over its other axes."""
    with canvas(WIDTH, 3.0, key) as figure:
        axes = figure.subplots()
        for series, points in arms:
            x = sorted(points)
            (drawn,) = axes.plot(x, [points[value] for value in x], series.marker, color=series.colour)
            drawn.set_label(short(series.label))
            if len(x) <= FEW:  # a line through random values would be noise
                drawn.set_linestyle(series.dash)
        tried = sorted({value for _, points in arms for value in points})
        if tried[0] > 0:
            axes.set_xscale("log")
        if len(tried) <= FEW:
            axes.minorticks_off()
            axes.set_xticks(tried, [f"{value:g}" for value in tried])
        else:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        log_y(axes, [value for _, points in arms for value in points.values()])
        axes.set_xlabel(axis)
        axes.set_ylabel(metric)
        legend(figure, axes, len(arms))
        return svg(figure, key)


def marginal_maps(
    arms: Sequence[tuple[str, Sequence[float], Sequence[float], Array]], names: tuple[str, str], mode: str, key: str
) -> str:
    """The metric over two axes, one map an arm: the best mean over the arm's other axes, NaN where there is none.

    Brighter is better.

    Args:
        arms: (label, values of the first axis (rows), of the second (columns), metric (rows, columns)).
        names: of the two axes.
        mode: min or max, of the metric.
        key: of the figure.
    """
    columns = min(len(arms), 4)
    lines = math.ceil(len(arms) / columns)
    tall = max(len(rows) for _, rows, _, _ in arms)
    high = 0.75 + 0.36 * tall  # inches of one map with its labels
    values = np.concatenate([matrix.ravel() for *_, matrix in arms])
    finite = values[np.isfinite(values)]
    colours = "viridis_r" if mode == "min" else "viridis"
    with canvas(WIDTH, 0.1 + (high + 0.25) * lines, key) as figure:
        grid = figure.subplots(lines, columns, squeeze=False)
        figure.subplots_adjust(hspace=1.1 / (0.36 * tall), wspace=0.3)
        for axes in grid.flat[len(arms) :]:
            axes.set_axis_off()
        for axes, (label, rows, cols, matrix) in zip(grid.flat, arms, strict=False):
            image = axes.imshow(matrix, cmap=colours, vmin=finite.min(), vmax=finite.max(), aspect="auto")
            for (i, j), value in np.ndenumerate(matrix):
                text, colour = "none", INK
                if np.isfinite(value):
                    text = f"{value:.4g}"
                    colour = ON_DARK if sum(image.cmap(image.norm(value))[:3]) < 1.5 else ON_LIGHT
                axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=8)
            axes.set_xticks(range(len(cols)), [f"{value:g}" for value in cols])
            axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
            axes.set_title(short(label, 100 // columns), fontsize=8)
            axes.set_xlabel(names[1])
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel(names[0])
        return svg(figure, key)


def _map(axes: Axes, matrix: Array, allowed: Mask, norm: Any) -> None:
    """Steps 1..K to the right, sources 0..K-1 downwards."""
    size = len(matrix) - 1
    shown = np.ma.masked_array(matrix, ~allowed)[:size, 1:]
    axes.imshow(shown, norm=norm, cmap="viridis", interpolation="none", extent=(0.5, size + 0.5, size - 0.5, -0.5))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, labelsize=7)
    whole_ticks(axes.xaxis)
    whole_ticks(axes.yaxis)


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """New axes at a place given in inches."""
    x, y = figure.get_size_inches()
    return figure.add_axes((left / x, bottom / y, width / x, height / y))


def _colour_bar(axes: Axes, norm: Any, label: str) -> None:
    """A logarithmic scale."""
    shades = np.geomspace(norm.vmin, norm.vmax, 64)[:, None]
    ends = math.log10(norm.vmin), math.log10(norm.vmax)
    axes.imshow(shades, norm=norm, cmap="viridis", aspect="auto", origin="lower", extent=(0, 1, *ends))
    decades = range(math.ceil(ends[0]), math.floor(ends[1]) + 1)
    axes.set_yticks(decades, [f"{10.0**decade:g}" for decade in decades], fontsize=7)
    axes.yaxis.tick_right()
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_title(label, fontsize=8, fontweight="normal", pad=3)


def _decades(groups: Sequence[Array]) -> tuple[float, float]:
    """The range of a logarithmic colour scale: whole decades below, at most four below 1."""
    values = np.concatenate(groups)
    values = values[values > 0]
    low = 10.0 ** math.floor(math.log10(values.min())) if len(values) else 0.1
    return min(max(low, 1e-4), 0.1), max(1.0, float(values.max(initial=1.0)))
