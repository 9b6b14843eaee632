"""The look that the figures of a report share, and how one becomes SVG text to put inside an HTML page.

Matplotlib draws with stand-in colours; `svg` swaps them for CSS variables of the page (report.css), so that one figure
is legible on light and on dark paper. The same input gives the same bytes, and ids are unique to a figure's `key`.
Labels are plain text: no mathtext, whatever they hold.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.curves import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0  # inches; the page scales it to the text's width
INK, MUTED, LINES, PAPER = "#010101", "#020202", "#030303", "#fdfdfd"
SERIES = tuple(f"#04040{k}" for k in range(8))  # stand-ins of --series-0..7; 0 is the baseline's
PARTS = ("#050500", "#050501", "#050502")  # of --part-0..2: first, middle, previous
ON_DARK, ON_LIGHT = "#ffffff", "#1b1b1b"  # text on a coloured cell, whatever the paper
DASHES = ((0, (5, 1.5)), (0, ()), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))  # the first is the baseline's
MARKERS = "osD^vPX<"
VARIABLES = {INK: "--ink", MUTED: "--muted", LINES: "--rule", PAPER: "--paper"} | {
    **{colour: f"--series-{k}" for k, colour in enumerate(SERIES)},
    **{colour: f"--part-{k}" for k, colour in enumerate(PARTS)},
}
STYLE = {
    "text.parse_math": False,
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "grid.color": LINES,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Series:
    """One arm in a figure."""

    label: str
    style: int  # which colour, dash and marker
    baseline: bool = False  # dashed as no other

    @property
    def colour(self) -> str:
        return SERIES[self.style % len(SERIES)]

    @property
    def dash(self) -> Any:
        return DASHES[0] if self.baseline else DASHES[1 + self.style // len(SERIES) % 3]

    @property
    def marker(self) -> str:
        return MARKERS[self.style % len(MARKERS)]


def line(axes: Axes, series: Series, curve: Curve, start: float) -> None:
    points = [k for k, step in enumerate(curve.steps) if step >= start]
    steps = [curve.steps[k] for k in points]
    axes.plot(
        steps,
        [curve.mean[k] for k in points],
        color=series.colour,
        linestyle=series.dash,
        marker=series.marker if len(points) <= 30 else "",
        markersize=3.5,
        label=short(series.label),
    )
    if curve.low and curve.high:
        low, high = [curve.low[k] for k in points], [curve.high[k] for k in points]
        axes.fill_between(steps, low, high, color=series.colour, alpha=0.13, linewidth=0)


def log_y(axes: Axes, values: Sequence[float]) -> None:
    """Logarithmic where values span a factor of 3, with plain numbers at its ticks."""
    if min(values) <= 0 or max(values) <= 3 * min(values):
        return
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    few = max(values) < 100 * min(values)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,), numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def near(axes: Axes, means: Sequence[float]) -> None:
    """Cut intervals off that reach further beyond the means than these lie apart: two seeds can give such.

    On a logarithmic axis distances are factors, and an interval that reaches below zero has no end.
    """
    low, high = min(means), max(means)
    bottom, top = axes.get_ylim()
    if axes.get_yscale() == "log":
        least, most = low * low / high, high * high / low
    else:
        room = (high - low) or abs(high) or 1.0
        least, most = low - room, high + room
    axes.set_ylim(max(bottom, least), min(top, most))


def whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))


def step_axis(axes: Axes, name: str, last: float) -> None:
    """The axis of steps; of very many, its ticks are 20 k or 100 M."""
    axes.set_xlabel(name)
    if last >= 1e4:
        from matplotlib.ticker import EngFormatter

        axes.xaxis.set_major_formatter(EngFormatter())


def legend(figure: Figure, axes: Axes, count: int) -> None:
    """Above the axes, so that it covers no line."""
    columns = min(count, 4)
    lines = math.ceil(count / columns)
    height = float(figure.get_size_inches()[1])
    figure.set_size_inches(WIDTH, height + 0.2 * lines)
    top = 1 - (0.3 + 0.2 * lines) / (height + 0.2 * lines)
    figure.subplots_adjust(top=top)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", ncols=columns, bbox_to_anchor=(0.05, 1.0), handlelength=2.8)


def short(label: str, longest: int = 40) -> str:
    label = " ".join(label.split())
    return label if len(label) <= longest else label[: longest - 1] + "…"


@contextmanager
def canvas(width: float, height: float, key: str) -> Iterator[Figure]:
    """An empty figure of inches under our style; matplotlib's own settings are as before afterwards."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE | {"svg.hashsalt": key}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has its own
        figure = Figure(figsize=(width, height))
        figure.subplots_adjust(left=0.085, right=0.985, bottom=0.5 / height, top=1 - 0.3 / height)
        yield figure


def svg(figure: Figure, key: str) -> str:
    """The figure as an <svg> element for a page: variables for colours, ids of its own, no address of anything else."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)  # report.css has the style's one rule
    text = re.sub(r' xmlns(:\w+)?="[^"]*"|xlink:(?=href)', "", text)
    text = re.sub(r'<svg width="[^"]*" height="[^"]*"', "<svg", text, count=1)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", text)
    text = re.sub(r"(font: [^;\"]*?)'DejaVu Sans'", r"\1var(--font)", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text.strip()
