"""The fields of cells and runs by name, which conditions, sorting and columns speak of.

A field is what a table shows (arm, state, seed, n, mean, ..), an entry of the trial's spec by its path (model.depth),
or a metric (val/perplexity): a run's last value, a cell's mean over the runs that count. Of a path, the last parts are
enough where no other ends so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from analysis import names
from analysis.cells import Cell
from analysis.store import QueryError, Run, Store, near
from analysis.where import ORDERS, Comparison, kind_of, parse

Record: TypeAlias = Mapping[str, Any]


def of_run(store: Store, run: Run) -> dict[str, Any]:
    """The fields of a run."""
    own = {"trial": run.id, "run": run.run_id, "cell": run.cell, "arm": run.arm, "seed": run.seed}
    own |= {"state": run.state, "cause": run.cause, "steps": run.steps, "workload": run.workload}
    return _flat(store.spec(run)) | _flat(run.axes) | _shown(run.metrics) | own


def of_cell(cell: Cell) -> dict[str, Any]:
    """The fields of a cell."""
    counted = cell.counted
    logged = dict.fromkeys(name for run in counted for name in run.metrics)
    means = {name: sum(run.metrics.get(name, math.nan) for run in counted) / len(counted) for name in logged}
    row = cell.row()
    own = {key: row[key] for key in ("cell", "arm", "status", "metric", "n", "mean", "sd", "low", "high", "reason")}
    return _flat(cell.spec) | _flat(cell.axes) | _shown(means) | own | {"missing": len(cell.missing)}


def _shown(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not name.startswith(names.AXIS_METRIC)}


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The entries of tables in tables, by their paths."""
    found: dict[str, Any] = {}
    for key, held in table.items():
        found |= _flat(held, f"{above}{key}.") if isinstance(held, Mapping) and held else {f"{above}{key}": held}
    return found


class Fields:
    """The fields that some records have."""

    def __init__(self, records: Iterable[Record], what: str) -> None:
        self._values: dict[str, list[Any]] = {}
        self._what = what
        for record in records:
            for name, value in record.items():
                self._values.setdefault(name, []).append(value)

    def name(self, said: str) -> str:
        """The whole name of a field.

        Raises:
            QueryError: there is none, or several may be meant.
        """
        if said in self._values:
            return said
        meant = sorted(name for name in self._values if name.endswith(f".{said}"))
        if len(meant) > 1:
            raise QueryError(f"field {said!r} may be {', '.join(meant)}: say which")
        if not meant:
            parts = {name.rpartition(".")[2]: name for name in self._values}
            close = near(said[:100], {*self._values, *parts}) if self._values else ""
            raise QueryError(f"{self._what} have no field {said[:100]!r}{close}")
        return meant[0]

    def checked(self, comparison: Comparison) -> Comparison:
        """The comparison with the field's whole name.

        Raises:
            QueryError: no such field, or values of another kind than it has.
        """
        name = self.name(comparison.field)
        held = kind_of(self._values[name])
        for value in comparison.values:
            kind = kind_of([value])
            if held and not kind <= held:
                some = next(one for one in self._values[name] if one is not None)
                what = f"{' and '.join(sorted(held))}, such as {repr(some)[:40]}"
                raise QueryError(f"field {name!r} holds {what}; got {repr(value)[:40]}")
            if comparison.sign in ORDERS and (value is None or isinstance(value, bool)):
                said = "null" if value is None else str(value).lower()
                raise QueryError(f"field {name!r}: {comparison.sign} needs a number or text, not {said}")
        return replace(comparison, field=name)

    def chosen(self, where: str) -> Callable[[Record], bool]:
        """Whether a condition holds, of each record. Where there is none, no field is known and none is refused."""
        return parse(where, self.checked if self._values else lambda comparison: comparison).holds

    def order(self, sort: str, records: Sequence[Record]) -> list[int]:
        """The places of the records in the order of "field,-field"; what lacks a field, or is NaN, goes last."""
        order = list(range(len(records)))
        for said in reversed(sort.split(",")):
            name = self.name(said.strip().removeprefix("-"))
            held = [_sortable(record.get(name)) for record in records]
            there = [place for place in order if held[place] is not None]
            there.sort(key=held.__getitem__, reverse=said.strip().startswith("-"))
            order = [*there, *(place for place in order if held[place] is None)]
        return order


def _sortable(value: Any) -> Any:
    """Numbers before text before all else; None for nothing and NaN."""
    if value is None or value != value:
        return None
    if isinstance(value, int | float):
        return (0, value)
    return (1, value) if isinstance(value, str) else (2, repr(value))
