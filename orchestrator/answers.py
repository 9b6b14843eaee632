"""What `ancre query`, `report` and `export` answer, from MLflow by way of the analysis package."""

import math
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import queries
from analysis.cells import Cell, compare, metric_of, rank
from analysis.divergence import atlas
from analysis.fields import Fields, of_cell, of_run
from analysis.importance import importances
from analysis.missing import missing
from analysis.queries import Asked
from analysis.store import QueryError, Store, Study, default_home, open_store
from analysis.tasks import deep
from orchestrator.errors import InputError
from orchestrator.questions import FORMATS
from orchestrator.record.tracking import uri_of
from orchestrator.tables import print_rows, text, write_parquet

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


@dataclass(frozen=True)
class Answer:
    """The rows that answer one question, what a table shows of each, and what else can be asked of them by name."""

    rows: Rows
    shown: Rows
    fields: Callable[[], Rows]  # of each row; only sorting, columns and parquet need them

    @classmethod
    def of(cls, rows: Rows, hidden: Sequence[str] = ()) -> "Answer":
        """Rows whose fields are their columns; a table leaves some out."""
        shown = [{key: held for key, held in row.items() if key not in hidden} for row in rows]
        return cls(rows, shown, lambda: rows)


def query(asked: Namespace) -> None:
    """Answer one question, on standard output or in a file."""
    named = asked.out.suffix.removeprefix(".") if asked.out else ""
    asked.format = asked.format or (named if named in FORMATS else "table")
    if asked.format == "parquet" and asked.out is None:
        raise InputError("--format parquet needs --out FILE: it is not text")
    rows, shown = answer(asked)
    if asked.out is None:
        _print(asked, rows, shown)
        return
    with writing(asked.out):
        if asked.format == "parquet":
            write_parquet(rows, asked.out)
            return
        with asked.out.open("w", encoding="utf-8") as file, redirect_stdout(file):
            _print(asked, rows, shown)


def _print(asked: Namespace, rows: Rows, shown: Rows) -> None:
    if asked.format == "table" and not asked.columns and rows and {"metric", "seeds"} <= rows[0].keys():
        print(f"{rows[0]['metric']} over seeds")
    if asked.format == "table" and not rows:
        print(NOTHING.get(asked.what, "nothing to show"))
        return
    print_rows(rows, asked.format, shown)


NOTHING = {
    "missing": "nothing is missing",
    "edges": "no best value lies at the end of what was tried",
    "importance": "no axis has more than one value",
}


def answer(asked: Namespace) -> tuple[Rows, Rows]:
    """The rows that answer one question, and what a table shows of them."""
    with asking():
        found = ANSWERS[asked.what](asked)
        rows, shown = found.rows, found.shown
        if not rows or not (asked.sort or asked.columns or asked.format == "parquet"):
            return rows, shown
        held = found.fields()
        fields = Fields(held, f"the rows of `query {asked.what}`")
        order = fields.order(asked.sort, held) if asked.sort else range(len(held))
        if asked.columns:
            names = [fields.name(said.strip()) for said in asked.columns.split(",")]
            rows = shown = [{name: plain(row.get(name)) for name in names} for row in held]
        elif asked.format == "parquet":
            rows = held
        return [rows[place] for place in order], [shown[place] for place in order]


