"""How runs become a ranking: cells with n, mean and spread over seeds, and the arms that they belong to.

A cell is a configuration without its seed. Cells rank in this order: all planned seeds finished; some finished; stopped
by the scheduler; nothing finished yet; diverged; failed. Inside each by their mean. So a cell with a missing seed never
passes for a complete one, and a diverged one stays in the list, last.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis import names
from analysis.edges import Edge, edges
from analysis.intervals import Summary, summarize
from analysis.store import QueryError, Run, Store, Study, near
from analysis.tasks import setting

COMPLETE, INCOMPLETE, STOPPED, UNFINISHED, DIVERGED, FAILED = RANKS = (
    "complete",
    "incomplete",
    "stopped",
    "unfinished",
    "diverged",
    "failed",
)


@dataclass(frozen=True)
class Cell:
    """One configuration over its seeds. `summary` counts the finished runs; of a stopped cell, the stopped ones."""

    cell: str
    arm: str
    axes: Mapping[str, Any]
    spec: Mapping[str, Any]  # without its seed
    status: str  # one of RANKS
    metric: str  # that is summarised
    summary: Summary
    values: Mapping[int, float]  # seed -> last value of the metric, of the counted runs
    missing: tuple[int, ...]  # planned seeds that are not counted
    reason: str  # why it is not complete; "" where it is
    runs: tuple[Run, ...]  # all of them, by seed

    @property
    def counted(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.seed in self.values)

    @property
    def changed(self) -> list[str]:
        """The axes whose values changed on the way in some run: `axes` and `spec` are what it began with."""
        return sorted({axis for run in self.runs for change in run.changes for axis in change["values"]})

    def row(self) -> dict[str, Any]:
        """For a table or JSON. `runs` are MLflow run ids."""
        return {
            "cell": self.cell,
            "arm": self.arm,
            "status": self.status,
            "metric": self.metric,
            **asdict(self.summary),
            "seeds": list(self.values),
            "missing": list(self.missing),
            "reason": self.reason,
            "axes": dict(self.axes),
            "changed": self.changed,
            "values": list(self.values.values()),
            "runs": [run.run_id for run in self.runs],
            "spec": dict(self.spec),
        }


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: how much tuning it was given, and what came out."""

    arm: str
    planned: int | None  # configurations; None where the plan was not recorded
    configurations: int  # of which at least one run was recorded
    runs: int
    brackets: Mapping[str, Any]  # axis -> its values
    best: Cell | None  # None where no run has a value
    edges: tuple[Edge, ...]

    def row(self) -> dict[str, Any]:
        best = self.best.row() if self.best else {}
        return {
            "arm": self.arm,
            "planned": self.planned,
            "configurations": self.configurations,
            "runs": self.runs,
            **{key: best.get(key) for key in ("cell", "status", "n", "mean", "sd", "low", "high")},
            "edges": [asdict(edge) for edge in self.edges],
            "brackets": dict(self.brackets),
        }


def metric_of(study: Study, metric: str | None = None) -> str:
    """The metric asked for, else the study's, else one that its runs have.

    Raises:
        QueryError: no run logged it.
    """
    logged = {name for run in study.runs for name in run.metrics}
    usual = [name for name in (names.VAL_PERPLEXITY, names.VAL_LOSS, names.TRAIN_LOSS) if name in logged]
    metric = metric or study.metric or next(iter([*usual, *sorted(logged)]), None)
    if metric is None or not logged:
        raise QueryError(f"study {study.name!r}: no run has logged a metric yet ({len(study.runs)} runs read)")
    if metric not in logged:
        shown = [name for name in logged if not name.startswith(names.AXIS_METRIC)]
        raise QueryError(f"no run of study {study.name!r} logged the metric {metric!r}{near(metric, shown)}")
    return metric


def mode_of(study: Study, metric: str | None, mode: str | None = None) -> str:
    """Which end of a metric is best: as asked, else as the study says of its own metric, else the metric's.

    Raises:
        QueryError: neither min nor max.
    """
    own = metric is None or metric == study.metric
    mode = mode or (study.mode if own else names.MODES.get(str(metric), study.mode))
    if mode not in ("min", "max"):
        raise QueryError(f"mode {mode!r}: it is min or max")
    return mode


def rank(store: Store, study: Study, metric: str, mode: str | None = None) -> list[Cell]:
    """Every cell of a study, best first."""
    mode = mode_of(study, metric or None, mode)
    by_cell: defaultdict[str, list[Run]] = defaultdict(list)
    for run in study.runs:
        by_cell[run.cell].append(run)
    found = [_cell(store, study, sorted(group, key=lambda run: run.seed), metric) for group in by_cell.values()]
    sign = 1 if mode == "min" else -1

    def key(cell: Cell) -> tuple[int, float, str]:
        mean = cell.summary.mean
        return RANKS.index(cell.status), math.inf if mean is None else sign * mean, cell.cell

    return sorted(found, key=key)


def _cell(store: Store, study: Study, group: Sequence[Run], metric: str) -> Cell:
    finished, stopped = _values(group, metric, names.FINISHED), _values(group, metric, names.STOPPED)
    values = finished or stopped
    missing = tuple(seed for seed in study.seeds if seed not in values)
    trouble = [_trouble(run, metric) for run in group if run.seed not in finished]
    absent = sorted(set(study.seeds) - {run.seed for run in group})
    if absent and not study.lost_race(group):
        trouble.append(f"not started: {_seeds(absent)}")
    if any(diverged(run, metric) for run in group):
        status = DIVERGED
    elif any(run.state == names.FAILED for run in group):
        status = FAILED
    elif finished:
        status = INCOMPLETE if missing else COMPLETE
    else:
        status = STOPPED if stopped else UNFINISHED
    spec = store.spec(group[0])
    return Cell(
        cell=group[0].cell,
        arm=group[0].arm,
        axes=group[0].axes,
        spec={key: value for key, value in spec.items() if key != "seed"},
        status=status,
        metric=metric,
        summary=summarize(list(values.values())),
        values=values,
        missing=missing,
        reason="; ".join(trouble),
        runs=tuple(group),
    )


