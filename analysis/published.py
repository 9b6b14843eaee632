"""What the paper published, read from published.toml beside this file; of others, see published_depths.py."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from analysis.store import QueryError, near


@dataclass(frozen=True)
class Entry:
    """One row of a published table."""

    label: str
    values: tuple[float | str, ...]  # one for each column; empty: the paper prints this row as a picture
    match: Mapping[str, Any]  # dotted paths of a trial spec and their values; empty: beside nothing of ours
    under: str | None = None  # "guided": this row is about guided/fid where the column says val/fid

    def matches(self, spec: Mapping[str, Any]) -> bool:
        """Whether a configuration is what this row is to be read beside."""
        return bool(self.match) and holds(spec, self.match)

    def metric(self, column: Column) -> str | None:
        """Which of our metrics stands in this row of a column; None: the table's."""
        if self.under is None or column.metric is None:
            return column.metric
        return f"{self.under}/{column.metric.rpartition('/')[2]}"


@dataclass(frozen=True)
class Column:
    """What a column shows, and of which model."""

    head: str  # "" where the size says it all
    size: str  # of `sizes`, or a name that is none of ours; "" where each row says which model it is of
    metric: str | None = None  # of ours; None: the table's
    unit: float = 1.0  # that a metric is shown in


@dataclass(frozen=True)
class Table:
    title: str
    source: str
    metric: str
    columns: tuple[Column, ...]
    rows: tuple[Entry, ...]
    galore_compat: bool  # perplexities as GaLore's code reckons them

    @property
    def printed(self) -> bool:
        """Whether the paper's text holds any of its numbers."""
        return any(row.values for row in self.rows)


@dataclass(frozen=True)
class Claim:
    title: str
    value: str
    source: str


def table(key: str) -> Table:
    """The published table that a study names.

    Raises:
        QueryError: there is none of that name.
    """
    tables = [name for name in read() if name.startswith("table")]
    if key not in tables:
        raise QueryError(f"no published table {key!r}{near(key, tables)}")
    held = read()[key]
    rows = (
        Entry(row["label"], tuple(row.get("values", ())), row.get("match", {}), row.get("under"))
        for row in held["rows"]
    )
    columns = (Column("", column) if isinstance(column, str) else Column(**column) for column in held["columns"])
    compat = held.get("galore_compat", False)
    return Table(held["title"], held["source"], held["metric"], tuple(columns), tuple(rows), compat)


def preferred(spec: Mapping[str, Any]) -> bool:
    """Whether a configuration has the reading of the authors' released code, where there are two."""
    return holds(spec, read()["paper"]["prefer"])


def is_size(size: str, spec: Mapping[str, Any]) -> bool:
    """Whether a configuration is of the model of that name; without a name all are."""
    sizes = read()["sizes"]
    return not size or (size in sizes and holds(spec, sizes[size]))


def claims() -> dict[str, Claim]:
    """The claims of the paper's text by name: steps, gain, pearson, strongest."""
    return {key: Claim(**claim) for key, claim in read()["claims"].items()}


def at(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of nested tables, None where there is none."""
    value: Any = spec
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def holds(spec: Mapping[str, Any], match: Mapping[str, Any]) -> bool:
    """Whether a spec has these values at these dotted paths, or leaves out what is at its default."""
    defaults = read()["defaults"]
    found = {path: at(spec, path) for path in match}
    return all((defaults.get(path) if found[path] is None else found[path]) == match[path] for path in match)


@cache
def read() -> dict[str, Any]:
    """The whole of published.toml."""
    return tomllib.loads(files("analysis").joinpath("published.toml").read_text(encoding="utf-8"))
