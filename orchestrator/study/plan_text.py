"""A plan as a person reads it: a line for each arm, what it costs in all, and what to mind before starting it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from analysis import names
from analysis.page import size
from analysis.published_depths import LAYERS_PER_BLOCK
from orchestrator.data.base import existing
from orchestrator.study import published_hours
from orchestrator.study.arms import settles
from orchestrator.study.complaints import shown_key
from orchestrator.study.machines import at_once, none_fits
from search_spaces.domains import Choices
from search_spaces.schedulers import PbtSpec

if TYPE_CHECKING:
    from orchestrator.study.plan import Plan


WIDTH = 80  # columns
STREAMS = "hyper-connections took 1.4 to 2.3 times as long, mhc 1.7 to 3.0 times (arXiv 2602.09009, Table 6)"
PARTS = {
    names.MEMORY_PARAMETERS: "parameters",
    names.MEMORY_GRADIENTS: "gradients",
    names.MEMORY_OPTIMIZER: "optimizer state",
    names.MEMORY_ACTIVATIONS: "activations",
    names.MEMORY_AVERAGES: "moving averages",
}
UNITS = {"hours": 1, "minutes": 60, "seconds": 3600}  # and how many an hour has


def text(plan: Plan) -> str:
    study = plan.study
    seeds = f"{len(study.seeds)} seed{'s' if len(study.seeds) > 1 else ''} ({', '.join(map(str, study.seeds))})"
    head = [f"{study.name}: {study.hypothesis}" if study.hypothesis else study.name]
    head.append(
        f"workload {study.workload}, {study.sampler.kind} sampler, scheduler {study.scheduler.kind}, "
        f"ranked by {study.metric} ({study.mode})"
    )
    most = " at most" if plan.fewest_trials < plan.num_trials else ""
    foot = [f"{plan.num_cells:,} configurations x {seeds} = {plan.num_trials:,} trials{most}"]
    foot += [f"{plan.flops:.2g} FLOPs; {size(plan.disk)} on disk", _memory(plan)]
    foot += [_duration(plan), *(f"probed {side.arm}: {side.probe}" for side in plan.sides if side.probe)]
    foot += published_hours.lines(plan)
    foot += [f"note: {note}" for note in notes(plan)]
    return "\n".join([*_wrapped(head), "", *_arms(plan), "", *_wrapped(foot)])


def _wrapped(lines: list[str], indent: str = "  ") -> Iterator[str]:
    for line in lines:
        yield from textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]


def _arms(plan: Plan) -> Iterator[str]:
    """A line for each arm, and under it one for each of its axes."""
    rows = [("arm", "cells", "trials", "parameters", "topology", f"{_kind(plan)}-hours", "disk")]
    for side in plan.sides:
        params, topology = _between(*side.params), _between(*side.topology_params)
        hours = rounded(plan.device_hours(side))
        rows.append((side.arm, f"{side.cells:,}", f"{side.trials:,}", params, topology, hours, size(side.disk)))
    head, *lines = _columns(rows)
    yield head
    for line, side in zip(lines, plan.sides, strict=True):
        yield line
        yield from _wrapped([f"  {_axis(axis)}: {values}" for axis, values in side.brackets.items()], indent="    ")


def _axis(name: str) -> str:
    """An axis; of a number of residual MLP blocks, how papers count it."""
    return f"{name} (depth = {LAYERS_PER_BLOCK} x)" if name.endswith(".num_blocks") else name


def _between(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        yield "  ".join([name.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])


def _kind(plan: Plan) -> str:
    return "CPU" if plan.device == "cpu" else "GPU"


def _memory(plan: Plan) -> str:
    """Of the largest trial, by category where that is known."""
    side = plan.largest
    named = [f"{PARTS[name]} {size(held)}" for name, held in side.memory_parts.items()]
    rest = side.memory - sum(side.memory_parts.values())
    named += [f"what comes and goes in a step {size(rest)}"] if named and rest > 0 else []
    of = f" ({side.arm}: {', '.join(named)})" if named else ""
    besides = ", besides Python and its libraries" if plan.device == "cpu" else ""
    return f"memory of a worker up to {size(side.memory)}{of}{besides}"


def _duration(plan: Plan) -> str:
    """How long it takes here, and how much of a device's time that is."""
    time = next(f"{rounded(plan.hours * n)} {unit}" for unit, n in UNITS.items() if plan.hours * n >= 1 or n == 3600)
    crowd = f"{plan.at_once} trials at once"
    if plan.device == "cpu":
        return f"estimate: {time} on {_whole(plan)}, {crowd}"
    many = f"{plan.units} {plan.device}{'s' if plan.units > 1 else ''}"
    spread = "" if plan.here else f"; {_whole(plan)}, {crowd}"
    return f"estimate: {rounded(plan.hours * plan.units)} GPU-hours (devices x hours), {time} on {many}{spread}"


