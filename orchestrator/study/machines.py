"""What there is to run on, and how many trials fit there at once.

A trial is admitted with all that it takes: of several workers, each needs its place, or two trials that were admitted
with half of theirs would wait for each other for ever.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.study.spec import Resources


@dataclass(frozen=True)
class Machine:
    """One machine; a worker is on one as a whole."""

    cpus: float
    memory: int  # bytes for trials; 0: not known
    gpus: float | None = None  # None: not known before Ray has looked

    @classmethod
    def here(cls) -> Machine:
        return cls(os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs" + ("" if self.gpus is None else f" and {self.gpus:g} GPUs")


def at_once(resources: Resources, machines: Sequence[Machine], memory: int = 0) -> int:
    """How many trials run at a time, by CPUs and GPUs; by memory too, where a worker of them takes `memory` bytes.

    0: not one fits.
    """
    fit = sum(_places(resources, machine, memory) for machine in machines) // resources.workers
    return min(fit, resources.concurrent or fit)


def _places(resources: Resources, machine: Machine, memory: int) -> int:
    """How many workers a machine takes."""
    places = int(machine.cpus // resources.cpus)
    if resources.gpus and machine.gpus is not None:
        places = min(places, int(machine.gpus / resources.gpus))
    if memory and machine.memory:
        places = min(places, machine.memory // memory)
    return places


def none_fits(resources: Resources, machines: Sequence[Machine]) -> str:
    """Why not even one trial fits, for people."""
    have = ", ".join(map(str, machines)) or "no machine"
    needs = f"{resources.workers} x ({resources.cpus} CPUs, {resources.gpus:g} GPUs)"
    return f"a trial takes {needs}, and the cluster has {have}"
