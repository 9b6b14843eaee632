"""Which configurations learn from each other in population based training: the cells of an arm that differ in nothing
but the axes that change on the way.

A member that does worst takes the checkpoint of one that does best, so they must be of one network, and keep a
checkpoint at each step at which they are compared. What cannot be is refused before anything starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from orchestrator.errors import InputError, did_you_mean
from orchestrator.study.arms import Arm
from orchestrator.study.cells import Cell
from search_spaces.domains import Domain, same
from search_spaces.samplers import AnySampler, Assignment, OptunaSpec
from search_spaces.schedulers import PbtSpec

Key: TypeAlias = tuple[str, str]  # arm, and its values of the axes that do not change


def key(spec: PbtSpec, arm: str, axes: Assignment) -> Key:
    return arm, same({axis: value for axis, value in axes.items() if axis not in spec.mutate})


def changing(spec: PbtSpec, axes: Mapping[str, Domain]) -> dict[str, Domain]:
    """Those of an arm's axes that change on the way."""
    return {axis: domain for axis, domain in axes.items() if axis in spec.mutate}


def check(spec: PbtSpec, sampler: AnySampler, arms: Mapping[str, Arm], cells: Iterable[Cell]) -> None:
    """Raise InputError where the arms of a study are no populations."""
    if isinstance(sampler, OptunaSpec):
        raise InputError('sampler.kind: a population is whole from its start; should be "grid" or "random" with pbt')
    known = list(dict.fromkeys(axis for arm in arms.values() for axis in arm.axes))
    for axis in spec.mutate:
        if axis not in known:
            raise InputError(f"scheduler.mutate: no axis {axis!r}{did_you_mean(axis, known)}")
    grouped: dict[Key, list[Cell]] = defaultdict(list)
    for cell in cells:
        grouped[key(spec, cell.arm, cell.axes)].append(cell)
    for (arm, _), members in grouped.items():
        _check_members(spec, arm, members)


def _check_members(spec: PbtSpec, arm: str, members: list[Cell]) -> None:
    first, *others = members
    axes = [axis for axis in spec.mutate if axis in first.axes]
    listed = ", ".join(axes or spec.mutate)
    if not others:
        raise InputError(
            f"scheduler.mutate: arm {arm} has a population of 1; it should have 2 or more values of {listed}"
        )
    for axis in axes:
        for value in (cell.axes[axis] for cell in members):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"scheduler.mutate: {axis} should be an axis of numbers, got {value!r} in arm {arm}")
    trial, size = first.trial, first.trial.estimate()
    for cell in others:
        other = cell.trial.estimate()
        if (other.params, other.topology_params) != (size.params, size.topology_params):
            raise InputError(f"scheduler.mutate: {listed} change the network of arm {arm}, which a checkpoint cannot")
        if cell.trial.total_steps != trial.total_steps:
            raise InputError(f"scheduler.mutate: {listed} change how many steps arm {arm} runs")
    if trial.comparable_every is None:
        raise InputError(f"scheduler.kind: trials of workload {trial.workload} cannot take each other's checkpoints")
    if not trial.comparable_every:
        raise InputError(
            f"scheduler.kind: pbt needs checkpoints and evaluations on the way; train.checkpoint_every, and "
            f"train.eval_every where there is one, should be above 0 in arm {arm}"
        )
    if spec.interval % trial.comparable_every or spec.interval >= trial.total_steps:
        raise InputError(
            f"scheduler.interval: should be below the {trial.total_steps} steps of arm {arm} and a multiple of "
            f"{trial.comparable_every}, when its trials both save and evaluate, got {spec.interval}"
        )
