"""What a report says about one study, gathered once: its arms, curves, steps saved and learned topologies.

Nothing is drawn here and nothing is HTML. Where a part cannot be had, `gaps` says why, in a line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from analysis import cells, names, queries, scaling
from analysis.cells import Arm, Cell, Comparison
from analysis.curves import Curve, Saving, average, saving
from analysis.depths import Look, looks
from analysis.intervals import Summary, summarize
from analysis.queries import Topology
from analysis.scaling import Scaling
from analysis.store import Points, QueryError, Run, Store, Study
from analysis.tasks import setting

SHOWN_ARMS = 10  # in figures


@dataclass(frozen=True)
class Steps:
    """Steps that a configuration needs for the baseline's best value: of its mean curve, and of each seed's."""

    base: Cell
    mean: Saving
    seeds: tuple[Saving, ...]


@dataclass(frozen=True)
class Drawn:
    """What a configuration's runs drew, and how good that was."""

    curves: Mapping[str, Curve]  # by metric, over the seeds
    last: Mapping[str, Summary]  # the last value of each metric
    run: Run  # whose picture this is: the first seed's
    picture: bytes | None  # PNG


@dataclass(frozen=True)
class Facts:
    """One study as a report shows it. `curves`, `steps` and `topologies` are of each shown arm's best cell, by arm."""

    study: Study
    metric: str | None  # None: no run logged one
    mode: str
    ranked: tuple[Cell, ...]
    arms: tuple[Arm, ...]
    shown: tuple[Arm, ...]  # in figures: those with a value, the best ones where there are more than SHOWN_ARMS
    comparisons: tuple[Comparison, ...]  # one for each model
    curves: Mapping[str, Curve]
    steps: Mapping[str, Steps]
    topologies: Mapping[str, Sequence[Topology]]
    scalings: tuple[Scaling, ...]  # one for each task
    depth_curves: Mapping[str, Curve]  # of their configurations, by cell
    depths: Mapping[str, Look]  # of each shown arm's best cell, by arm
    seconds: Mapping[str, Mapping[str, float]]  # cell -> name of a time -> a run's sum, mean over seeds
    drawn: Mapping[str, Drawn]  # of each shown arm's best cell that drew images, by arm
    gaps: tuple[str, ...]
    number: int = 1  # of the study in its report
    home: str | None = None  # where commands are to look; None: where they look anyway

    @property
    def winner(self) -> Cell | None:
        """The best configuration that has a value."""
        return next((cell for cell in self.ranked if cell.summary.mean is not None), None)

    @property
    def measures(self) -> bool:
        """Whether its networks were timed and not trained: no curve and no topology of theirs says anything."""
        return bool(self.metric and self.metric.startswith(names.OVERHEAD))

    @property
    def learned(self) -> Topology | None:
        """The learned topology of the best arm that has one."""
        ranked = dict.fromkeys(cell.arm for cell in self.ranked if cell.arm in self.topologies)
        found = (one for arm in ranked for one in self.topologies[arm])
        return next((one for one in found if one.learned), None)

    @property
    def planned_trials(self) -> int | None:
        """None where the plan was not recorded."""
        planned = [arm.planned for arm in self.arms if arm.planned is not None]
        if not planned or len(planned) < len(self.arms):
            return None
        return sum(planned) * len(self.study.seeds) - self.spared_trials

    @property
    def races(self) -> bool:
        """Whether a configuration's other seeds ran only where its first one got to the end."""
        return self.study.races

    @property
    def lost(self) -> list[Cell]:
        """Configurations whose first seed did not get to the end of its race."""
        over = (names.STOPPED, names.DIVERGED)
        return [cell for cell in self.ranked if self.races and {run.state for run in cell.runs} <= {*over}]

    @property
    def spared_trials(self) -> int:
        """Seeds that were not run, for their configuration had lost its race."""
        return sum(len(self.study.seeds) - len(cell.runs) for cell in self.lost)

    @property
    def changed(self) -> list[str]:
        """The axes whose values changed on the way, of a population."""
        return sorted({axis for cell in self.ranked for axis in cell.changed})


