"""Figures over all configurations of a study: where training diverges, and every one as a line across its axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.divergence import Place
from analysis.drawing import INK, MUTED, ON_DARK, ON_LIGHT, PAPER, WIDTH, canvas, short, svg

ROW = 0.3  # inches of an arm


def divergence_maps(axes: Sequence[tuple[str, Sequence[str], Sequence[str], Sequence[Place]]], key: str) -> str:
    """Share of trials that diverged: an arm a row, a value of the axis a column, one map an axis.

    Args:
        axes: (the axis, its values, arms, their places); an arm without a value has no place there.
        key: of the figure.
    """
    heights = [0.85 + ROW * len(arms) for _, _, arms, _ in axes]
    height = sum(heights)
    widest = max(len(short(arm, 30)) for _, _, arms, _ in axes for arm in arms)
    left = 0.3 + 0.075 * widest  # inches
    with canvas(WIDTH, height, key) as figure:
        top = height
        for (axis, values, arms, places), tall in zip(axes, heights, strict=True):
            place = (left / WIDTH, (top - tall + 0.5) / height, 1 - (left + 0.15) / WIDTH, ROW * len(arms) / height)
            drawn = figure.add_axes(place)
            shares = np.full((len(arms), len(values)), np.nan)
            for one in places:
                shares[arms.index(one.arm), values.index(one.value)] = one.share
            image = drawn.imshow(shares, cmap="magma_r", vmin=0, vmax=1, aspect="auto")
            for one in places:
                dark = sum(image.cmap(one.share)[:3]) < 1.5
                at = values.index(one.value), arms.index(one.arm)
                said = f"{one.diverged}/{one.trials}"
                drawn.text(*at, said, ha="center", va="center", color=ON_DARK if dark else ON_LIGHT, fontsize=7.5)
            drawn.set_xticks(range(len(values)), [short(value, max(100 // len(values), 6)) for value in values])
            drawn.set_yticks(range(len(arms)), [short(arm, 30) for arm in arms])
            drawn.set_title(axis, fontsize=8)
            drawn.grid(visible=False)
            drawn.spines[:].set_visible(False)
            top -= tall
        return svg(figure, key)


@dataclass(frozen=True)
class Upright:
    """One vertical axis: a place from 0 (bottom) to 1 for each line, None where it has none, and labels at places."""

    name: str
    places: Sequence[float | None]
    ticks: Sequence[tuple[float, str]]


def parallel(uprights: Sequence[Upright], key: str) -> str:
    """Parallel coordinates: each configuration a line across the axes, lines of better ones later and stronger.

    The lines come best first; a line is broken where it has no place.
    """
    from matplotlib import colormaps

    count = len(uprights[0].places)
    with canvas(WIDTH, 3.4, key) as figure:
        axes = figure.subplots()
        figure.subplots_adjust(left=0.08, right=0.92, top=0.88, bottom=0.06)
        shades = colormaps["viridis"]
        for rank in reversed(range(count)):
            share = rank / max(count - 1, 1)
            (drawn,) = axes.plot(range(len(uprights)), _heights(uprights, rank), linewidth=1.1)
            drawn.set(color=shades(0.15 + 0.75 * share), alpha=0.9 - 0.6 * share)
        axes.plot(range(len(uprights)), _heights(uprights, 0), "o-", color=INK, linewidth=2.2, markersize=4)
        for x, one in enumerate(uprights):
            axes.axvline(x, color=MUTED, linewidth=0.8, zorder=0)
            side = 5 if x == len(uprights) - 1 else -5  # points
            for y, label in one.ticks:
                said = axes.annotate(short(label, 16), (x, y), (side, 0), textcoords="offset points", fontsize=7)
                said.set(ha="left" if side > 0 else "right", va="center", zorder=9)
                said.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 0.6, "alpha": 0.8})
        axes.set_xticks(range(len(uprights)), [short(one.name, 100 // len(uprights)) for one in uprights])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_yticks([])
        axes.set_ylim(-0.05, 1.05)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        return svg(figure, key)


def _heights(uprights: Sequence[Upright], line: int) -> list[float]:
    places = (one.places[line] for one in uprights)
    return [math.nan if place is None else place for place in places]
