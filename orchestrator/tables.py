"""How a reading command prints its rows: a table for people, JSON and CSV for programs."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
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
        columns = columns_of(rows)
        writer.writerow(columns)
        writer.writerows([flat(row.get(column)) for column in columns] for row in rows)
    else:
        _print_table(rows if shown is None else shown)


def columns_of(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _print_table(rows: Sequence[Row]) -> None:
    """Only the last column wraps, at words: the others are names and numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    columns = columns_of(rows)
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


def flat(value: Any) -> Any:
    """A value for one place of a table: lists and tables as JSON."""
    return json.dumps(value, default=str) if isinstance(value, Mapping | list | tuple) else value


def write_parquet(rows: Sequence[Row], out: Path) -> None:
    """A column for each field: numbers, text or true and false; where these are mixed, or lists, as JSON."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {}
    for name in columns_of(rows):
        held = [flat(row.get(name)) for row in rows]
        try:
            columns[name] = pa.array(held, from_pandas=False)
        except (pa.ArrowException, OverflowError):
            columns[name] = pa.array([None if one is None else json.dumps(one, default=str) for one in held])
    parquet.write_table(pa.table(columns), out)
