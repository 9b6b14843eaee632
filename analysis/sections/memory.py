"""Memory and speed: what each arm's best configuration kept, beside the plan's estimate; tokens/s and MFU."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from analysis import names
from analysis.cells import Cell
from analysis.facts import Facts
from analysis.page import NONE, Html, element, join, number, percent, size, table
from analysis.sections import command

SPEEDS = {names.TOKENS_PER_S: "tokens/s", names.IMAGES_PER_S: "images/s"}


def memory(facts: Facts) -> Html | None:
    """None where no run measured its memory."""
    cells = [arm.best for arm in facts.shown if arm.best and _mean(arm.best, names.MEMORY_PARAMETERS) is not None]
    if not cells:
        return None
    peaks = _any(cells, names.MEMORY_PEAK)
    parts = [*names.MEMORY, *([names.MEMORY_AVERAGES] if _any(cells, names.MEMORY_AVERAGES) else [])]
    speeds = [name for name in SPEEDS if _any(cells, name)]
    more = [name for name in (names.MFU, names.SLOWDOWN) if _any(cells, name)]
    rows = [
        [
            cell.arm,
            *(_beside(cell, name) for name in parts),
            *([_size(_mean(cell, names.MEMORY_PEAK))] if peaks else []),
            *(number(_mean(cell, name)) for name in speeds),
            *(_shown(cell, name) for name in more),
        ]
        for cell in cells
    ]
    heads = [
        "arm",
        *map(_word, parts),
        *(["peak"] if peaks else []),
        *(SPEEDS[name] for name in speeds),
        *map(_word, more),
    ]
    text = (
        "Measured on one worker in the first step after a start, under it the plan's estimate. Activations are what a"
        " micro-batch's forward keeps for its backward."
    )
    if peaks:
        text += " Peak: of the accelerator's allocator; on a CPU, of the whole process, Python and libraries included."
    if names.MFU not in more:
        text += " MFU is not known: no peak speed of this device is."
    made = element("p", "As a table: ", element("code", command(facts, "runs", "--format", "csv")), class_="muted")
    return join(element("p", text), table(heads, rows, range(1, len(heads))), made)


def _beside(cell: Cell, name: str) -> Html:
    estimate = _mean(cell, name + names.ESTIMATED)
    small = None if estimate is None else element("small", f"estimate {size(estimate)}")
    return join(_size(_mean(cell, name)), small)


def _shown(cell: Cell, name: str) -> str:
    mean = _mean(cell, name)
    return percent(mean, 1) if name == names.MFU else number(mean, 3)


def _size(held: float | None) -> str:
    return NONE if held is None else size(held)


def _any(cells: Sequence[Cell], name: str) -> bool:
    return any(_mean(cell, name) is not None for cell in cells)


def _mean(cell: Cell, name: str) -> float | None:
    """Of the last value of each counted run that has one."""
    found: Sequence[float] = [run.metrics[name] for run in cell.counted if name in run.metrics]
    return fmean(found) if found else None


def _word(name: str) -> str:
    word = name.rpartition("/")[2]
    return {"mfu": "MFU", "optimizer": "optimizer state"}.get(word, word)