def gather(store: Store, name: str, metric: str | None = None, mode: str | None = None) -> Facts:
    """Read all that a report needs of one study.

    Raises:
        QueryError: no such study.
    """
    study = store.study(name)
    gaps: list[str] = []
    try:
        metric = cells.metric_of(study, metric)
    except QueryError as error:
        gaps.append(str(error))
        metric = None
    mode = cells.mode_of(study, metric, mode)
    ranked = cells.rank(store, study, metric or "", mode)
    arms = cells.compare(study, ranked)
    shown = _shown(arms, ranked)
    compared = cells.comparisons(ranked)
    pairs = [cell for one in compared for cell in (one.cell, one.base)]
    drawn = {cell.cell: cell for arm in shown if (cell := arm.best)} | {cell.cell: cell for cell in pairs}
    scaled = scaling.scalings(ranked)
    deep = {cell.cell: cell for one in scaled for line in one.lines for cell in line.cells.values()}
    histories = {
        cell.cell: list(store.history(cell.counted, metric or "").values()) for cell in (drawn | deep).values()
    }
    curves = {cell: curve for cell, runs in histories.items() if (curve := average(runs, study.workload == "lnn"))}
    return Facts(
        study=study,
        metric=metric,
        mode=mode,
        ranked=tuple(ranked),
        arms=tuple(arms),
        shown=tuple(shown),
        comparisons=tuple(compared),
        curves={arm.arm: curves[arm.best.cell] for arm in shown if arm.best and arm.best.cell in curves},
        steps=_steps([arm for arm in arms if arm in shown or arm.best in pairs], compared, histories, curves, mode),
        topologies=_topologies(store, shown, gaps),
        depths=_depths(store, shown, gaps),
        scalings=tuple(scaled),
        depth_curves={cell: curves[cell] for cell in deep if cell in curves},
        seconds=_seconds(store, (drawn | deep).values()),
        drawn={arm.arm: _drawn(store, arm.best) for arm in shown if arm.best and _drew(arm.best)},
        gaps=tuple(gaps),
    )


def _shown(arms: Sequence[Arm], ranked: Sequence[Cell]) -> list[Arm]:
    """Baselines first, then the others in the study's order."""
    by_rank = dict.fromkeys(cell.arm for cell in ranked if cell.summary.mean is not None)
    bases = [arm.arm for arm in arms if arm.best and cells.is_baseline(arm.best)]
    first = [arm for arm in by_rank if arm in bases][:1]
    kept = [*first, *(arm for arm in by_rank if arm not in first)][:SHOWN_ARMS]
    return sorted((arm for arm in arms if arm.arm in kept), key=lambda arm: arm.arm not in bases)


def _steps(
    arms: Sequence[Arm],
    compared: Sequence[Comparison],
    histories: Mapping[str, Sequence[Points]],
    curves: Mapping[str, Curve],
    mode: str,
) -> dict[str, Steps]:
    """Each arm's best cell against the baseline of the same model; nothing of measurements, which do not learn."""
    found: dict[str, Steps] = {}
    for arm in arms:
        cell = arm.best
        base = next((one.base for one in compared if cell and setting(cell.spec) == one.model), None)
        if cell is None or base is None or cell.metric.startswith(names.OVERHEAD):
            continue
        if cells.is_baseline(cell) or not {cell.cell, base.cell} <= curves.keys():
            continue
        target = curves[base.cell].points
        mean = saving(curves[cell.cell].points, target, mode)
        seeds = [saving(points, target, mode) for points in histories[cell.cell]]
        if mean:
            found[arm.arm] = Steps(base, mean, tuple(seed for seed in seeds if seed))
    return found


def _seconds(store: Store, drawn: Iterable[Cell]) -> dict[str, dict[str, float]]:
    """Where the time of each cell's runs went; nothing of runs that did not say."""
    found: dict[str, dict[str, float]] = {}
    for cell in drawn:
        for name in names.TIMES:
            if not any(name in run.metrics for run in cell.counted):
                continue
            sums = [sum(value for _, value in points) for points in store.history(cell.counted, name).values()]
            found.setdefault(cell.cell, {})[name] = fmean(sums)
    return found


def _drew(cell: Cell) -> bool:
    return any(metric in run.metrics for run in cell.counted for metric in names.DRAWN)


def _drawn(store: Store, cell: Cell) -> Drawn:
    found = [metric for metric in names.DRAWN if all(metric in run.metrics for run in cell.counted)]
    averaged = {metric: average([*store.history(cell.counted, metric).values()]) for metric in found}
    return Drawn(
        curves={metric: curve for metric, curve in averaged.items() if curve},
        last={metric: summarize([run.metrics[metric] for run in cell.counted]) for metric in found},
        run=cell.counted[0],
        picture=store.samples(cell.counted[0]),
    )


def _depths(store: Store, arms: Sequence[Arm], gaps: list[str]) -> dict[str, Look]:
    """Those of each arm's best cell; what cannot be read is added to `gaps`."""
    found: dict[str, Look] = {}
    for arm in arms:
        try:
            look = looks(store, arm.best) if arm.best else None
        except QueryError as error:
            gaps.append(str(error))
            continue
        if look:
            found[arm.arm] = look
    return found


def _topologies(store: Store, arms: Sequence[Arm], gaps: list[str]) -> dict[str, Sequence[Topology]]:
    """Those of each arm's best cell; what cannot be read is added to `gaps`."""
    found: dict[str, Sequence[Topology]] = {}
    for arm in arms:
        try:
            networks = queries.topologies(store, arm.best) if arm.best else []
        except QueryError as error:
            gaps.append(str(error))
            continue
        if networks:
            found[arm.arm] = networks
    return found
