"""The questions a user asks of a study: its best configurations, all cells, runs, arms, curves and topologies.

Each opens the store, asks, and gives records whose `row()` is ready for a table or JSON. `Asked` is a study with its
cells ranked, which all but the simplest begin with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from analysis import curves as learning
from analysis.cells import Arm, Cell, compare, metric_of, rank
from analysis.depths import looks
from analysis.fields import Fields, Record, of_cell, of_run
from analysis.store import QueryError, Run, Store, Study, near, open_store

if TYPE_CHECKING:
    from analysis.topology import Agreement, Array, Mask, Profile


Item = TypeVar("Item")


class NoMatrixError(QueryError):
    """A network's weights all depend on its input."""


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
    learned: bool  # some of its coefficients were trained
    outputs: bool  # p weighs what came out of block i, not the state h_i

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
    study: str,
    metric: str | None = None,
    top: int = 5,
    mode: str | None = None,
    tracking_uri: str | None = None,
    where: str | None = None,
    home: Path | None = None,
) -> list[Cell]:
    """The `top` configurations of a study by the last value of a metric, mean over seeds.

    Args:
        study: its name.
        metric: default: what the study ranks by.
        top: how many.
        mode: min or max; default: the study's, or the metric's own where that is another.
        tracking_uri: default: MLFLOW_TRACKING_URI, else the sqlite store of the home folder.
        where: a condition on their fields, such as "depth >= 16 and topology.kind = 'ancre'"; default: all.
        home: default: ANCRE_HOME, else ./ancre-home.

    Raises:
        QueryError: no such store, study or metric, or no run with a finite value of it; a condition that is none.
    """
    return Asked.of(study, metric, mode, tracking_uri, where, home).best(top)


def cells(
    study: str,
    metric: str | None = None,
    mode: str | None = None,
    tracking_uri: str | None = None,
    where: str | None = None,
    home: Path | None = None,
) -> list[Cell]:
    """Every configuration with a recorded run, ranked as by `best`; also where none has a value."""
    return list(Asked.of(study, metric, mode, tracking_uri, where, home).ranked)


def runs(study: str, tracking_uri: str | None = None, where: str | None = None, home: Path | None = None) -> list[Run]:
    """Every trial that was recorded, in the order they started."""
    store = open_store(tracking_uri, home)
    return list(chosen_runs(store, store.study(study).runs, where))


def chosen_runs(store: Store, runs: Sequence[Run], where: str | None) -> Sequence[Run]:
    """Those of which a condition holds.

    Raises:
        QueryError: it is none, or speaks of what no run has.
    """
    return _where(runs, where, partial(of_run, store), "runs")


def chosen_cells(ranked: Sequence[Cell], where: str | None) -> Sequence[Cell]:
    """Those of which a condition holds; errors as of `chosen_runs`."""
    return _where(ranked, where, of_cell, "cells")


def _where(items: Sequence[Item], where: str | None, fields: Callable[[Item], Record], what: str) -> Sequence[Item]:
    if where is None:
        return items
    records = [fields(item) for item in items]
    holds = Fields(records, what).chosen(where)
    return [item for item, record in zip(items, records, strict=True) if holds(record)]


@dataclass(frozen=True)
class Asked:
    """What most questions begin with: a study and its cells, ranked by a metric."""

    store: Store
    study: Study
    metric: str
    ranked: Sequence[Cell]

    @classmethod
    def of(
        cls,
        study: str,
        metric: str | None = None,
        mode: str | None = None,
        tracking_uri: str | None = None,
        where: str | None = None,
        home: Path | None = None,
    ) -> Asked:
        """The arguments are those of `best`."""
        store = open_store(tracking_uri, home)
        record = store.study(study)
        metric = metric_of(record, metric)
        return cls(store, record, metric, chosen_cells(rank(store, record, metric, mode), where))

    def best(self, top: int) -> list[Cell]:
        """The first cells.

        Raises:
            QueryError: none has a value.
        """
        if top < 1:
            raise QueryError(f"top {top}: ask for at least 1 configuration")
        if self.ranked and all(cell.summary.mean is None for cell in self.ranked):
            states = Counter(run.state for cell in self.ranked for run in cell.runs)
            counts = ", ".join(f"{count} {state}" for state, count in states.items())
            what = f"no finished run has a finite {self.metric} to rank by (runs: {counts})"
            raise QueryError(f"study {self.study.name!r}: {what}")
        return list(self.ranked[:top])


def arms(study: str, metric: str | None = None, mode: str | None = None, tracking_uri: str | None = None) -> list[Arm]:
    """What each arm of the comparison was given and what came out, in the study file's order."""
    found = Asked.of(study, metric, mode, tracking_uri)
    return compare(found.study, found.ranked)


