"""Which configurations an arm of a study consists of: tables merged, and axes kept where they apply.

An arm is `[trial]` with the arm's own table merged over it, and axes. Axes whose values are tables or kinds are settled
first; each way to settle them is a *branch*, and another axis belongs to a branch where the spec has such a field. So a
temperature multiplies the configurations of ANCRe and not those of the cascaded baseline.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from orchestrator.errors import InputError
from orchestrator.study.complaints import Loc
from orchestrator.study.merge import Table, holds, merged, set_axes
from orchestrator.workloads.base import TrialSpec
from search_spaces.domains import Choices, Domain, first, same
from search_spaces.samplers import Assignment, Space

MOST_BRANCHES = 10_000


def with_kinds(spec: type[TrialSpec], table: Table) -> Table:
    """A section without a kind is of the kind that the workload has by default."""
    result = dict(table)
    for name, info in spec.model_fields.items():
        kind = getattr(info.get_default(call_default_factory=True), "kind", None)
        section = table.get(name)
        if kind is not None and isinstance(section, dict) and "kind" not in section:
            result[name] = {"kind": kind, **section}
    return result


@dataclass(frozen=True)
class Branch:
    """An arm with its kinds and tables settled."""

    settled: Assignment
    table: Table  # of a trial, but for the other axes
    axes: tuple[str, ...]  # the others that apply

    @cached_property
    def sections(self) -> dict[str, tuple[str, ...]]:
        """Section of a trial -> the axes that set something in it."""
        grouped: dict[str, tuple[str, ...]] = {}
        for axis in self.axes:
            section = axis.partition(".")[0]
            grouped[section] = (*grouped.get(section, ()), axis)
        return grouped

    def trial(self, spec: type[TrialSpec], values: Assignment) -> Table:
        return with_kinds(spec, set_axes(self.table, {axis: values[axis] for axis in self.axes}))


@dataclass(frozen=True)
class Arm:
    """One side of a comparison."""

    name: str
    own: Table  # what it changes in [trial]
    own_axes: frozenset[str]
    axes: dict[str, Domain]  # those that apply in some branch, in the order of the file
    branches: tuple[Branch, ...]

    @cached_property
    def spaces(self) -> list[Space]:
        """What a sampler searches: a space for each branch."""
        return [
            {
                axis: Choices((branch.settled[axis],)) if axis in branch.settled else domain
                for axis, domain in self.axes.items()
                if axis in branch.settled or axis in branch.axes
            }
            for branch in self.branches
        ]

    @property
    def first(self) -> Assignment:
        """The configuration with each axis at the first of its values."""
        return {axis: first(domain) for axis, domain in self.spaces[0].items()}

    def branch(self, values: Assignment) -> int:
        """The number of the branch that an assignment belongs to."""
        if len(self.branches) == 1:
            return 0
        return self._numbers[same({axis: values[axis] for axis in self.branches[0].settled})]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {same(branch.settled): number for number, branch in enumerate(self.branches)}

    def path(self, loc: Loc, values: Assignment) -> str:
        """Where a study file says what a trial has at `loc`."""
        if not loc:  # a check across sections
            return "axes" if values else "trial"
        axes = [axis for axis in values if all(a == b for a, b in zip(axis.split("."), loc, strict=False))]
        if axes:
            table = f"arms.{self.name}.axes" if axes[0] in self.own_axes else "axes"
            return f"{table}.{', '.join(quoted(axis) for axis in axes)}"
        own = any(holds(self.own, ".".join(loc[: len(loc) - up])) for up in (0, 1) if len(loc) > up)
        return ".".join((f"arms.{self.name}" if own else "trial", *loc))


def quoted(axis: str) -> str:
    return f'"{axis}"' if "." in axis else axis


def build_arm(
    spec: type[TrialSpec], name: str, trial: Table, own: Table, axes: Mapping[str, Domain], own_axes: Iterable[str]
) -> Arm:
    """The arm `name`: `own` merged over `trial`, and those of `axes` that apply.

    Raises:
        InputError: more ways to settle kinds and tables than are sensible.
    """
    table = merged(with_kinds(spec, trial), own)
    choices = {axis: domain for axis, domain in axes.items() if isinstance(domain, Choices)}
    settling = {axis: domain for axis, domain in choices.items() if settles(axis, domain)}
    ways = math.prod([domain.size for domain in settling.values()])
    if ways > MOST_BRANCHES:
        raise InputError(f"axes: should combine at most {MOST_BRANCHES} kinds and tables, got {ways}")
    rest = {axis: domain for axis, domain in axes.items() if axis not in settling}
    branches = tuple(
        _branch(spec, table, dict(zip(settling, combination, strict=True)), rest)
        for combination in itertools.product(*(domain.values for domain in settling.values()))
    )
    apply = {*settling, *itertools.chain.from_iterable(branch.axes for branch in branches)}
    kept = {axis: domain for axis, domain in axes.items() if axis in apply}
    return Arm(name, own, frozenset(own_axes), kept, branches)


def settles(axis: str, domain: Choices) -> bool:
    """Whether the axis chooses a kind or a table, on which it depends what other axes apply."""
    return axis.rpartition(".")[2] == "kind" or any(isinstance(value, Mapping) for value in domain.values)


def _branch(spec: type[TrialSpec], table: Table, settled: Assignment, rest: Mapping[str, Domain]) -> Branch:
    table = with_kinds(spec, set_axes(table, settled))
    values = {axis: first(domain) for axis, domain in rest.items()}
    unknown = set(_unknown(spec, with_kinds(spec, set_axes(table, values))))
    axes = (axis for axis in rest if not any(axis == loc or axis.startswith(f"{loc}.") for loc in unknown))
    return Branch(settled, table, tuple(axes))


def _unknown(spec: type[TrialSpec], table: Table) -> Iterator[str]:
    """The paths that the spec has no field for."""
    try:
        spec.model_validate(table)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_context=False):
            if fault["type"] == "extra_forbidden":
                yield ".".join(map(str, fault["loc"]))
