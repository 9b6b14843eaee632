"""The questions a user asks of a study: its best configurations, all cells, runs, arms, curves and topologies.

A result is a cell (a configuration without its seed) with n, mean and spread over seeds. Cells rank in this order: all
planned seeds finished; some finished; stopped by the scheduler; nothing finished yet; diverged; failed. Inside each by
their mean. So a cell with a missing seed never passes for a complete one, and a diverged one stays in the list, last.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis import curves as learning
from analysis import names
from analysis.intervals import Summary, summarize
from analysis.store import QueryError, Run, Store, Study, near, open_store

if TYPE_CHECKING:
    from analysis.topology import Agreement, Array, Mask, Profile

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
    summary: Summary
    values: Mapping[int, float]  # seed -> last value of the metric, of the counted runs
    missing: tuple[int, ...]  # planned seeds that are not counted
    reason: str  # why it is not complete; "" where it is
    runs: tuple[Run, ...]  # all of them, by seed

    @property
    def counted(self) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.seed in self.values)

    def row(self) -> dict[str, Any]:
        """For a table or JSON. `runs` are MLflow run ids."""
        return {
            "cell": self.cell,
            "arm": self.arm,
            "status": self.status,
            **asdict(self.summary),
            "seeds": list(self.values),
            "missing": list(self.missing),
            "reason": self.reason,
            "axes": dict(self.axes),
            "values": list(self.values.values()),
            "runs": [run.run_id for run in self.runs],
            "spec": dict(self.spec),
        }


@dataclass(frozen=True)
class Edge:
    """A best learning rate at the end of its bracket: the optimum may lie beyond, so try `suggested`."""

    axis: str
    value: float
    side: str  # lowest or highest
    suggested: tuple[float, ...]


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: how much tuning it was given, and what came out."""

    arm: str
    planned: int | None  # configurations; None where the plan was not recorded
    configurations: int  # of which at least one run was recorded
    runs: int
    brackets: Mapping[str, Any]  # axis -> its values
    best: Cell | None  # None where no run has a value
    edge: Edge | None

    def row(self) -> dict[str, Any]:
        best = self.best.row() if self.best else {}
        shown = ("cell", "status", "n", "mean", "sd", "low", "high")
        edge = asdict(self.edge) if self.edge else None
        planned = {"planned": self.planned, "configurations": self.configurations, "runs": self.runs}
        return {"arm": self.arm, **planned, **{key: best.get(key) for key in shown}, "edge": edge} | {
            "brackets": dict(self.brackets)
        }


@dataclass(frozen=True)
class Topology:
    """The learned topology of one cell and network over its seeds."""

    cell: Cell
    network: str
    seeds: tuple[int, ...]
    p: Array  # (S, K+1, K+1)
    allowed: Mask  # (K+1, K+1)
    agreement: Agreement
    profile: Profile

    def row(self) -> dict[str, Any]:
        first, previous, middle = self.profile.mean() or (None, None, None)
        return {
            "cell": self.cell.cell,
            "arm": self.cell.arm,
            "network": self.network,
            **asdict(self.agreement),
            "seeds": list(self.seeds),
            "first": first,
            "previous": previous,
            "middle": middle,
            "axes": dict(self.cell.axes),
            "p": self.p.mean(axis=0).tolist(),
        }


def best(
    study: str, metric: str | None = None, top: int = 5, mode: str | None = None, tracking_uri: str | None = None
) -> list[Cell]:
    """The `top` configurations of a study by the last value of a metric, mean over seeds.

    Args:
        study: its name.
        metric: default: what the study ranks by.
        top: how many.
        mode: min or max; default: the study's.
        tracking_uri: default: MLFLOW_TRACKING_URI, else the sqlite store of the home folder.

    Raises:
        QueryError: no such store, study or metric, or no run with a finite value of it.
    """
    if top < 1:
        raise QueryError(f"top {top}: ask for at least 1 configuration")
    store = open_store(tracking_uri)
    record = store.study(study)
    metric = metric_of(record, metric)
    ranked = rank(store, record, metric, mode)
    if all(cell.summary.mean is None for cell in ranked):
        counts = ", ".join(f"{count} {state}" for state, count in Counter(run.state for run in record.runs).items())
        raise QueryError(f"study {study!r}: no run has a finite {metric} to rank by (runs: {counts})")
    return ranked[:top]