def curves(
    study: str,
    cell: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    tracking_uri: str | None = None,
    where: str | None = None,
    home: Path | None = None,
) -> list[dict[str, Any]]:
    """The mean learning curve of one cell, or of each arm's best: rows of arm, cell, step, n, mean, low, high.

    Raises:
        QueryError: no such cell.
    """
    asked = Asked.of(study, metric, mode, tracking_uri, where, home)
    found = []
    for chosen in _chosen(asked, cell):
        if curve := curve_of(asked.store, asked.study, chosen, asked.metric):
            columns = curve.steps, curve.mean, curve.low or curve.mean, curve.high or curve.mean
            found += [
                {"arm": chosen.arm, "cell": chosen.cell, "step": step, "n": curve.seeds, "mean": mean}
                | ({"low": low, "high": high} if curve.low else {"low": None, "high": None})
                for step, mean, low, high in zip(*columns, strict=True)
            ]
    return found


def edges(asked: Asked) -> list[dict[str, Any]]:
    """A row for each arm and axis whose best value lies at the end of what was tried."""
    return [
        {"arm": arm.arm, "cell": arm.best.cell, "axis": edge.axis, "value": edge.value, "side": edge.side}
        | {"next": edge.line}
        for arm in compare(asked.study, asked.ranked)
        if arm.best
        for edge in arm.edges
    ]


def _chosen(asked: Asked, cell: str | None) -> list[Cell]:
    """The cells whose name begins so, or each arm's best."""
    if cell is None:
        return [arm.best for arm in compare(asked.study, asked.ranked) if arm.best]
    chosen = [found for found in asked.ranked if found.cell.startswith(cell)]
    if not chosen:
        known = near(cell, [found.cell for found in asked.ranked])
        raise QueryError(f"study {asked.study.name!r} has no cell {cell!r}{known}")
    return chosen


def depths(
    study: str,
    cell: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    tracking_uri: str | None = None,
    where: str | None = None,
    home: Path | None = None,
) -> list[dict[str, Any]]:
    """What happens at each depth of one cell, or of each arm's best one: a row for each depth.

    Raises:
        QueryError: no such study or cell, or none whose runs looked into their depths.
    """
    asked = Asked.of(study, metric, mode, tracking_uri, where, home)
    found = [look for one in _chosen(asked, cell) if (look := looks(asked.store, one))]
    if not found:
        how = "; train.depths_every says how often" if record.workload == "llm" else f", as workload {record.workload} cannot"
        raise QueryError(f"study {study!r}: no run looked into its depths{how}")
    return [row for look in found for row in look.rows()]


def topology(
    study: str,
    cell: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    tracking_uri: str | None = None,
    where: str | None = None,
    home: Path | None = None,
) -> list[Topology]:
    """The learned topologies of one cell (the start of its name is enough), or of each arm's best cell.

    Raises:
        QueryError: no such cell, or none with a recorded topology.
    """
    asked = Asked.of(study, metric, mode, tracking_uri, where, home)
    found = []
    for one in _chosen(asked, cell):
        try:
            found += topologies(asked.store, one)
        except NoMatrixError:
            if cell is not None:
                raise
    if not found:
        raise QueryError(f"study {study!r}: no finished run of {cell or 'its best cells'} recorded a learned topology")
    return found


def curve_of(store: Store, study: Study, cell: Cell, metric: str) -> learning.Curve | None:
    """The mean learning curve of the counted runs of a cell; of linear networks, the mean of logarithms."""
    return learning.average(list(store.history(cell.counted, metric).values()), study.workload == "lnn")


def topologies(store: Store, cell: Cell) -> list[Topology]:
    """The networks of a cell with their matrices over the counted seeds; empty where none was recorded.

    Raises:
        NoMatrixError: a network has none.
        QueryError: a file is damaged, or the seeds' networks do not fit together.
    """
    from analysis.topology import agreement, allowed, profile, stack

    recorded = {run.seed: store.topology(run) for run in cell.counted}
    networks = sorted({network for snapshots in recorded.values() for network in snapshots})
    found = []
    for network in networks:
        snapshots = {seed: nets[network] for seed, nets in recorded.items() if network in nets}
        first = next(iter(snapshots.values()))
        if first.get("p", ...) is None:
            what = f"topology of cell {cell.cell}, network {network!r}"
            raise NoMatrixError(f"{what}: {first.get('kind')} has no matrix, since every weight depends on the input")
        try:
            p, trained = stack(list(snapshots.values()))
            mask = allowed(first)
        except (ValueError, KeyError) as error:
            raise QueryError(f"topology of cell {cell.cell}, network {network!r}: {error}") from error
        seeds = tuple(snapshots)
        learned = bool(trained.any())
        outputs = first.get("rule") == "outputs"
        found.append(Topology(cell, network, seeds, p, mask, agreement(p, trained), profile(p), learned, outputs))
    return found