def _values(group: Sequence[Run], metric: str, state: str) -> dict[int, float]:
    """Seed -> last value, of the runs in a state whose value is finite."""
    last = {run.seed: run.metrics.get(metric, math.nan) for run in group if run.state == state}
    return {seed: value for seed, value in last.items() if math.isfinite(value)}


def diverged(run: Run, metric: str | None) -> bool:
    """Also a run that ended well in name, with a last value that is not finite."""
    ended = run.state in (names.FINISHED, names.STOPPED)
    return run.state == names.DIVERGED or (ended and not math.isfinite(run.metrics.get(metric or "", 0.0)))


def _trouble(run: Run, metric: str) -> str:
    """Why a run is not among the finished ones."""
    if run.state == names.FINISHED:
        value = run.metrics.get(metric)
        end = f"{metric or 'a metric'} never logged" if value is None else f"{metric} ended as {value}"
        return f"seed {run.seed}: {end}"
    return f"seed {run.seed} {run.state}" + (f": {run.cause}" if run.cause else "")


def _seeds(seeds: Iterable[int]) -> str:
    listed = [str(seed) for seed in seeds]
    return f"seed{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def compare(study: Study, ranked: Sequence[Cell]) -> list[Arm]:
    """The arms of a study from its ranked cells, in the study file's order."""
    by_arm: dict[str, list[Cell]] = {arm: [] for arm in study.arms}
    for arm in dict.fromkeys(run.arm for run in study.runs):
        by_arm.setdefault(arm, [])
    for cell in ranked:
        by_arm[cell.arm].append(cell)
    found = []
    for arm, group in by_arm.items():
        planned = study.arms.get(arm, {})
        brackets = planned.get("axes") or _seen(group)
        first = next((cell for cell in group if cell.summary.mean is not None), None)
        found.append(
            Arm(
                arm=arm,
                planned=planned.get("configurations"),
                configurations=len(group),
                runs=sum(len(cell.runs) for cell in group),
                brackets=brackets,
                best=first,
                edges=edges(first.axes, brackets) if first else (),
            )
        )
    return found


def _seen(group: Sequence[Cell]) -> dict[str, list[Any]]:
    """The values of each axis among cells, where the plan was not recorded."""
    values: defaultdict[str, list[Any]] = defaultdict(list)
    for cell in group:
        for axis, value in cell.axes.items():
            if value not in values[axis]:
                values[axis].append(value)
    return {axis: sorted(seen, key=lambda value: (str(type(value)), value)) for axis, seen in values.items()}


def is_baseline(cell: Cell) -> bool:
    """Whether others are measured against it: all its topologies are `cascaded`, or its arm's name says so."""
    sections = [held for key, held in cell.spec.items() if key == "topology" or key.endswith("_topology")]
    kinds = {held["kind"] for held in sections if held}
    return kinds == {"cascaded"} or cell.arm in ("cascaded", "baseline", "none")


@dataclass(frozen=True)
class Gap:
    """How far one cell is from another."""

    mean: float  # of new - old; in orders of magnitude, log10(new / old), where `decades`
    low: float | None  # 95 % Student-t interval; None with fewer than two common seeds
    high: float | None
    n: int  # seeds that both have
    decades: bool

    @property
    def lower(self) -> bool:
        return self.mean < 0

    @property
    def clear(self) -> bool:
        """The interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def gap(new: Cell, old: Cell) -> Gap | None:
    """The difference of two cells, paired by seed where they have two seeds in common; None where one has no mean.

    Means that are positive and a factor of ten or more apart are compared by their logarithms.
    """
    if new.summary.mean is None or old.summary.mean is None:
        return None
    values = [*new.values.values(), *old.values.values()]
    decades = min(values) > 0 and not 0.1 < new.summary.mean / old.summary.mean < 10
    scale = math.log10 if decades else float
    shared = [seed for seed in new.values if seed in old.values]
    found = summarize([scale(new.values[seed]) - scale(old.values[seed]) for seed in shared])
    if found.mean is None or found.low is None:
        return Gap(scale(new.summary.mean) - scale(old.summary.mean), None, None, len(shared), decades)
    return Gap(found.mean, found.low, found.high, found.n, decades)


@dataclass(frozen=True)
class Comparison:
    """The best configuration of one model and task that is no baseline, against the best one that is."""

    model: Mapping[str, Any]  # as `tasks.setting`, which both share
    cell: Cell
    base: Cell
    gap: Gap


def comparisons(ranked: Sequence[Cell]) -> list[Comparison]:
    """One for each model and task with a value both of a baseline and of another topology, in order of rank."""
    valued = [cell for cell in ranked if cell.summary.mean is not None]
    found = []
    for model in _distinct([setting(cell.spec) for cell in valued]):
        group = [cell for cell in valued if setting(cell.spec) == model]
        base = next((cell for cell in group if is_baseline(cell)), None)
        cell = next((cell for cell in group if not is_baseline(cell)), None)
        between = gap(cell, base) if cell and base else None
        if cell and base and between:
            found.append(Comparison(model, cell, base, between))
    return found


def _distinct(models: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for model in models:
        if model not in found:
            found.append(model)
    return found
