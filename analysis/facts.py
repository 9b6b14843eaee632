"""What a report says about one study, gathered once: its arms, curves, steps saved and learned topologies.

Nothing is drawn here and nothing is HTML. Where a part cannot be had, `gaps` says why, in a line each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis import cells, queries
from analysis.cells import Arm, Cell, Gap
from analysis.curves import Curve, Saving, average, saving
from analysis.queries import Topology
from analysis.store import Points, QueryError, Store, Study

SHOWN_ARMS = 8  # in figures


@dataclass(frozen=True)
class Steps:
    """Steps that an arm needs for the baseline's final value: of its mean curve, and of each seed's."""

    mean: Saving
    seeds: tuple[Saving, ...]


@dataclass(frozen=True)
class Facts:
    """One study as a report shows it. Curves, steps and topologies are of each arm's best cell, by arm."""

    study: Study
    metric: str | None  # None: no run logged one
    mode: str
    ranked: tuple[Cell, ...]
    arms: tuple[Arm, ...]
    baseline: Arm | None
    shown: tuple[Arm, ...]  # in figures: those with a value, the best ones where there are more than SHOWN_ARMS
    histories: Mapping[str, Mapping[str, Points]] = field(default_factory=dict)  # arm -> MLflow run id -> curve
    curves: Mapping[str, Curve] = field(default_factory=dict)
    steps: Mapping[str, Steps] = field(default_factory=dict)
    topologies: Mapping[str, Sequence[Topology]] = field(default_factory=dict)
    gaps: tuple[str, ...] = ()
    number: int = 1  # of the study in its report
    home: str | None = None  # where commands are to look; None: where they look anyway

    @property
    def winner(self) -> Cell | None:
        """The best configuration that has a value."""
        return next((cell for cell in self.ranked if cell.summary.mean is not None), None)

    @property
    def challenger(self) -> Cell | None:
        """The best configuration of the arms other than the baseline."""
        base = self.baseline.arm if self.baseline else None
        return next((c for c in self.ranked if c.arm != base and c.summary.mean is not None), None)

    @property
    def gap(self) -> Gap | None:
        """From the baseline's best to the challenger."""
        if self.challenger is None or self.baseline is None or self.baseline.best is None:
            return None
        return cells.gap(self.challenger, self.baseline.best)

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
        return sum(planned) * len(self.study.seeds) if planned and len(planned) == len(self.arms) else None


def gather(store: Store, name: str, metric: str | None = None, mode: str | None = None) -> Facts:
    """Read all that a report needs of one study.

    Raises:
        QueryError: no such study.
    """
    study = store.study(name)
    mode = mode or study.mode
    gaps: list[str] = []
    try:
        metric = cells.metric_of(study, metric)
    except QueryError as error:
        gaps.append(str(error))
        metric = None
    ranked = cells.rank(store, study, metric or "", mode)
    arms = cells.compare(study, ranked)
    base = cells.baseline(arms)
    shown = _shown(arms, ranked, base)
    histories = {arm.arm: store.history(arm.best.counted, metric) for arm in shown if arm.best and metric}
    curves = {arm: curve for arm, runs in histories.items() if (curve := average(list(runs.values())))}
    return Facts(
        study=study,
        metric=metric,
        mode=mode,
        ranked=tuple(ranked),
        arms=tuple(arms),
        baseline=base,
        shown=tuple(shown),
        histories=histories,
        curves=curves,
        steps=_steps(histories, curves, base, mode),
        topologies=_topologies(store, shown, gaps),
        gaps=tuple(gaps),
    )


def _shown(arms: Sequence[Arm], ranked: Sequence[Cell], base: Arm | None) -> list[Arm]:
    """The baseline first, then the others in the study's order."""
    by_rank = list(dict.fromkeys(cell.arm for cell in ranked if cell.summary.mean is not None))
    first = [base.arm] if base and base.best else []
    kept = first + [arm for arm in by_rank if arm not in first][: SHOWN_ARMS - len(first)]
    return sorted((arm for arm in arms if arm.arm in kept), key=lambda arm: arm.arm not in first)


def _steps(
    histories: Mapping[str, Mapping[str, Points]], curves: Mapping[str, Curve], base: Arm | None, mode: str
) -> dict[str, Steps]:
    if base is None or base.arm not in curves:
        return {}
    target = curves[base.arm].points
    found = {}
    for arm, curve in curves.items():
        mean = saving(curve.points, target, mode)
        seeds = [saving(points, target, mode) for points in histories[arm].values()]
        if mean and arm != base.arm:
            found[arm] = Steps(mean, tuple(seed for seed in seeds if seed))
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
