"""What a workload is: the spec of one trial, what it will cost, and the rows it yields.

A workload runs without Ray: `rows` is a plain generator, so most tests need no cluster. Every file in this folder
defines one `Spec`; the file's name is its kind.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, Literal, Self

from pydantic import Field
from pydantic_core import to_json

from models.spec import Spec as FrozenSpec


@dataclass(frozen=True)
class Row:
    """One report of a running trial."""

    step: int
    metrics: Mapping[str, float]
    topology: Mapping[str, Any] | None = None  # network name -> snapshot, as in topology.json
    time: float = field(default_factory=time.time)  # seconds since the epoch
    depths: Mapping[str, list[float]] | None = None  # what was seen at each depth, as in depths.jsonl
    files: Mapping[str, bytes] | None = None  # name of an artifact -> what it holds from now on


@dataclass(frozen=True)
class Estimate:
    """What one trial costs, known before it starts."""

    params: int  # trained numbers of the network, topology excluded
    topology_params: int
    flops: float  # of the whole trial, forward and backward
    memory: int  # bytes at the peak, on one worker
    disk: int  # bytes that the trial leaves behind, checkpoints included
    memory_parts: Mapping[str, int] = field(default_factory=dict)  # of `memory`, by names.MEMORY, where that is known


def _nobody_else() -> None:
    """Outside a sweep a trial has one process."""


@dataclass(frozen=True)
class Place:
    """Where a trial runs: its own folder, the cache shared by all, and its share of the machine."""

    folder: Path  # trials/<id>: checkpoints live here
    cache: Path  # tokenizers and token arrays, by content hash
    threads: int = 1  # CPU threads of one worker
    gpus: float = 0.0  # share of one worker
    check: Callable[[], None] = _nobody_else  # before a checkpoint is written; raises where another process took over


class TrialSpec(FrozenSpec):
    """One trial: everything that decides its result. What only decides its speed is the study's `resources`."""

    workload: str
    seed: int = Field(default=0, ge=0, lt=2**31)

    default_metric: ClassVar[str]  # what a study ranks by where its file does not say
    default_mode: ClassVar[Literal["min", "max"]] = "min"  # which end of it is best
    metrics: ClassVar[tuple[str, ...]] = ()  # all that it logs, where it says so: a study can rank by no other

    @property
    def cell(self) -> str:
        """The configuration without its seed, as 12 hexadecimal digits."""
        return cell_hash(self)

    @property
    def id(self) -> str:
        """The trial: its cell and its seed."""
        return f"{self.cell}-s{self.seed}"

    def with_seed(self, seed: int) -> Self:
        return self.model_copy(update={"seed": seed})

    @property
    @abstractmethod
    def total_steps(self) -> int:
        """The step of the last row."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """What it costs, by formula."""

    def estimate_on(self, workers: int) -> Estimate:
        """The same where so many workers share it: `memory` is what one of them needs."""
        return self.estimate()

    def short(self, workers: int) -> Self:
        """One worker's share of the same work, reported as often as it can be: what `plan --probe` times."""
        return self

    def seconds(self, rows: Sequence[Row]) -> float:
        """How long the whole takes, without its evaluations, from at least two rows of `short`."""
        paces = [(last.time - first.time) / (last.step - first.step) for first, last in pairwise(rows)]
        return self.total_steps * median(paces)

    @property
    def helpers(self) -> int:
        """Processes beside the trial's own, which it starts itself; each takes a worker's CPUs and GPUs."""
        return 0

    @property
    def elastic(self) -> bool:
        """Whether it can go on with fewer workers than it began with."""
        return True

    @property
    def comparable_every(self) -> int | None:
        """Steps after which it both reports its metric and keeps a checkpoint that a like trial can go on from.

        0: it keeps none. None: no trial of its workload can go on from another's.
        """
        return None

    def check_workers(self, workers: int) -> None:
        """Raise ValueError, in one line, where so many workers cannot share this trial."""

    def prepare(self, cache: Path) -> None:
        """Do once what every trial of a study shares (tokenize a corpus). Called before trials start.

        Raises:
            ValueError: missing, empty or unreadable input, in one line.
        """

    @abstractmethod
    def rows(self, place: Place) -> Iterator[Row]:
        """Train, from the newest valid checkpoint in `place.folder` where there is one.

        With torch.distributed initialised, every rank iterates; each yields the same metrics.

        Raises:
            Diverged: the loss became non-finite.
        """


def cell_hash(trial: TrialSpec) -> str:
    """The hash of a trial's fields, the seed left out."""
    return digest({name: canonical(getattr(trial, name)) for name in type(trial).model_fields if name != "seed"})


def canonical(field: Any) -> bytes:
    """One field of a trial as JSON, every default written out. A plan keeps these: most cells share most fields."""
    return to_json(field, inf_nan_mode="strings")


def digest(fields: Mapping[str, bytes]) -> str:
    """The name of the cell with these fields, as 12 hexadecimal digits."""
    return sha256(b"\0".join(name.encode() + b"\0" + fields[name] for name in sorted(fields))).hexdigest()[:12]
