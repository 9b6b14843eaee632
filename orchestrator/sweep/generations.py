"""Population based training, carried out: members wait for each other, the worst take over a better one's checkpoint.

A population is compared every `interval` steps, once all its members that still run have a value there; a member runs
to that step, ends its process and waits. What is decided is one line of the ledger; then checkpoints are copied, then
all go on. So after a driver was killed the same line follows from the same values, and copies that are missing are made
before anyone starts. A member that diverges is out, and one that fails holds its population up until it is run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.names import FINISHED
from orchestrator.errors import InputError
from orchestrator.record.ledger import ENDED, GENERATION, RUNG, WAIT, History, Record
from orchestrator.study.export import trial_now
from orchestrator.study.populations import changing, key
from orchestrator.study.spec import Study
from search_spaces.domains import Domain
from search_spaces.schedulers import PbtSpec


@dataclass
class Population:
    """The trials of one seed that learn from each other."""

    domains: Mapping[str, Domain]  # of the axes that change
    members: list[Record] = field(default_factory=list)
    generation: dict[str, Any] | None = None  # the last one


class Generations:
    """The populations of a study; none where it has no pbt."""

    def __init__(self, study: Study, members: Iterable[Record], history: History) -> None:
        self._study = study
        self._populations: list[Population] = []
        self._of: dict[str, Population] = {}  # by trial
        here = (rung for rung in history.rungs if rung["decision"] == WAIT)
        self._values = {_at(rung): float(rung["value"]) for rung in here}  # (trial, step) -> value there
        if isinstance(study.scheduler, PbtSpec):
            self._group(study.scheduler, members)
        for generation in history.generations:
            self._take(generation)
        for population in self._populations:
            if population.generation is None and any(record.state == FINISHED for record in population.members):
                raise self._refused("trials of it ran to their end without pbt, and with it they would be compared")

    def _group(self, spec: PbtSpec, members: Iterable[Record]) -> None:
        found: dict[tuple[Any, int], Population] = {}
        for record in members:
            domains = changing(spec, self._study.resolved[record.arm].axes)
            population = found.setdefault((key(spec, record.arm, record.axes), record.seed), Population(domains))
            population.members.append(record)
            self._of[record.id] = population
        self._populations = list(found.values())

    def _take(self, generation: dict[str, Any]) -> None:
        """Raises InputError: the population is not what it was."""
        population = self._of.get(generation["members"][0])
        now = [record.id for record in population.members] if population else []
        if population is None or now != generation["members"]:
            begun = f"a population of {len(generation['members'])} trials that has begun"
            raise self._refused(f"{begun} cannot become one of {len(now)}" if now else f"{begun} needs pbt to go on")
        population.generation = generation

    def _refused(self, why: str) -> InputError:
        return InputError(f"study {self._study.name!r}: {why}; give the changed one a name of its own (--set name=NEW)")

    def pause_at(self, record: Record) -> int:
        """The step at which a trial is to wait for its population; 0: at none."""
        population, spec = self._of.get(record.id), self._study.scheduler
        if population is None or not isinstance(spec, PbtSpec):
            return 0
        step = (population.generation["rung"] if population.generation else 0) + spec.interval
        return step if step < record.steps else 0

    def waiting(self, record: Record) -> bool:
        return (record.id, self.pause_at(record)) in self._values

    def reached(self, record: Record, value: float) -> dict[str, Any]:
        """A trial got to where it waits: the event to write down."""
        step = self.pause_at(record)
        self._values[record.id, step] = value
        named = {"arm": record.arm, "cell": record.cell, "seed": record.seed}
        return {"event": RUNG, **named, "rung": step, "value": value, "decision": WAIT}

    def due(self, trials: Path) -> Iterator[tuple[dict[str, Any], list[Record]]]:
        """Each population that is complete, compared: the event to write down, and who goes on once that is done.

        The caller writes the event, and calls `carry_out` before any of them starts.
        """
        for population in self._populations:
            running = [record for record in population.members if record.state not in ENDED]
            if running and all(map(self.waiting, running)):
                population.generation = self._compared(population, running, trials)
                yield population.generation, running

    def _compared(self, population: Population, running: list[Record], trials: Path) -> dict[str, Any]:
        from orchestrator.sweep.exploit import Member, decide

        spec, step = self._study.scheduler, self.pause_at(running[0])
        assert isinstance(spec, PbtSpec)
        begun = [{axis: record.axes[axis] for axis in population.domains} for record in running]
        members = [
            Member(record.id, axes | record.values, self._values[record.id, step])
            for record, axes in zip(running, begun, strict=True)
        ]
        exploits = decide(spec, self._study.mode, population.domains, members, step)
        by_id = {record.id: record for record in running}
        able = [one for one in exploits if _checkpoints(by_id[one["donor"]], trials).whole(step)]
        return {
            "event": GENERATION,
            "rung": step,
            "members": [record.id for record in population.members],
            "exploits": able,
        }

    def unfinished(self) -> Iterator[dict[str, Any]]:
        """The last generation of each population: its copies may be missing after the driver was killed."""
        for population in self._populations:
            if population.generation:
                yield population.generation

    def carry_out(self, generation: Mapping[str, Any], trials: Path) -> None:
        """Copy the checkpoints of a generation whose event is in the ledger and applied to its records.

        Raises:
            InputError: one is gone, or the disk does not take it.
        """
        for exploit in generation["exploits"]:
            by_id = {record.id: record for record in self._of[exploit["trial"]].members}
            record, donor = by_id[exploit["trial"]], by_id[exploit["donor"]]
            if record.state in ENDED:
                continue
            theirs = _checkpoints(donor, trials)
            try:
                copied = _checkpoints(record, trials).take_over(theirs, generation["rung"])
            except OSError as error:
                raise InputError(f"{trials / record.id}: {error.strerror or error}") from error
            if not copied:
                gone = theirs.path(generation["rung"])
                raise InputError(f"{gone}: is gone, and trial {record.id} is to go on from it")


def _at(rung: Mapping[str, Any]) -> tuple[str, int]:
    return f"{rung['cell']}-s{rung['seed']}", rung["rung"]


def _checkpoints(record: Record, trials: Path) -> Any:
    from orchestrator.pretrain.checkpoint import Checkpoints  # torch takes a second

    return Checkpoints(trials / record.id / "checkpoints", trial_now(record).model_dump(mode="json"))
