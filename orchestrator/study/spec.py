"""What a study is: data that says which configurations are compared, with which seeds, and how they are ranked.

It is read strictly: what is not understood is refused in one line that says where it stands and what would be right.
Studies with the same content are equal, however they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Self, cast

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from analysis import names
from orchestrator import kinds
from orchestrator.errors import InputError, did_you_mean
from orchestrator.study import merge, study_file
from orchestrator.study.arms import Arm, build_arm, quoted, with_kinds
from orchestrator.study.cells import Assembly, Cell
from orchestrator.study.complaints import Loc, complaint, keys, shown
from orchestrator.study.equal import Quantity
from orchestrator.study.merge import Table
from orchestrator.study.study_fields import AnySampler, AnyScheduler, ArmTable, Axes, Name, Seeds, Tables, named
from orchestrator.workloads.base import TrialSpec
from search_spaces import domains, samplers
from search_spaces.domains import Choices, Domain, Range
from search_spaces.samplers import SAMPLERS, Assignment, GridSpec, Sampler
from search_spaces.schedulers import SCHEDULERS, NoneSpec

RESERVED = {"seed": "seeds are repeats, given as seeds = [0, 1, 2] at the top", "workload": "a study has one workload"}


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Resources(_Strict):
    """What a trial runs on. Decides its speed and nothing else, so it is no part of a trial's identity."""

    cpus: int = Field(default=1, ge=1)  # of each worker
    gpus: float = Field(default=0.0, ge=0)  # of each worker
    workers: int = Field(default=1, ge=1)  # of each trial
    min_workers: int = Field(default=0, ge=0)  # that a trial goes on with where machines are lost; 0: all
    concurrent: int = Field(default=0, ge=0)  # trials at once; 0: as many as fit

    @model_validator(mode="after")
    def _check_min_workers(self) -> Self:
        if self.min_workers > self.workers:
            raise ValueError(f"min_workers {self.min_workers} is more than workers {self.workers}")
        return self

    @property
    def footprint(self) -> tuple[float, float]:
        """CPUs and GPUs that one trial occupies. The process that waits for several workers takes none."""
        return self.workers * self.cpus, self.workers * self.gpus

    def including(self, helpers: int) -> Resources:
        """With the processes that a trial starts itself counted as workers, which take as much."""
        return self.model_copy(update={"workers": self.workers * (1 + helpers)})


class Budget(_Strict):
    """What is spent before no more trials are started, and before one is given up."""

    hours: float | None = Field(default=None, gt=0)
    failures: int = Field(default=1, ge=0)  # of a trial that are tried again: it raised, or was silent
    preemptions: int = Field(default=8, ge=0)  # the same: its process or its machine was lost
    silence_minutes: float = Field(default=60.0, gt=0, le=1e6)  # between two rows of a trial, evaluation included


