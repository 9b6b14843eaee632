"""What `ancre query`, `report` and `export` answer, from MLflow by way of the analysis package."""

from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import queries
from analysis.cells import Cell, metric_of
from analysis.store import QueryError, default_home, open_store
from analysis.tasks import deep
from orchestrator.errors import InputError
from orchestrator.record.tracking import uri_of
from orchestrator.study.export import study_of, trial_of
from orchestrator.tables import text

if TYPE_CHECKING:
    from analysis.report import Report

Rows = list[dict[str, Any]]


@contextmanager
def asking() -> Iterator[None]:
    """A question that the store cannot answer is the user's to mend."""
    try:
        yield
    except QueryError as error:
        raise InputError(str(error)) from error


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """A file that cannot be written is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror}") from error


def query(asked: Namespace) -> tuple[Rows, Rows]:
    """The rows that answer one question, and what a table shows of them."""
    with asking():
        return ANSWERS[asked.what](asked)


def _best(asked: Namespace) -> tuple[Rows, Rows]:
    cells = queries.best(asked.study, asked.metric, asked.top, asked.mode, uri_of(asked.home))
    return _cells(cells)


def _all_cells(asked: Namespace) -> tuple[Rows, Rows]:
    return _cells(queries.cells(asked.study, asked.metric, asked.mode, uri_of(asked.home)))


def _cells(cells: Sequence[Cell]) -> tuple[Rows, Rows]:
    rows = [cell.row() for cell in cells]
    return rows, [
        {
            **{key: row[key] for key in ("cell", "arm", "n", "mean", "sd")},
            "95% interval": f"{text(row['low'])} .. {text(row['high'])}" if row["low"] is not None else None,
            "configuration": configuration(row["axes"], row["changed"])
            + (f" ({row['status']}: {row['reason']})" if row["reason"] else ""),
        }
        for row in rows
    ]


def _runs(asked: Namespace) -> tuple[Rows, Rows]:
    store = open_store(uri_of(asked.home))
    study = store.study(asked.study)
    metric = metric_of(study, asked.metric)
    rows = [run.row() for run in study.runs]
    return rows, [
        {
            **{key: row[key] for key in ("trial", "arm", "state")},
            metric: row["metrics"].get(metric),
            "configuration": configuration(row["axes"], row["changes"][-1]["values"] if row["changes"] else ())
            + (f" ({row['cause']})" if row["cause"] else ""),
        }
        for row in rows
    ]


def _topology(asked: Namespace) -> tuple[Rows, Rows]:
    found = queries.topology(asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home))
    rows = [topology.row() for topology in found]
    return rows, [
        {
            "arm": row["arm"] if len({one["network"] for one in rows}) == 1 else f"{row['arm']}: {row['network']}",
            "pearson (chance) p": _beside_chance(row, "pearson"),
            "strongest (chance) p": _beside_chance(row, "strongest"),
            "first prev middle": _shares(row),
        }
        for row in rows
    ]


def _depths(asked: Namespace) -> tuple[Rows, Rows]:
    rows = queries.depths(asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home))
    return rows, [{name: held for name, held in row.items() if name != "cell"} for row in rows]


def _curves(asked: Namespace) -> tuple[Rows, Rows]:
    rows = queries.curves(asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home))
    return rows, rows


def _beside_chance(row: Mapping[str, Any], statistic: str) -> str | None:
    """A statistic over pairs of seeds, in brackets what chance gives, and how often chance does as well."""
    values = [row[statistic], row[f"{statistic}_chance"], row[f"{statistic}_p"]]
    if None in values:
        return None
    return "{:.2f} ({:.2f}) {:.2g}".format(*values)


def _shares(row: Mapping[str, Any]) -> str | None:
    shares = [row[key] for key in ("first", "previous", "middle")]
    return None if None in shares else " ".join(f"{100 * share:.0f}" for share in shares) + " %"


def configuration(axes: Mapping[str, Any], changed: Collection[str] = ()) -> str:
    """A cell's place on its axes: words as they are, numbers with their name; of what `changed`, where it began."""
    return ", ".join(
        str(value)
        if isinstance(value, str)
        else f"{path.rpartition('.')[2]} {_value(path, value)}{' at first' if path in changed else ''}"
        for path, value in axes.items()
    )


def _value(path: str, value: Any) -> str:
    return deep(path, value) if isinstance(value, int) else text(value)


ANSWERS: Mapping[str, Callable[[Namespace], tuple[Rows, Rows]]] = {
    "best": _best,
    "cells": _all_cells,
    "runs": _runs,
    "topology": _topology,
    "curves": _curves,
    "depths": _depths,
}


def write_report(asked: Namespace) -> "Report":
    """The file that was written, and what it found."""
    from analysis.report import report  # draws: matplotlib takes half a second

    out = asked.out or asked.home / "reports" / f"{'+'.join(asked.study)}.html"
    with asking(), writing(out):
        return report(asked.study, out, uri_of(asked.home), home=None if asked.home == default_home() else asked.home)


def exported(asked: Namespace) -> str:
    """A study file of the one configuration whose cell begins with `asked.cell`."""
    with asking():
        store = open_store(uri_of(asked.home))
        studies = [store.study(name) for name in ([asked.study] if asked.study else store.names())]
        found = {run.cell: (study, run) for study in studies for run in study.runs if run.cell.startswith(asked.cell)}
        if len(found) != 1:
            number = f"{len(found)} configurations begin" if found else "no configuration begins"
            some = f" ({', '.join(sorted(found)[:5])}{', ..' if len(found) > 5 else ''})" if found else ""
            raise InputError(f"{number} with {asked.cell!r}{some}; `ancre query cells STUDY` lists them")
        ((study, run),) = found.values()
        spec = store.spec(run)
    changed = sorted({axis for one in study.runs if one.cell == run.cell for c in one.changes for axis in c["values"]})
    began = f"# What its trials began with: {', '.join(changed)} changed on the way.\n" if changed else ""
    return began + study_of(trial_of(spec), study.seeds or {run.seed}).to_toml()
