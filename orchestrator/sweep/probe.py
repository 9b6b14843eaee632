"""How fast trials train: the most expensive one of each arm runs for some seconds, where the study would.

Nothing of it is kept. A plan takes the speed for all of the arm's trials, in proportion to their FLOPs.
"""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis import names
from analysis.page import size
from orchestrator import kinds
from orchestrator.errors import one_line
from orchestrator.study.plan import Plan, Side, plan
from orchestrator.study.spec import Resources
from orchestrator.sweep import cluster
from orchestrator.sweep.progress import duration
from orchestrator.workloads.base import Place, Row, TrialSpec

SECONDS = 10.0  # of rows that a probe waits for
PATIENCE = 120.0  # seconds until it has its rows: data are prepared and code is compiled first
FEWEST = 3  # rows, the first of which ends the start


def on_cluster(study: Plan, address: str | None, probe: bool, home: Path) -> Plan:
    """The plan for the machines at `address`, and with the speeds that are seen there, or here where it is None.

    Raises:
        InputError: no cluster answers.
    """
    if address is not None:
        cluster.reach(address)
    cluster.configure()
    with cluster.connected(address):
        machines = cluster.nodes() if address is not None else study.machines
        made = plan(study.study, study.device, machines)
        if not probe:
            return made
        cache = home.absolute() / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        return replace(made, sides=tuple(_probed(made, side, cache) for side in made.sides))


def _probed(plan: Plan, side: Side, cache: Path) -> Side:
    trial = max((cell.trial for cell in plan.cells if cell.arm == side.arm), key=lambda one: one.estimate().flops)
    resources = plan.study.resources
    rows, peak, fault = _watch(trial, resources, cache)
    if len(rows) < 2:
        return replace(side, probe=fault or f"no two rows in {PATIENCE:g} s; its hours are by FLOPs alone")
    seconds = trial.seconds(rows)
    devices = plan.units / plan.together
    pace = duration(seconds) if seconds >= 10 else f"{seconds:.2g} s"
    seen = f"{pace} a trial, up to {size(peak)} of memory ({len(rows)} rows of cell {trial.cell})"
    return replace(side, speed=trial.estimate().flops / seconds / devices, probe=seen)


def _watch(trial: TrialSpec, resources: Resources, cache: Path) -> tuple[list[Row], int, str]:
    """The rows of a trial that is cut short, its process's memory at the peak, and what went wrong."""
    import ray

    short = trial.short(resources.workers)
    probe = ray.remote(Probe).options(num_cpus=resources.cpus, num_gpus=resources.gpus, max_concurrency=2)
    actor = probe.remote(short.model_dump(mode="json"), str(cache), resources.cpus, resources.gpus)
    over = actor.run.remote()
    began = time.monotonic()
    try:
        while True:
            ended, _ = ray.wait([over], timeout=0.5)
            rows, peak = ray.get(actor.seen.remote())
            enough = len(rows) >= FEWEST and rows[-1].time - rows[0].time >= SECONDS
            if ended or enough or time.monotonic() - began > PATIENCE:
                ray.get(actor.stop.remote())
                ended, _ = ray.wait([over], timeout=PATIENCE / 10)  # it deletes its files
                return rows, peak, ray.get(over) if ended else ""
    except ray.exceptions.RayError as error:
        return [], 0, f"its process was lost ({one_line(error)[:200]})"
    finally:
        ray.kill(actor)


class Probe:
    """Runs one trial in a process of its own, and says what it has seen so far."""

    def __init__(self, spec: dict[str, Any], cache: str, cpus: int, gpus: float) -> None:
        self._spec, self._cache, self._cpus, self._gpus = spec, Path(cache), cpus, gpus
        self._rows: list[Row] = []
        self._stop = False

    def run(self) -> str:
        """Until it is told to stop; what went wrong."""
        spec: type[TrialSpec] = kinds.find("workload", self._spec["workload"])  # type: ignore[assignment]
        with tempfile.TemporaryDirectory(prefix="ancre-probe-") as folder:
            place = Place(Path(folder), self._cache, self._cpus, self._gpus)
            try:
                for row in spec.model_validate(self._spec).rows(place):
                    self._rows.append(Row(row.step, row.metrics, time=row.time))
                    if self._stop:
                        break
            except Exception as error:  # told with the plan, which stands without it
                return one_line(error)
        return ""

    def seen(self) -> tuple[list[Row], int]:
        """The rows so far, and the memory at the peak: the accelerator's where rows tell of it."""
        told = [int(row.metrics[names.MEMORY_PEAK]) for row in self._rows if names.MEMORY_PEAK in row.metrics]
        return list(self._rows), max(told, default=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)

    def stop(self) -> None:
        self._stop = True