class Study(BaseModel):
    """A study, checked. From Python: `Study(name=.., workload=.., trial={..}, axes={..})`, as in the file.

    Raises:
        InputError: what is wrong, in one line.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    hypothesis: StrictStr = ""  # one sentence that the study may refute
    workload: StrictStr
    seeds: Seeds = (0,)
    metric: StrictStr = Field(default="", validate_default=True)  # "": the workload's
    mode: Literal["min", "max"] = Field(default="", validate_default=True)  # "": the metric's, or the workload's
    published: StrictStr | None = None  # the table of published numbers to print beside ours
    equal: Quantity | None = None  # in which the arms do not differ by more than 2 %
    trial: Tables = {}
    arms: dict[Name, ArmTable] = {}
    axes: Axes = {}
    sampler: AnySampler = GridSpec()
    scheduler: AnyScheduler = NoneSpec()
    resources: Resources = Resources()
    budget: Budget = Budget()

    _source: str = PrivateAttr(default="")

    def __init__(self, /, **data: Any) -> None:
        merge.check(data)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise InputError(complaint(error, ".".join, partial(_keys, data))) from error
        try:
            self.to_toml()
        except TypeError as error:
            raise InputError(f"study: should hold what TOML can say: {error}") from error

    @classmethod
    def read(cls, path: str | Path, overrides: Iterable[str] = (), seeds: Any = None, home: Path | None = None) -> Self:
        """The study in a TOML file, or the shipped study of that name.

        Args:
            overrides: "optim.lr=1e-3", "sampler.cells=8": what `study_file.override` understands.
            seeds: instead of the file's, as [0, 1] or "0..1".
            home: where a study of that name may have been started before.

        Raises:
            InputError: file, path in the file, what would be right, and what was found, in one line.
        """
        file = study_file.find(path, home)
        raw = study_file.load(file)
        for text in overrides:
            raw = study_file.override(raw, text, cls.model_fields)
        return cls._of(raw if seeds is None else {**raw, "seeds": seeds}, str(file))

    @classmethod
    def parse(cls, text: str, source: str = "study") -> Self:
        """The study that a TOML text describes; `source` stands in front of what is wrong with it."""
        return cls._of(study_file.parse(text, source), source)

    @classmethod
    def _of(cls, raw: Table, source: str) -> Self:
        try:
            study = cls(**raw)
        except InputError as error:
            raise InputError(f"{source}: {error}") from error
        study._source = source
        return study

    @property
    def source(self) -> str:
        """Where it was read from, or its name: what stands in front of a complaint."""
        return self._source or self.name

    def to_toml(self) -> str:
        """The study as a file, every default written out. `Study.parse` of it is equal to this study."""
        table = self.model_dump(exclude_none=True)
        return tomli_w.dumps({key: value for key, value in table.items() if value != {}})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and self.to_toml() == other.to_toml()

    def __hash__(self) -> int:
        return hash(self.to_toml())

    @field_validator("workload")
    @classmethod
    def _known_workload(cls, workload: str) -> str:
        try:
            kinds.find("workload", workload)
        except InputError as error:
            raise ValueError(str(error)) from error
        return workload

    @field_validator("metric")
    @classmethod
    def _known_metric(cls, metric: str, info: ValidationInfo) -> str:
        if "workload" not in info.data:  # itself at fault
            return metric
        spec = cast(type[TrialSpec], kinds.find("workload", info.data["workload"]))
        if metric and spec.metrics and metric not in spec.metrics:
            near = did_you_mean(metric, spec.metrics)
            raise ValueError(f"workload {info.data['workload']!r} logs no {shown(metric)}{near}")
        return metric or spec.default_metric

    @field_validator("mode", mode="before")
    @classmethod
    def _mode_of_the_metric(cls, mode: Any, info: ValidationInfo) -> Any:
        if mode not in ("", None) or not {"workload", "metric"} <= info.data.keys():
            return mode or "min"  # at fault elsewhere: that is what is told
        spec = cast(type[TrialSpec], kinds.find("workload", info.data["workload"]))
        metric = info.data["metric"]
        return spec.default_mode if metric == spec.default_metric else names.MODES.get(metric, spec.default_mode)

    @field_validator("published")
    @classmethod
    def _known_table(cls, published: str | None) -> str | None:
        if published is not None:
            from analysis.published import table

            table(published)
        return published

    @property
    def trial_spec(self) -> type[TrialSpec]:
        """The workload's spec."""
        return cast(type[TrialSpec], kinds.find("workload", self.workload))

    @cached_property
    def resolved(self) -> dict[str, Arm]:
        """The arms by name. A study without [arms] has one for each kind of topology."""
        base = {"workload": self.workload, **self.trial}
        shared = _domains(self.axes, "axes")
        if not self.arms:
            return _arms_by_topology(self.trial_spec, base, shared)
        found = {}
        for name, table in self.arms.items():
            own = _domains(table.get("axes", {}), f"arms.{name}.axes")
            changes = {key: value for key, value in table.items() if key != "axes"}
            axes = {axis: own.get(axis, domain) for axis, domain in {**shared, **own}.items()}
            found[name] = build_arm(self.trial_spec, name, base, changes, axes, own)
        return found

    @cached_property
    def _assembly(self) -> Assembly:
        return Assembly(self.trial_spec, self.resolved)

    def cell(self, arm: str, values: Assignment) -> Cell:
        """The configuration of an arm at these values of its axes, as a sampler asks for them.

        Raises:
            InputError: the workload's spec refuses it.
        """
        return self._assembly.cell(arm, values)

    def sampler_of(self, arm: str) -> Sampler:
        """A fresh sampler of an arm. It does not know of cells that were asked before: `replay` them."""
        return self.sampler.build(self.resolved[arm].spaces, self.mode)

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        for path, table in (("trial", self.trial), *((f"arms.{name}", table) for name, table in self.arms.items())):
            for key in RESERVED.keys() & table.keys():
                raise InputError(f"{path}.{key}: {RESERVED[key]}")
        for axis in self.axes:
            if not any(axis in side.axes for side in self.resolved.values()):
                raise InputError(f"axes.{quoted(axis)}: {self._no_field(axis, *self.resolved.values())}")
        for name, table in self.arms.items():
            self._check_arm(self.resolved[name], table.get("axes", {}))
        for side in self.resolved.values():
            self._check_space(side)
            self.cell(side.name, side.first)
        return self

    def _no_field(self, axis: str, *arms: Arm) -> str:
        """That an axis sets nothing: the first part of its path that is nowhere, and what is there instead."""
        parts = axis.split(".")
        for depth, part in enumerate(parts):
            known = {key for arm in arms for key in keys(self.trial_spec, arm.branches[0].table, tuple(parts[:depth]))}
            if part not in known:
                break
        nobody = f"arm {arms[0].name} has no" if len(arms) == 1 else "no arm has"
        return f"{nobody} {'.'.join(parts[: depth + 1])}{did_you_mean(part, known)}"

    def _check_arm(self, arm: Arm, own_axes: Iterable[str]) -> None:
        for axis in own_axes:
            if axis not in arm.axes:
                raise InputError(f"arms.{arm.name}.axes.{quoted(axis)}: {self._no_field(axis, arm)}")
        for axis in arm.axes:
            if merge.holds(arm.own, axis):
                raise InputError(f"arms.{arm.name}.{axis}: is set here and is an axis; give it once")

    def _check_space(self, arm: Arm) -> None:
        if isinstance(self.sampler, GridSpec):
            for axis, domain in arm.axes.items():
                if isinstance(domain, Range):
                    path, found = arm.path(tuple(axis.split(".")), {axis: domain}), domains.text(domain)
                    right = 'a grid takes a list of values; a range needs sampler.kind = "random" or "optuna"'
                    raise InputError(f"{path}: {right}, got {found}")
            return
        count = samplers.size(arm.spaces)
        if count is not None and count < self.sampler.cells:
            right = f"at most the {count} configurations that arm {arm.name} has, as every arm gets the same number"
            raise InputError(f"sampler.cells: should be {right}, got {self.sampler.cells}")


