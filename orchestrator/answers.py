"""What `ancre query`, `report` and `export` answer, from MLflow by way of the analysis package."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis import queries
from analysis.store import QueryError, open_store
from orchestrator.errors import InputError
from orchestrator.export import study_of, trial_of
from orchestrator.tracking import uri_of

Rows = list[dict[str, Any]]


@contextmanager
def asking() -> Iterator[None]:
    """A question that the store cannot answer is the user's to mend."""
    try:
        yield
    except QueryError as error:
        raise InputError(str(error)) from error


def query(asked: Namespace) -> tuple[Rows, Sequence[str]]:
    """The rows of one question, and the columns that a table shows of them."""
    with asking():
        return ANSWERS[asked.what](asked)


def _best(asked: Namespace) -> tuple[Rows, Sequence[str]]:
    cells = queries.best(asked.study, asked.metric, asked.top, asked.mode, uri_of(asked.home))
    return _cells([cell.row() for cell in cells])


def _all_cells(asked: Namespace) -> tuple[Rows, Sequence[str]]:
    return _cells([cell.row() for cell in queries.cells(asked.study, asked.metric, asked.mode, uri_of(asked.home))])


def _cells(rows: Rows) -> tuple[Rows, Sequence[str]]:
    trouble = ["status", "reason"] if any(row["reason"] for row in rows) else []
    rows, axes = _with_axes(rows)
    return rows, ["cell", "arm", *axes, "n", "mean", "sd", "low", "high", *trouble]


def _runs(asked: Namespace) -> tuple[Rows, Sequence[str]]:
    rows, axes = _with_axes([run.row() for run in queries.runs(asked.study, uri_of(asked.home))])
    return rows, ["trial", "arm", *axes, "seed", "state", "value", "cause"]


def _topology(asked: Namespace) -> tuple[Rows, Sequence[str]]:
    found = queries.topology(asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home))
    rows, axes = _with_axes([topology.row() for topology in found])
    return rows, ["cell", "arm", *axes, "pearson", "agreement", "chance", "p_value", "first", "previous", "middle"]


def _with_axes(rows: Rows) -> tuple[Rows, Sequence[str]]:
    """Each axis as a column of its own, named by the last word of its path where that is unambiguous."""
    paths = list(dict.fromkeys(axis for row in rows for axis in row.get("axes", {})))
    last = [path.rpartition(".")[2] for path in paths]
    short = {path: name if last.count(name) == 1 else path for path, name in zip(paths, last, strict=True)}
    return [row | {short[axis]: value for axis, value in row.get("axes", {}).items()} for row in rows], list(
        short.values()
    )


ANSWERS: Mapping[str, Callable[[Namespace], tuple[Rows, Sequence[str]]]] = {
    "best": _best,
    "cells": _all_cells,
    "runs": _runs,
    "topology": _topology,
}


def write_report(asked: Namespace) -> Path:
    """The file that was written."""
    from analysis.report import report  # draws: matplotlib takes half a second

    out = asked.out or asked.home / "reports" / f"{'+'.join(asked.study)}.html"
    with asking():
        return report(asked.study, out, uri_of(asked.home))


def exported(asked: Namespace) -> str:
    """A study file of the one configuration whose cell begins with `asked.cell`."""
    with asking():
        store = open_store(uri_of(asked.home))
        studies = [store.study(name) for name in ([asked.study] if asked.study else store.names())]
        found = {run.cell: (study, run) for study in studies for run in study.runs if run.cell.startswith(asked.cell)}
        if len(found) != 1:
            number = f"{len(found)} configurations begin" if found else "no configuration begins"
            raise InputError(f"{number} with {asked.cell!r}; `ancre query cells STUDY` lists them")
        ((study, run),) = found.values()
        spec = store.spec(run)
    return study_of(trial_of(spec), study.seeds or {run.seed}).to_toml()
