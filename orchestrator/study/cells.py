"""One configuration after another, checked and named.

A configuration is checked as a whole when it is the first with its value of some section, and put together from checked
sections otherwise; checks across sections run always. So 100,000 configurations take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError

from orchestrator.errors import InputError
from orchestrator.study.arms import Arm, Branch
from orchestrator.study.complaints import complaint, loosely_read, shown
from orchestrator.study.complaints import keys as known_keys
from orchestrator.workloads.base import TrialSpec, canonical, digest
from search_spaces.domains import same
from search_spaces.samplers import Assignment

Key: TypeAlias = tuple[Any, ...]
Section: TypeAlias = tuple[Any, bytes]


@dataclass(frozen=True)
class Cell:
    """One configuration of an arm, without its seed."""

    arm: str
    axes: Assignment  # the axes that apply, and their values here
    trial: TrialSpec
    id: str  # equal to trial.cell

    def trial_id(self, seed: int) -> str:
        """Equal to trial.with_seed(seed).id."""
        return f"{self.id}-s{seed}"


class Assembly:
    """Makes the cells of a study."""

    def __init__(self, spec: type[TrialSpec], arms: Mapping[str, Arm]) -> None:
        self._spec, self._arms = spec, arms
        self._fields = [name for name in spec.model_fields if name != "seed"]
        # (arm, branch) -> field -> values of the axes in it -> the section, checked, and its JSON
        self._checked: dict[tuple[str, int], dict[str, dict[Key, Section]]] = {}

    def cell(self, arm_name: str, values: Assignment) -> Cell:
        """The cell of an arm at these values of its axes.

        Raises:
            InputError: the spec refuses it.
        """
        arm = self._arms[arm_name]
        number = arm.branch(values)
        branch = arm.branches[number]
        checked = self._checked.setdefault((arm_name, number), {field: {} for field in self._fields})
        try:
            keys = {field: _key(branch, field, values) for field in self._fields}
            if not all(key in checked[field] for field, key in keys.items()):
                for field, section in self._check(arm, branch, values).items():
                    checked[field][keys[field]] = section
            sections = {field: checked[field][key] for field, key in keys.items()}
            trial = self._spec.model_validate({field: section for field, (section, _) in sections.items()})
        except ValidationError as error:
            raise InputError(self._complaint(error, arm, branch, values)) from error
        return Cell(arm_name, values, trial, digest({field: text for field, (_, text) in sections.items()}))

    def _check(self, arm: Arm, branch: Branch, values: Assignment) -> dict[str, Section]:
        table = branch.trial(self._spec, values)
        trial = self._spec.model_validate(table)
        if fault := loosely_read(table, trial):
            loc, message = fault
            raise InputError(f"{arm.path(loc, values)}: {message}")
        sections = {field: getattr(trial, field) for field in self._fields}
        return {field: (section, canonical(section)) for field, section in sections.items()}

    def _complaint(self, error: ValidationError, arm: Arm, branch: Branch, values: Assignment) -> str:
        table = branch.trial(self._spec, values)
        line = complaint(error, lambda loc: arm.path(loc, values), lambda loc: known_keys(self._spec, table, loc))
        where = [f"in arm {arm.name}"] if len(self._arms) > 1 else []
        if values and not all(fault["loc"] for fault in error.errors(include_url=False)):  # a check across sections
            where.append("at " + ", ".join(f"{axis} = {shown(value)}" for axis, value in values.items()))
        return f"{line} ({' '.join(where)})" if where else line


def _key(branch: Branch, field: str, values: Assignment) -> Key:
    axes = branch.sections.get(field)
    return tuple([_hashable(values[axis]) for axis in axes]) if axes else ()


def _hashable(value: Any) -> Any:
    """Equal for equal values only: True is not 1."""
    return value if type(value) in (float, int, str) else (same(value),)