def cells(
    study: str, metric: str | None = None, mode: str | None = None, tracking_uri: str | None = None
) -> list[Cell]:
    """Every configuration with a recorded run, ranked as by `best`; also where none has a value."""
    store = open_store(tracking_uri)
    record = store.study(study)
    return rank(store, record, metric_of(record, metric), mode)


def runs(study: str, tracking_uri: str | None = None) -> list[Run]:
    """Every trial that was recorded, in the order they started."""
    return list(open_store(tracking_uri).study(study).runs)


def arms(study: str, metric: str | None = None, mode: str | None = None, tracking_uri: str | None = None) -> list[Arm]:
    """What each arm of the comparison was given and what came out, in the study file's order."""
    store = open_store(tracking_uri)
    record = store.study(study)
    return compare(record, rank(store, record, metric_of(record, metric), mode))


def curves(
    study: str, metric: str | None = None, mode: str | None = None, tracking_uri: str | None = None
) -> list[dict[str, Any]]:
    """The mean learning curve of each arm's best cell, a row for each step: arm, cell, step, n, mean, low, high."""
    store = open_store(tracking_uri)
    record = store.study(study)
    metric = metric_of(record, metric)
    found = []
    for arm in compare(record, rank(store, record, metric, mode)):
        if arm.best and (curve := curve_of(store, arm.best, metric)):
            columns = curve.steps, curve.mean, curve.low or curve.mean, curve.high or curve.mean
            found += [
                {"arm": arm.arm, "cell": arm.best.cell, "step": step, "n": curve.seeds, "mean": mean}
                | ({"low": low, "high": high} if curve.low else {"low": None, "high": None})
                for step, mean, low, high in zip(*columns, strict=True)
            ]
    return found


def topology(
    study: str,
    cell: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    tracking_uri: str | None = None,
) -> list[Topology]:
    """The learned topologies of one cell (the start of its name is enough), or of each arm's best cell.

    Raises:
        QueryError: no such cell, or none with a recorded topology.
    """
    store = open_store(tracking_uri)
    record = store.study(study)
    ranked = rank(store, record, metric_of(record, metric), mode)
    if cell is None:
        chosen = [arm.best for arm in compare(record, ranked) if arm.best]
    else:
        chosen = [found for found in ranked if found.cell.startswith(cell)]
        if not chosen:
            raise QueryError(f"study {study!r} has no cell {cell!r}{near(cell, [found.cell for found in ranked])}")
    found = [network for one in chosen for network in topologies(store, one)]
    if not found:
        raise QueryError(f"study {study!r}: no finished run of {cell or 'its best cells'} recorded a learned topology")
    return found


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


def rank(store: Store, study: Study, metric: str, mode: str | None = None) -> list[Cell]:
    """Every cell of a study, best first."""
    mode = mode or study.mode
    if mode not in ("min", "max"):
        raise QueryError(f"mode {mode!r}: it is min or max")
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
    finite = {run.seed: run.metrics[metric] for run in group if math.isfinite(run.metrics.get(metric, math.nan))}
    finished = {run.seed: finite[run.seed] for run in group if run.state == names.FINISHED and run.seed in finite}
    stopped = {run.seed: finite[run.seed] for run in group if run.state == names.STOPPED and run.seed in finite}
    values = finished or stopped
    missing = tuple(seed for seed in study.seeds if seed not in values)
    trouble = [_trouble(run, metric) for run in group if run.seed not in finished]
    absent = sorted(set(study.seeds) - {run.seed for run in group})
    if absent:
        trouble.append(f"not started: {_seeds(absent)}")
    if any(_diverged(run, metric) for run in group):
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
        summary=summarize(list(values.values())),
        values=values,
        missing=missing,
        reason="; ".join(trouble),
        runs=tuple(group),
    )


