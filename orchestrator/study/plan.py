"""What a study would run, and what that costs, before anything is started.

Counts are exact, but where first seeds race: there they are the most that can run. Parameters, FLOPs, memory and disk
follow from formulas; hours from the speed that a device sustains in training, so they are good to a factor of two or
so, and marked as estimates. `sweep.probe` measures that speed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from orchestrator.errors import InputError, did_you_mean
from orchestrator.study import equal, plan_text, populations, published_hours
from orchestrator.study.arms import Arm
from orchestrator.study.cells import Cell
from orchestrator.study.machines import Machine, at_once
from orchestrator.study.spec import Resources, Study
from orchestrator.workloads.base import TrialSpec
from search_spaces import domains, samplers
from search_spaces.samplers import Assignment, GridSpec, OptunaSpec, RandomSpec
from search_spaces.schedulers import PbtSpec

MOST_CELLS = 1_000_000
MOST_ESTIMATES = 2_000  # cells whose cost is worked out; of more, about so many, evenly spaced
TRIAL_SECONDS = 1.5  # that a trial takes besides its arithmetic: to load, to evaluate, to record


class Device(NamedTuple):
    """Something that trains."""

    flops: float  # a second, sustained
    memory: int | None  # bytes; None: the machine's


DEVICES: Mapping[str, Device] = {
    "cpu": Device(1e10, None),  # one core, float32: LLaMA-nano was seen at 1.1e10, micro at 3.7e10
    "a100": Device(1.1e14, 80 * 10**9),  # bfloat16: a third of its peak
    "h100": Device(2e14, 80 * 10**9),  # bfloat16: LLaMA-350M at 99.9k tokens/s (paper, Table 6) is 2.2e14
    "h200": Device(2e14, 141 * 10**9),  # an h100 with more memory
}


@dataclass(frozen=True)
class Side:
    """One arm. That none is tuned better than another shows in `cells` and `brackets`."""

    arm: str
    cells: int
    trials: int  # at most, where first seeds race; so all that follows
    brackets: dict[str, str]  # axis -> the values that it tries, as text
    params: tuple[int, int]  # least and most, topology excluded
    topology_params: tuple[int, int]
    flops: float  # of all its trials; where a sampler chooses cells later, as if they cost what the known ones do
    memory: int  # bytes at the peak of the largest trial, on one worker
    memory_parts: Mapping[str, int]  # of that, as in `Estimate`
    disk: int  # bytes that all its trials leave behind
    speed: float  # FLOP/s of one device in training
    probe: str = ""  # what was seen, where the speed was measured, or why it could not be


@dataclass(frozen=True)
class Plan:
    """A study laid out. `cells` are all there are, unless `open`: then a sampler chooses more as results come in."""

    study: Study
    cells: tuple[Cell, ...]
    open: bool
    sides: tuple[Side, ...]
    at_once: int  # trials that can run at a time; 0: not one fits
    device: str
    machines: tuple[Machine, ...]  # of the cluster; one whose GPUs are not known is this one

    @property
    def num_cells(self) -> int:
        return sum(side.cells for side in self.sides)

    @property
    def num_trials(self) -> int:
        return sum(side.trials for side in self.sides)

    @property
    def fewest_trials(self) -> int:
        """Those that run whatever comes out: where first seeds race, one of each configuration."""
        return self.num_cells if self.study.scheduler.races else self.num_trials

    @property
    def resources(self) -> Resources:
        """What a trial takes, with all of its processes; the largest of the known ones."""
        return self.study.resources.including(max(cell.trial.helpers for cell in self.cells))

    @property
    def flops(self) -> float:
        return math.fsum(side.flops for side in self.sides)

    @property
    def largest(self) -> Side:
        """The arm with the trial that needs most memory."""
        return max(self.sides, key=lambda side: side.memory)

    @property
    def memory(self) -> int:
        return self.largest.memory

    @property
    def disk(self) -> int:
        return sum(side.disk for side in self.sides)

    @property
    def hours(self) -> float:
        """An estimate, with `together` trials at a time."""
        return math.fsum(map(self.device_hours, self.sides)) / self.units

    def device_hours(self, side: Side) -> float:
        """Hours of all devices together that an arm's trials take."""
        starts = side.trials * TRIAL_SECONDS * self.units / self.together
        return (side.flops / side.speed + starts) / 3600

    @property
    def here(self) -> bool:
        """Whether it is laid out for this machine, rather than for a cluster that was asked what it has."""
        return all(machine.gpus is None for machine in self.machines)

    @property
    def room(self) -> int:
        """Bytes of memory that trials have: a GPU's, or the largest machine's for all that run there at once."""
        return DEVICES[self.device].memory or max((machine.memory for machine in self.machines), default=0)

    def needed(self, side: Side) -> int:
        """Bytes of `room` that one trial takes."""
        return side.memory * (self.study.resources.workers if DEVICES[self.device].memory is None else 1)

    @property
    def together(self) -> int:
        """Trials at a time; of GPUs that nobody has counted, `resources.concurrent`."""
        counted = self.device == "cpu" or not self.here
        return max(1, self.at_once if counted else self.resources.concurrent)

    @property
    def units(self) -> int:
        """Devices that work at a time."""
        resources = self.resources
        each = resources.cpus if self.device == "cpu" else max(1, round(resources.gpus))
        return self.together * resources.workers * each

    @property
    def notes(self) -> list[str]:
        """What will not fit, is missing, or compares unequally."""
        return list(plan_text.notes(self))

    def trials(self) -> Iterator[tuple[str, Assignment, TrialSpec]]:
        """Arm, axes and trial of each planned trial; a cell's seeds stand together."""
        for cell in self.cells:
            for seed in self.study.seeds:
                yield cell.arm, cell.axes, cell.trial.with_seed(seed)

    def rows(self) -> list[dict[str, Any]]:
        """Every known cell with what one of its trials costs; `published_hours` where they are known."""
        seeds, workers = list(self.study.seeds), self.study.resources.workers
        return [
            {
                "arm": cell.arm,
                "cell": cell.id,
                "axes": cell.axes,
                "seeds": seeds,
                **asdict(cell.trial.estimate_on(workers)),
            }
            | ({"published_hours": found.hours} if (found := published_hours.of_trial(cell.trial)) else {})
            for cell in self.cells
        ]

    def text(self) -> str:
        """The plan as a person reads it."""
        return plan_text.text(self)


