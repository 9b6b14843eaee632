"""The sections of a report, a file each: from a study's facts to HTML, or to a line that says why there is none.

What they share is here: the look of an arm, the ids of figures, and the command that gives a figure's numbers.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from analysis.cells import COMPLETE, Arm, Cell, is_baseline
from analysis.drawing import Series
from analysis.facts import Facts
from analysis.page import NONE, Html, element, interval, number
from analysis.store import Run
from analysis.tasks import deep

DOT = "\N{MIDDLE DOT}"  # in a table: this arm has no such axis


def command(facts: Facts, question: str, *options: str) -> str:
    """The `ancre query` that gives the numbers of a figure."""
    metric = ["--metric", facts.metric] if facts.metric and facts.metric != facts.study.metric else []
    return _line(["query", question], [facts.study.name], facts.home, [*metric, *options])


def export(facts: Facts, cell: Cell) -> str:
    """The command that writes one configuration as a study file."""
    return _line(["export"], [cell.cell], facts.home, [])


def sampling(facts: Facts, run: Run) -> str:
    """The command that draws more images with what a run has trained."""
    return _line(["sample"], [run.id], facts.home, [])


def again(studies: Sequence[Facts]) -> str:
    """The command that writes the whole report."""
    return _line(["report"], [facts.study.name for facts in studies], studies[0].home, [])


def _line(words: list[str], names: list[str], home: str | None, options: list[str]) -> str:
    """A shell line; names with a leading dash go behind `--`."""
    options = [*options, *(["--home", home] if home else [])]
    dashed = any(name.startswith("-") for name in names)
    return shlex.join(["ancre", *words, *([*options, "--", *names] if dashed else [*names, *options])])


def looks(facts: Facts) -> dict[str, Series]:
    """Each shown arm's look, the same in every figure. Baselines are dashed; number 0 is the first baseline's alone."""
    bases = [arm.arm for arm in facts.shown if arm.best and is_baseline(arm.best)]
    order = [arm.arm for arm in facts.shown if arm.arm not in bases[:1]]
    styles = {arm: k for k, arm in enumerate(order, start=1)}
    return {arm.arm: Series(label(arm), styles.get(arm.arm, 0), arm.arm in bases) for arm in facts.shown}


def label(arm: Arm) -> str:
    """An arm's name, and the status of its best configuration where that is not complete."""
    status = arm.best.status if arm.best else COMPLETE
    return arm.arm if status == COMPLETE else f"{arm.arm} ({status})"


def began(facts: Facts) -> str:
    """What to say beside values of axes of which some changed on the way; empty where none did."""
    listed = ", ".join(facts.changed)
    return f" Values of {listed} are those that a trial began with: they changed on the way." if listed else ""


def key(facts: Facts, figure: str) -> str:
    """The prefix of a figure's ids, which no other figure on the page has."""
    return f"s{facts.number}-{figure}"


def left_out(facts: Facts) -> str:
    """The end of a caption where not all arms are drawn."""
    count = sum(arm.best is not None for arm in facts.arms) - len(facts.shown)
    return f" Drawn are the {len(facts.shown)} best arms; {count} more are left out." if count > 0 else ""


def short_axes(axes: Sequence[str]) -> list[str]:
    """Axis names for a table's head: their last word where that is enough."""
    words = [axis.rpartition(".")[2] for axis in axes]
    return [word if words.count(word) == 1 else axis for axis, word in zip(axes, words, strict=True)]


def axis_value(cell: Cell, axis: str) -> str:
    return deep(axis, cell.axes[axis]) if axis in cell.axes else DOT


def status(cell: Cell) -> Html:
    return element("span", cell.status, class_=f"tag {cell.status}")


def cell_name(cell: Cell) -> Html:
    return element("code", cell.cell)


def spread(cell: Cell) -> str:
    """The interval of a cell's mean, or why it has none."""
    if cell.summary.n == 1:
        return "one seed"
    return interval(cell.summary.low, cell.summary.high) or NONE


def mean(cell: Cell) -> str:
    return number(cell.summary.mean)
