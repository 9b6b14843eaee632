"""How a reading command prints its rows: a table for people, JSON and CSV for programs."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

FORMATS = ("table", "json", "csv")
Row = Mapping[str, Any]


def print_rows(rows: Sequence[Row], format: str, shown: Sequence[Row] | None = None) -> None:
    """Print `rows`. JSON and CSV hold all they have; a table has a line for each of `shown`, where that is given."""
    if format == "json":
        json.dump(list(rows), sys.stdout, indent=2, default=str, allow_nan=False)
        print()
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        columns = _columns(rows)
        writer.writerow(columns)
        writer.writerows([_plain(row.get(column)) for column in columns] for row in rows)
    else:
        _print_table(rows if shown is None else shown)


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _print_table(rows: Sequence[Row]) -> None:
    """Only the last column wraps, at words: the others are names and numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    columns = _columns(rows)
    for column in columns:
        numeric = any(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", no_wrap=column != columns[-1])
    for row in rows:
        table.add_row(*(text(row.get(column)) for column in columns))
    Console(highlight=False, markup=False).print(table)


def text(value: Any) -> str:
    """A value as a person reads it: four significant digits, - for nothing, lists without brackets."""
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value)
    return str(value)


def _plain(value: Any) -> Any:
    return json.dumps(value, default=str) if isinstance(value, Mapping | list | tuple) else value