def _whole(plan: Plan) -> str:
    """What there is to run on."""
    cpus = sum(machine.cpus for machine in plan.machines)
    if plan.here:
        return f"this machine's {cpus:g} CPUs"
    gpus = sum(machine.gpus or 0 for machine in plan.machines)
    count = len(plan.machines)
    return f"the cluster's {count} machine{'s' if count > 1 else ''} ({cpus:g} CPUs, {gpus:g} GPUs)"


def rounded(count: float) -> str:
    """To two digits, which is more than an estimate has."""
    return f"{float(f'{count:.2g}'):,g}"


def notes(plan: Plan) -> Iterator[str]:
    """What will not fit, is missing, or compares unequally."""
    study, resources = plan.study, plan.resources
    cpus, _ = resources.footprint
    if plan.here and cpus > (have := plan.machines[0].cpus):
        yield f"a trial takes {cpus:g} CPUs and this machine has {have:g}: it needs a cluster, by --address"
    if not plan.here and not at_once(resources, plan.machines):
        yield none_fits(resources, plan.machines)
    for side in plan.sides:
        if (needed := plan.needed(side)) > plan.room:
            where = ("this machine" if plan.here else "a machine") if plan.device == "cpu" else f"an {plan.device}"
            yield f"a trial of {side.arm} needs {size(needed)} of memory; {where} has {size(plan.room)}"
    if resources.concurrent > plan.at_once > 0:
        yield f"resources.concurrent is {resources.concurrent}; {plan.at_once} trials at once is the most here"
    if study.scheduler.kind in ("asha", "hyperband"):
        steps = max(cell.trial.total_steps for cell in plan.cells)
        if not study.scheduler.rungs(steps):
            yield f"scheduler {study.scheduler.kind} stops nothing early: there is no rung before step {steps:,}"
    if study.budget.hours is not None and plan.hours > study.budget.hours:
        yield f"budget.hours is {study.budget.hours:g}, so the study may not get through"
    kinds = {getattr(getattr(cell.trial, "topology", None), "kind", None) for cell in plan.cells}
    if plan.device != "cpu" and plan.study.workload == "llm" and kinds & {"hyper-connections", "mhc"}:
        yield f"streams cost more than their FLOPs, by which hours are counted: {STREAMS}"
    if plan.open:
        yield f"{plan.num_cells - len(plan.cells):,} configurations will be chosen as results come in"
        if study.equal:
            yield f"that arms are equal in {study.equal} is known of the other {len(plan.cells):,} configurations"
    if plan.fewest_trials < plan.num_trials:
        yield (
            f"first seeds race: {plan.fewest_trials:,} trials run in any case, the other seeds only of configurations "
            "whose first one gets to the end; what is counted here is the most"
        )
    if isinstance(study.scheduler, PbtSpec):
        changing, interval = ", ".join(study.scheduler.mutate), study.scheduler.interval
        yield f"every {interval:,} steps a population waits for its slowest, and {changing} may change"
    yield from _unequal(plan)
    yield from (f"{path} is not there yet; it must be when the study starts" for path in _missing(plan))


def _unequal(plan: Plan) -> Iterator[str]:
    """Axes of which some arms try more values than others."""
    for axis in dict.fromkeys(axis for side in plan.sides for axis in side.brackets):
        domains = {side.arm: plan.study.resolved[side.arm].axes.get(axis) for side in plan.sides}
        counts = {
            arm: domain.size
            for arm, domain in domains.items()
            if isinstance(domain, Choices) and not settles(axis, domain)
        }
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{arm} {count}" for arm, count in counts.items())
            yield f"arms are not tuned equally; values of {axis} that each tries: {listed}"


def _missing(plan: Plan) -> list[str]:
    """Files that trials name and that do not exist: what is called path or weights, and what ends in .json."""
    sections = {id(section): section for cell in plan.cells for section in vars(cell.trial).values()}
    leaves = [item for section in sections.values() if isinstance(section, BaseModel) for item in _leaves(section)]
    named = {str(value) for key, value in leaves if isinstance(value, str | Path) and _names_file(key, str(value))}
    return sorted(shown_key(path) for path in named if existing(path) is None)


def _leaves(section: BaseModel) -> Iterator[tuple[str, Any]]:
    """The fields of a table and of tables inside it."""
    for key, value in vars(section).items():
        yield from _leaves(value) if isinstance(value, BaseModel) else [(key, value)]


def _names_file(key: str, value: str) -> bool:
    return key in ("path", "weights") or value.endswith(".json")
