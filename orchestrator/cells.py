"""One configuration after another, checked and named.

A configuration is checked as a whole when it is the first with its value of some section, and put together from checked
sections otherwise; checks across sections run always. So 100,000 configurations take seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError

from orchestrator.arms import Arm, Branch
from orchestrator.complaints import complaint, keys, loosely_read, shown
from orchestrator.errors import InputError
from orchestrator.merge import Table
from orchestrator.workloads.base import TrialSpec, canonical, digest
from search_spaces.domains import same
from search_spaces.samplers import Assignment

Key: TypeAlias = tuple[Any, ...]


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
        self._checked: dict[Key, tuple[Any, bytes]] = {}  # a section at some values: itself, and its JSON

    def cell(self, arm_name: str, values: Assignment) -> Cell:
        """The cell of an arm at these values of its axes.

        Raises:
            InputError: the spec refuses it.
        """
        arm = self._arms[arm_name]
        number = arm.branch(values)
        branch = arm.branches[number]
        keys = {field: self._key(arm_name, number, branch, field, values) for field in self._fields}
        try:
            if not all(key in self._checked for key in keys.values()):
                self._check(branch.trial(self._spec, values), keys, arm, values)
            sections = {field: self._checked[key] for field, key in keys.items()}
            trial = self._spec.model_validate({field: section for field, (section, _) in sections.items()})
        except ValidationError as error:
            raise InputError(self._complaint(error, arm, branch, values)) from error
        return Cell(arm_name, values, trial, digest({field: text for field, (_, text) in sections.items()}))

    def _key(self, arm: str, number: int, branch: Branch, field: str, values: Assignment) -> Key:
        return (arm, number, field, *(_hashable(values[axis]) for axis in branch.sections.get(field, ())))

    def _check(self, table: Table, keys: Mapping[str, Key], arm: Arm, values: Assignment) -> None:
        trial = self._spec.model_validate(table)
        if fault := loosely_read(table, trial):
            loc, message = fault
            raise InputError(f"{arm.path(loc, values)}: {message}")
        for field, key in keys.items():
            section = getattr(trial, field)
            self._checked[key] = section, canonical(section)

    def _complaint(self, error: ValidationError, arm: Arm, branch: Branch, values: Assignment) -> str:
        table = branch.trial(self._spec, values)
        line = complaint(error, lambda loc: arm.path(loc, values), lambda loc: keys(self._spec, table, loc))
        where = [f"in arm {arm.name}"] if len(self._arms) > 1 else []
        if values and not all(fault["loc"] for fault in error.errors(include_url=False)):  # a check across sections
            where.append("at " + ", ".join(f"{axis} = {shown(value)}" for axis, value in values.items()))
        return f"{line} ({' '.join(where)})" if where else line


def _hashable(value: Any) -> Any:
    """Equal for equal values only: True is not 1."""
    return (type(value), value) if isinstance(value, int | float | str) else same(value)
