"""Which axes decide the metric: Optuna's fANOVA, the share of a forest's variance over an arm's configurations."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.cells import COMPLETE, INCOMPLETE, STOPPED, Cell

SOUND = (COMPLETE, INCOMPLETE, STOPPED)
FEWEST = 4  # configurations for each axis that varies; a forest over fewer says nothing


@dataclass(frozen=True)
class Importance:
    """What share of an arm's differences an axis explains, all axes of an arm together 1."""

    arm: str
    axis: str
    importance: float | None  # None: too few configurations
    values: int  # different ones of this axis
    n: int  # configurations with a mean; diverged ones have none
    note: str  # why there is no share; "" where there is

    def row(self) -> dict[str, Any]:
        return asdict(self)


def importances(ranked: Sequence[Cell]) -> list[Importance]:
    """Of each arm, the axes that have more than one value among its cells with a mean, the most important first."""
    found = []
    for arm in dict.fromkeys(cell.arm for cell in ranked):
        group = [cell for cell in ranked if cell.arm == arm and cell.status in SOUND and cell.summary.mean is not None]
        shared = [axis for axis in (group[0].axes if group else ()) if all(axis in cell.axes for cell in group)]
        seen = {axis: {_key(cell.axes[axis]) for cell in group} for axis in shared}
        varied = [axis for axis in shared if len(seen[axis]) > 1]
        note = _too_few(group, varied)
        shares = {} if note or not varied else _fanova(group, varied)
        made = [Importance(arm, axis, shares.get(axis), len(seen[axis]), len(group), note) for axis in varied]
        found += sorted(made, key=lambda one: -(one.importance or 0.0))
    return found


def _key(held: Any) -> str:
    return json.dumps(held, sort_keys=True)


def _too_few(group: Sequence[Cell], varied: Sequence[str]) -> str:
    fewest = FEWEST * len(varied)
    if len(group) < fewest:
        return f"{len(group)} of the {fewest} configurations that it takes"
    if len({cell.summary.mean for cell in group}) == 1:
        return "all configurations have the same mean"
    return ""


def _fanova(group: Sequence[Cell], varied: Sequence[str]) -> dict[str, float]:
    """By the means, or by their logarithms where these are positive and span a factor of ten or more."""
    import optuna
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    means = [cell.summary.mean or 0.0 for cell in group]
    decades = min(means) > 0 and max(means) >= 10 * min(means)
    places = {axis: _distribution([cell.axes[axis] for cell in group]) for axis in varied}
    study = optuna.create_study()
    study.add_trials(
        optuna.trial.create_trial(
            params={axis: _param(cell.axes[axis], places[axis]) for axis in varied},
            distributions=places,
            value=math.log(mean) if decades else mean,
        )
        for cell, mean in zip(group, means, strict=True)
    )
    shares = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), params=list(varied))
    return {axis: float(share) for axis, share in shares.items()}


def _distribution(held: Sequence[Any]) -> Any:
    """Numbers as a range, logarithmic where they are positive and span a factor of ten; all else by name."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(isinstance(one, int | float) and not isinstance(one, bool) for one in held):
        low, high = float(min(held)), float(max(held))
        return FloatDistribution(low, high, log=low > 0 and high >= 10 * low)
    return CategoricalDistribution(sorted({_key(one) for one in held}))


def _param(held: Any, distribution: Any) -> Any:
    from optuna.distributions import FloatDistribution

    return float(held) if isinstance(distribution, FloatDistribution) else _key(held)