def plain(value: Any) -> Any:
    """A value that strict JSON can say."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _asked(asked: Namespace) -> Asked:
    return Asked.of(asked.study, asked.metric, asked.mode, uri_of(asked.home), asked.where, asked.home)


def _study(asked: Namespace) -> tuple[Store, Study]:
    store = open_store(uri_of(asked.home), asked.home)
    return store, store.study(asked.study)


def _named(home: Path) -> Path | None:
    """The home folder where commands have to name it."""
    return None if home == default_home() else home


def _best(asked: Namespace) -> Answer:
    found = _asked(asked)
    answer = _cells(found.best(asked.top))
    ends = {arm.best.cell: arm.edges for arm in compare(found.study, found.ranked) if arm.best}
    for row, shown in zip(answer.rows, answer.shown, strict=True):
        row["edges"] = [asdict(edge) for edge in ends.get(row["cell"], ())]
        said = (f"{edge.axis.rpartition('.')[2]}: {edge.side} tried" for edge in ends.get(row["cell"], ()))
        shown["configuration"] = "; ".join([shown["configuration"], *said])
    return answer


def _all_cells(asked: Namespace) -> Answer:
    return _cells(_asked(asked).ranked)


def _cells(cells: Sequence[Cell]) -> Answer:
    rows = [cell.row() for cell in cells]
    shown = [
        {
            **{key: row[key] for key in ("cell", "arm", "n", "mean", "sd")},
            "95% interval": f"{text(row['low'])} .. {text(row['high'])}" if row["low"] is not None else None,
            "configuration": configuration(row["axes"], row["changed"])
            + (f" ({row['status']}: {row['reason']})" if row["reason"] else ""),
        }
        for row in rows
    ]
    return Answer(rows, shown, lambda: [of_cell(cell) for cell in cells])


def _runs(asked: Namespace) -> Answer:
    store, study = _study(asked)
    metric = metric_of(study, asked.metric)
    runs = queries.chosen_runs(store, study.runs, asked.where)
    rows = [run.row() for run in runs]
    shown = [
        {
            **{key: row[key] for key in ("trial", "arm", "state")},
            metric: row["metrics"].get(metric),
            "configuration": configuration(row["axes"], row["changes"][-1]["values"] if row["changes"] else ())
            + (f" ({row['cause']})" if row["cause"] else ""),
        }
        for row in rows
    ]
    return Answer(rows, shown, lambda: [of_run(store, run) for run in runs])


def _missing(asked: Namespace) -> Answer:
    store, study = _study(asked)
    try:
        metric = metric_of(study, asked.metric)
    except QueryError:
        if asked.metric:
            raise
        metric = ""  # none was logged: all is missing
    ranked = queries.chosen_cells(rank(store, study, metric, asked.mode), asked.where)
    rows = missing(study, ranked, whole=asked.where is None, home=_named(asked.home))
    shown = [
        {key: row[key] for key in ("cell", "arm", "missing")}
        | {"why, and what completes it": f"{row['reason']}: {row['command'] or 'ended, and is not run again'}"}
        for row in rows
    ]
    return Answer(rows, shown, lambda: rows)


def _diverged(asked: Namespace) -> Answer:
    store, study = _study(asked)
    runs = queries.chosen_runs(store, study.runs, asked.where)
    rows = [place.row() for place in atlas(runs, asked.metric or study.metric)]
    shown = [
        {key: row[key] for key in ("arm", "axis", "value")}
        | {
            "diverged": f"{row['diverged']} of {row['trials']}",
            "share": row["share"],
            "first": None if row["first_step"] is None else f"step {row['first_step']}: {row['metric']}",
        }
        for row in rows
    ]
    return Answer(rows, shown, lambda: rows)


def _edges(asked: Namespace) -> Answer:
    rows = queries.edges(_asked(asked))
    shown = [{"arm": row["arm"], "best": f"{row['side']} {text(row['value'])}", "next": row["next"]} for row in rows]
    return Answer(rows, shown, lambda: rows)


def _importance(asked: Namespace) -> Answer:
    return Answer.of([one.row() for one in importances(_asked(asked).ranked)])


def _topology(asked: Namespace) -> Answer:
    found = queries.topology(
        asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home), asked.where, asked.home
    )
    rows = [topology.row() for topology in found]
    shown = [
        {
            "arm": row["arm"] if len({one["network"] for one in rows}) == 1 else f"{row['arm']}: {row['network']}",
            "pearson (chance) p": _beside_chance(row, "pearson"),
            "strongest (chance) p": _beside_chance(row, "strongest"),
            "first prev middle": _shares(row),
        }
        for row in rows
    ]
    return Answer(rows, shown, lambda: rows)


def _depths(asked: Namespace) -> Answer:
    rows = queries.depths(
        asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home), asked.where, asked.home
    )
    return Answer.of(rows, hidden=["cell"])


def _curves(asked: Namespace) -> Answer:
    return Answer.of(
        queries.curves(asked.study, asked.cell, asked.metric, asked.mode, uri_of(asked.home), asked.where, asked.home)
    )


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


ANSWERS: Mapping[str, Callable[[Namespace], Answer]] = {
    "best": _best,
    "cells": _all_cells,
    "runs": _runs,
    "missing": _missing,
    "diverged": _diverged,
    "edges": _edges,
    "importance": _importance,
    "topology": _topology,
    "curves": _curves,
    "depths": _depths,
}


def write_report(asked: Namespace) -> "Report":
    """The file that was written, and what it found."""
    from analysis.report import report  # draws: matplotlib takes half a second

    out = asked.out or asked.home / "reports" / f"{'+'.join(asked.study)}.html"
    with asking(), writing(out):
        return report(asked.study, out, uri_of(asked.home), home=_named(asked.home))


def exported(asked: Namespace) -> str:
    """A study file of the one configuration whose cell begins with `asked.cell`."""
    from orchestrator.study.export import study_of, trial_of  # knows all kinds: a quarter of a second

    with asking():
        store = open_store(uri_of(asked.home), asked.home)
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