def plan(study: Study, device: str | None = None, machines: Sequence[Machine] = ()) -> Plan:
    """Lay out a study.

    Args:
        device: one of `DEVICES`; where not given, h100 if trials take GPUs and cpu otherwise.
        machines: what the study is to run on; where not given, this one.

    Raises:
        InputError: a configuration is refused, two are the same, there are too many, or arms are not `equal`.
    """
    device = device or ("h100" if study.resources.gpus else "cpu")
    if device not in DEVICES:
        raise InputError(f"no device {device!r}{did_you_mean(device, DEVICES)}")
    try:
        asked = {name: _asked(study, arm) for name, arm in study.resolved.items()}
        if (total := sum(asked.values())) > MOST_CELLS:
            raise InputError(f"axes: should give at most {MOST_CELLS:,} configurations, got {total:,}")
        cells = tuple(_distinct(_cells(study)))
        _check_workers(study, cells)
        if study.equal:
            equal.check(study.equal, study.resolved, cells)
        if isinstance(study.scheduler, PbtSpec):
            populations.check(study.scheduler, study.sampler, study.resolved, cells)
    except InputError as error:
        raise InputError(f"{study.source}: {error}") from error
    sides = tuple(_sides(study, asked, cells, DEVICES[device].flops))
    laid_out = Plan(
        study=study,
        cells=cells,
        open=isinstance(study.sampler, OptunaSpec),
        sides=sides,
        at_once=0,
        device=device,
        machines=tuple(machines) or (Machine.here(),),
    )
    return replace(laid_out, at_once=_at_once(laid_out))


def _asked(study: Study, arm: Arm) -> int:
    """How many configurations of an arm will be tried."""
    if isinstance(study.sampler, GridSpec):
        return samplers.size(arm.spaces) or 0
    return study.sampler.cells


def _cells(study: Study) -> Iterator[Cell]:
    """The cells known before the start: of optuna's, the random ones that it starts with."""
    for name, arm in study.resolved.items():
        if isinstance(study.sampler, GridSpec):
            assignments = samplers.everything(arm.spaces)
        else:
            known = study.sampler
            if isinstance(known, OptunaSpec):
                known = RandomSpec(cells=min(known.startup, known.cells), seed=known.seed)
            assignments = iter(known.build(arm.spaces, study.mode).ask, None)
        for values in assignments:
            yield study.cell(name, values)


def _distinct(cells: Iterator[Cell]) -> Iterator[Cell]:
    seen: dict[str, Cell] = {}
    for cell in cells:
        if (same := seen.setdefault(cell.id, cell)) is not cell:
            raise InputError(
                f"arms: {_where(same)} and {_where(cell)} are the same configuration; they should differ, or be one arm"
            )
        yield cell


def _check_workers(study: Study, cells: tuple[Cell, ...]) -> None:
    for cell in cells:
        try:
            cell.trial.check_workers(study.resources.workers)
        except ValueError as error:
            raise InputError(f"resources.workers: {error}, for {_where(cell)}") from error
        if study.resources.min_workers and not cell.trial.elastic:
            raise InputError(
                f"resources.min_workers: a pipeline needs all its workers; it should be 0, for {_where(cell)}"
            )


def _where(cell: Cell) -> str:
    axes = ", ".join(f"{axis} = {value!r}" for axis, value in cell.axes.items())
    return f"{cell.arm} ({axes})" if axes else cell.arm


def _sides(study: Study, asked: Mapping[str, int], cells: tuple[Cell, ...], speed: float) -> Iterator[Side]:
    stride = math.ceil(len(cells) / MOST_ESTIMATES)
    by_arm: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        by_arm[cell.arm].append(cell)
    for arm, own in by_arm.items():
        estimates = [cell.trial.estimate_on(study.resources.workers) for cell in own[::stride]]
        largest = max(estimates, key=lambda estimate: estimate.memory)
        trials = asked[arm] * len(study.seeds)
        params = [estimate.params for estimate in estimates]
        topology = [estimate.topology_params for estimate in estimates]
        yield Side(
            arm=arm,
            cells=asked[arm],
            trials=trials,
            brackets={axis: domains.text(domain) for axis, domain in study.resolved[arm].axes.items()},
            params=(min(params), max(params)),
            topology_params=(min(topology), max(topology)),
            flops=trials * fmean(estimate.flops for estimate in estimates),
            memory=largest.memory,
            memory_parts=largest.memory_parts,
            disk=round(trials * fmean(estimate.disk for estimate in estimates)),
            speed=speed,
        )


def _at_once(plan: Plan) -> int:
    """How many trials can run at a time. Of this machine's GPUs nothing is known, and a GPU's memory is its own."""
    memory = plan.memory if DEVICES[plan.device].memory is None else 0
    return min(at_once(plan.resources, plan.machines, memory), plan.num_trials)
