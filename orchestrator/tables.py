"""How a reading command prints its rows: a table for people, JSON and CSV for programs."""

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

FORMATS = ("table", "json", "csv")


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], format: str, title: str = "") -> None:
    """Print `rows`; a table and CSV show `columns`, JSON shows everything."""
    if format == "json":
        json.dump(list(rows), sys.stdout, indent=2, default=str)
        print()
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_flat(row.get(column)) for column in columns] for row in rows)
    else:
        _print_table(rows, columns, title)


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        values = [row.get(column) for row in rows]
        numeric = any(isinstance(value, int | float) for value in values)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell_text(row.get(column)) for column in columns))
    Console(highlight=False, markup=False, soft_wrap=False).print(table)


def cell_text(value: Any) -> str:
    """A value as a person reads it: four significant digits, - for nothing, lists without brackets."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={cell_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell_text(item) for item in value)
    return str(value)


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str)
    return value
