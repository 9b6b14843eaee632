"""What runs saw at each depth of their network, from depths.jsonl: the last look of each, mean over a cell's seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis import names
from analysis.cells import Cell
from analysis.store import Store


@dataclass(frozen=True)
class Look:
    """What the runs of one cell saw at each depth of a network of K blocks when they last looked, mean over seeds."""

    cell: Cell
    step: int
    seeds: tuple[int, ...]
    values: Mapping[str, Sequence[float]]  # by names.DEPTHS: K + 1 values of states, K of the others

    def rows(self) -> list[dict[str, Any]]:
        """One for each depth, 0 to K; of h_0 there is its length alone."""
        about = {"cell": self.cell.cell, "arm": self.cell.arm, "step": self.step}
        depth = max(len(held) for held in self.values.values()) - 1
        ends = {name: [None] * (depth + 1 - len(held)) + [*held] for name, held in self.values.items()}
        return [{**about, "depth": j, **{name: held[j] for name, held in ends.items()}} for j in range(depth + 1)]


def looks(store: Store, cell: Cell) -> Look | None:
    """None where no counted run looked into its depths.

    Raises:
        QueryError: a run's file of them is damaged.
    """
    found = {run.seed: look for run in cell.counted if (look := store.depths(run))}
    if not found:
        return None
    step = max(look["step"] for look in found.values())
    last = {seed: look for seed, look in found.items() if look["step"] == step}
    first = next(iter(last.values()))
    values = {
        name: [sum(each) / len(last) for each in zip(*(look[name] for look in last.values()), strict=True)]
        for name in names.DEPTHS
        if name in first
    }
    return Look(cell, step, tuple(last), values)
