"""How a metric depends on depth: for each task, a line for each topology, with its best configuration at each depth.

Depth is `model.num_blocks`, or `model.depth` of models that have no other. Lines are arms where some arm spans several
depths, and kinds of topology where each depth has arms of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.cells import Cell, Gap, gap, is_baseline
from analysis.published import at
from analysis.tasks import setting, task_names

DEPTHS = ("num_blocks", "depth")  # keys of a model's spec


@dataclass(frozen=True)
class Line:
    label: str
    baseline: bool
    cells: Mapping[int, Cell]  # number of blocks -> the best configuration there, in order of the number


@dataclass(frozen=True)
class Match:
    """A learned network against the deepest baseline, which has more blocks."""

    line: Line
    blocks: int
    cell: Cell
    gap: Gap | None


@dataclass(frozen=True)
class Scaling:
    """One task, and networks that differ in depth and topology alone."""

    task: str  # "" where there is one only
    lines: tuple[Line, ...]  # baselines first

    @property
    def blocks(self) -> list[int]:
        return sorted({blocks for line in self.lines for blocks in line.cells})

    @property
    def deepest(self) -> tuple[int, Line] | None:
        """The most blocks of a baseline, and its line."""
        found = [(max(line.cells), line) for line in self.lines if line.baseline]
        return max(found, key=lambda one: one[0], default=None)

    @property
    def matches(self) -> list[Match]:
        """Every shallower network that is no baseline, deepest first."""
        if self.deepest is None:
            return []
        most, base = self.deepest
        found = [
            Match(line, blocks, cell, gap(cell, base.cells[most]))
            for line in self.lines
            if not line.baseline
            for blocks, cell in line.cells.items()
            if blocks < most
        ]
        return sorted(found, key=lambda one: -one.blocks)


def blocks_of(spec: Mapping[str, Any]) -> int | None:
    found = (at(spec, f"model.{key}") for key in DEPTHS)
    return next((blocks for blocks in found if isinstance(blocks, int)), None)


def scalings(ranked: Sequence[Cell]) -> list[Scaling]:
    """From the ranked cells of a study, the best task first."""
    valued = [cell for cell in ranked if cell.summary.mean is not None and blocks_of(cell.spec) is not None]
    groups: dict[str, list[Cell]] = {}
    for cell in valued:
        groups.setdefault(str(sorted(_but_depth(cell).items(), key=str)), []).append(cell)
    names = task_names([_but_depth(group[0]) for group in groups.values()])
    return [Scaling(name, _lines(group)) for name, group in zip(names, groups.values(), strict=True)]


def _but_depth(cell: Cell) -> dict[str, Any]:
    """What a network is to do, and its sizes but for the depth."""
    return {key: held for key, held in setting(cell.spec).items() if key not in DEPTHS}


def _lines(group: Sequence[Cell]) -> tuple[Line, ...]:
    depths: dict[str, set[int | None]] = {}
    for cell in group:
        depths.setdefault(cell.arm, set()).add(blocks_of(cell.spec))
    by_arm = any(len(found) > 1 for found in depths.values())
    lines: dict[str, dict[int, Cell]] = {}
    for cell in group:  # best first
        lines.setdefault(cell.arm if by_arm else _topology(cell), {}).setdefault(blocks_of(cell.spec) or 0, cell)
    made = [
        Line(label, is_baseline(next(iter(cells.values()))), dict(sorted(cells.items())))
        for label, cells in lines.items()
    ]
    return tuple(sorted(made, key=lambda line: not line.baseline))


def _topology(cell: Cell) -> str:
    words = [at(cell.spec, f"topology.{key}") for key in ("kind", "inner_residual")]
    return " ".join(word for word in words if isinstance(word, str)) or cell.arm