def _diverged(run: Run, metric: str) -> bool:
    """Also a run that ended well in name, with a last value that is not finite."""
    ended = run.state in (names.FINISHED, names.STOPPED)
    return run.state == names.DIVERGED or (ended and metric in run.metrics and not math.isfinite(run.metrics[metric]))


def _trouble(run: Run, metric: str) -> str:
    """Why a run is not among the finished ones."""
    if run.state == names.FINISHED:
        value = run.metrics.get(metric)
        return f"seed {run.seed}: " + (f"{metric} never logged" if value is None else f"{metric} ended as {value}")
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
                edge=_edge(first, brackets) if first else None,
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


def _edge(cell: Cell, brackets: Mapping[str, Any]) -> Edge | None:
    """The learning rate of a cell, where it is the lowest or highest of a list of at least two."""
    for axis, bracket in brackets.items():
        value = cell.axes.get(axis)
        if axis.rpartition(".")[2] != "lr" or not isinstance(bracket, list) or not isinstance(value, int | float):
            continue
        rates = sorted(float(rate) for rate in bracket)
        if len(rates) < 2 or value not in (rates[0], rates[-1]):
            continue
        factor = rates[1] / rates[0] if value == rates[0] else rates[-1] / rates[-2]
        suggested = [value / factor**2, value / factor, value] if value == rates[0] else [value, value * factor]
        if value == rates[-1]:
            suggested.append(value * factor**2)
        side = "lowest" if value == rates[0] else "highest"
        return Edge(axis, float(value), side, tuple(float(f"{rate:.3g}") for rate in suggested))
    return None


def baseline(study: Study, found: Sequence[Arm]) -> Arm | None:
    """The arm that others are measured against: the one whose topology is `cascaded`, else one named baseline."""
    for arm in found:
        topology = arm.best.spec.get("topology", {}) if arm.best else {}
        if topology.get("kind") == "cascaded" or arm.arm in ("cascaded", "baseline"):
            return arm
    return None


def difference(cell: Cell, base: Cell) -> tuple[Summary, bool]:
    """Mean difference of two cells, and whether it is paired: seed by seed, where two or more seeds are in both.

    Unpaired, it is the difference of means without an interval.
    """
    shared = [seed for seed in cell.values if seed in base.values]
    if len(shared) > 1:
        return summarize([cell.values[seed] - base.values[seed] for seed in shared]), True
    if cell.summary.mean is None or base.summary.mean is None:
        return summarize([]), False
    return replace(summarize([cell.summary.mean - base.summary.mean]), n=len(shared)), False


def curve_of(store: Store, cell: Cell, metric: str) -> learning.Curve | None:
    """The mean learning curve of the counted runs of a cell."""
    return learning.average(list(store.history(cell.counted, metric).values()))


def topologies(store: Store, cell: Cell) -> list[Topology]:
    """The networks of a cell with their matrices over the counted seeds; empty where none was recorded.

    Raises:
        QueryError: a file is damaged, or the seeds' networks do not fit together.
    """
    from analysis.topology import agreement, allowed, profile, stack

    recorded = {run.seed: store.topology(run) for run in cell.counted}
    networks = sorted({network for snapshots in recorded.values() for network in snapshots})
    found = []
    for network in networks:
        snapshots = {seed: nets[network] for seed, nets in recorded.items() if network in nets}
        try:
            p, trained = stack(list(snapshots.values()))
            mask = allowed(next(iter(snapshots.values())))
        except (ValueError, KeyError) as error:
            raise QueryError(f"topology of cell {cell.cell}, network {network!r}: {error}") from error
        found.append(Topology(cell, network, tuple(snapshots), p, mask, agreement(p, trained), profile(p)))
    return found