def check_name(name: str) -> str:
    """The name of a study, as one on the command line: fit to be that of a folder.

    Raises:
        InputError: no study can have it.
    """
    try:
        return named(name)
    except ValueError as error:
        raise InputError(f"study: {error}") from error


def _keys(data: Mapping[str, Any], loc: Loc) -> Iterable[str]:
    """The keys that a table of a study file may have."""
    if not loc:
        return Study.model_fields
    families: dict[str, tuple[Mapping[str, type[BaseModel]], str]] = {
        "sampler": (SAMPLERS, "grid"),
        "scheduler": (SCHEDULERS, "none"),
        "resources": ({"": Resources}, ""),
        "budget": ({"": Budget}, ""),
    }
    known, default = families[loc[0]]
    return known[data[loc[0]].get("kind", default)].model_fields


def _domains(axes: Mapping[str, Any], table: str) -> dict[str, Domain]:
    found: dict[str, Domain] = {}
    for axis, value in axes.items():
        path = f"{table}.{quoted(axis)}"
        if axis.partition(".")[0] in RESERVED:
            raise InputError(f"{path}: is no axis: {RESERVED[axis.partition('.')[0]]}")
        try:
            found[axis] = domains.read(value)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
    return found


def _arms_by_topology(spec: type[TrialSpec], base: Table, axes: dict[str, Domain]) -> dict[str, Arm]:
    """An arm for each kind of topology that the axes reach, named by it."""
    axis = next((axis for axis in ("topology", "topology.kind") if axis in axes), None)
    domain = axes[axis] if axis else None
    if axis is None or not isinstance(domain, Choices):
        name = _topology(spec, base) or str(base["workload"])
        return {name: build_arm(spec, name, base, {}, axes, ())}
    grouped: dict[str, list[Any]] = {}
    for value in domain.values:
        name = _topology(spec, merge.set_axes(with_kinds(spec, base), {axis: value})) or str(base["workload"])
        grouped.setdefault(name, []).append(value)
    reached = {name: {**axes, axis: Choices(tuple(values))} for name, values in grouped.items()}
    return {name: build_arm(spec, name, base, {}, own, ()) for name, own in reached.items()}


def _topology(spec: type[TrialSpec], table: Table) -> str | None:
    """The kind of topology of a trial's table."""
    section = with_kinds(spec, {"topology": {}, **table})["topology"]
    kind = section.get("kind") if isinstance(section, Mapping) else None
    return kind if isinstance(kind, str) else None
