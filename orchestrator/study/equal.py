"""Whether arms are of one size, where a study says that they are: `equal = "params"`, `"flops"` or `"steps"`.

Arms are compared where they are alike: a configuration of an arm beside those of the first arm with the same values of
all axes of which both arms try the same values, such as a depth. Over its other axes each has a range, and both ends of
the one should be within 2 % of those of the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from orchestrator.errors import InputError
from orchestrator.study.arms import Arm
from orchestrator.study.cells import Cell
from orchestrator.workloads.base import TrialSpec
from search_spaces.domains import same

Quantity: TypeAlias = Literal["params", "flops", "steps"]
Place: TypeAlias = tuple[tuple[str, str], ...]  # axes and their values, which both arms have

TOLERANCE = 0.02
MOST_ESTIMATES = 2_000  # configurations of an arm that are looked at; of more, places that are evenly spaced


def _params(trial: TrialSpec) -> float:
    estimate = trial.estimate()
    return estimate.params + estimate.topology_params


MEASURES: Mapping[str, tuple[str, Callable[[TrialSpec], float]]] = {
    "params": ("parameters, those of the topology included", _params),
    "flops": ("FLOPs a trial", lambda trial: trial.estimate().flops),
    "steps": ("steps", lambda trial: trial.total_steps),
}


def check(quantity: Quantity, arms: Mapping[str, Arm], cells: Iterable[Cell]) -> None:
    """Raise InputError where an arm is more than 2 % off the first one."""
    by_arm: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_arm[cell.arm].append(cell)
    (first, theirs), *others = by_arm.items()
    for arm, own in others:
        axes = [axis for axis, domain in arms[arm].axes.items() if arms[first].axes.get(axis) == domain]
        bases, places = _by_place(theirs, axes), _by_place(own, axes)
        for place in list(places)[:: math.ceil(len(own) / MOST_ESTIMATES)]:
            _compare(quantity, (first, bases.get(place, theirs)), (arm, places[place]), place)


def _by_place(cells: Iterable[Cell], axes: Sequence[str]) -> dict[Place, list[Cell]]:
    grouped: dict[Place, list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[tuple((axis, same(cell.axes[axis])) for axis in axes if axis in cell.axes)].append(cell)
    return grouped


def _compare(quantity: Quantity, base: tuple[str, list[Cell]], side: tuple[str, list[Cell]], place: Place) -> None:
    unit, measure = MEASURES[quantity]
    (first, theirs), (arm, own) = ((name, [measure(cell.trial) for cell in cells]) for name, cells in (base, side))
    for end in (min, max):
        right, found = end(theirs), end(own)
        if abs(found - right) <= TOLERANCE * right:
            continue
        where = f" at {', '.join(f'{axis} = {value}' for axis, value in place)}" if place else ""
        off = f"{abs(found / right - 1):.1%} {'more' if found > right else 'less'}"
        low, high = _shown(right * (1 - TOLERANCE)), _shown(right * (1 + TOLERANCE))
        raise InputError(
            f"equal: arm {arm} has {_shown(found)} {unit}{where}, {off} than the {_shown(right)} of {first}; "
            f'for equal = "{quantity}" it should have {low} to {high}'
        )


def _shown(count: float) -> str:
    return f"{count:,.0f}" if count < 1e9 else f"{count:.4g}"
