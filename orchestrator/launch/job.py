"""A job: a study as something to submit, in a folder that later edits of the study or the code do not change.

    job/study.toml    what runs, with all overrides and defaults in it
    job/code/         ancre's packages
    token             what Ray's processes of this job know each other by; for its owner's eyes only
    here/             what the study's relative paths and its own modules begin with, where this machine has it

and what the system needs that runs it: a script, a manifest. Neither a script nor a printed command holds a secret.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.store import redacted
from orchestrator.errors import InputError
from orchestrator.packages import PACKAGES, folders
from orchestrator.record import environment
from orchestrator.study.machines import Machine
from orchestrator.study.plan import Plan
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster, token

TOKEN_FILE = "token"
LONGEST_PART = 256  # bytes of a file's name
TRACKING = "MLFLOW_TRACKING_URI"
SECRET_HINT = "it holds a secret, which the job's files would show; set it where the job runs, or unset it here"


@dataclass(frozen=True)
class Machines:
    """What a job asks for."""

    nodes: int
    cpus: int  # of each node
    gpus: int  # of each node


@dataclass(frozen=True)
class Job:
    """A study to submit, and where it is kept."""

    study: Study
    folder: Path
    home: Path  # of the studies, as the job's machines see it
    machines: Machines
    python: str

    @property
    def study_file(self) -> Path:
        return self.folder / "job" / "study.toml"

    @property
    def code(self) -> Path:
        return self.folder / "job" / "code"

    @property
    def here(self) -> Path:
        return self.folder / "here"

    @property
    def token(self) -> Path:
        return self.folder / TOKEN_FILE

    def write(self) -> None:
        """The parts that every system needs."""
        for folder in (self.folder, self.here, self.study_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.study_file.write_text(self.study.to_toml())
        for name, package in folders().items():
            shutil.copytree(package, self.code / name, ignore=shutil.ignore_patterns("__pycache__"))
        (self.code / environment.COMMIT_FILE).write_text(environment.commit())
        token.write(self.token)
        for path in relative_paths(self.study):
            (self.here / path).symlink_to(path.resolve())


@dataclass(frozen=True)
class Prepared:
    """A job for one system: its files beside the common ones, and the command that submits it."""

    files: Mapping[str, str]
    command: tuple[str, ...]
    variables: Mapping[str, str]  # of the command's environment, in addition; paths, no secrets


@dataclass(frozen=True)
class System:
    """What runs jobs: this machine, SLURM, .."""

    prepare: Callable[[Job, argparse.Namespace], Prepared]
    missing: Callable[[], str]  # what to install before a job can be submitted from here; empty where all is there
    options: tuple[str, ...] = ()  # of `ancre launch`, beside those of every system
    required: tuple[str, ...] = ()
    sees_home: bool = False  # its machines have this one's folders


MACHINES = ("nodes", "cpus", "gpus", "python")  # options of systems that have other machines


def machines_for(plan: Plan, nodes: int | None, cpus: int | None, gpus: int | None) -> tuple[Machines, int]:
    """What is asked for, else what one trial takes; and how many trials run there at once.

    Raises:
        InputError: no trial fits.
    """
    resources = plan.resources
    nodes = nodes or 1
    workers = math.ceil(resources.workers / nodes)
    made = Machines(nodes, cpus or workers * resources.cpus, gpus or math.ceil(workers * resources.gpus))
    return made, cluster.concurrency(resources, [Machine(made.cpus, 0, made.gpus)] * nodes)


def new_folder(home: Path, out: Path | None, name: str) -> Path:
    """The job's folder, which no earlier job has.

    Raises:
        InputError: `out` is in use, or no folder can be there.
    """
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: should be a new or empty folder")
    number = 1
    while True:
        folder = (out or home / "launches" / f"{name}-{number}").absolute()
        try:
            folder.mkdir(parents=True, exist_ok=out is not None)
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror}; pass --out DIR, a folder of this machine") from error


def tracking() -> dict[str, str]:
    """The tracking store as a variable of the job, where one is set here.

    Raises:
        InputError: it holds a login.
    """
    uri = os.environ.get(TRACKING)
    if uri and redacted(uri) != uri:
        raise InputError(f"{TRACKING} {redacted(uri)}: {SECRET_HINT}")
    return {TRACKING: uri} if uri else {}


def relative_paths(study: Study) -> set[Path]:
    """What the study's relative paths and its own modules begin with, where they lead somewhere from here. A word that
    is a file's name by chance does no harm.

    Raises:
        InputError: a job could not follow one.
    """
    found = set()
    for word in _words(study.model_dump(include={"workload", "trial", "arms", "axes"})):
        path = Path(word)
        if not path.is_absolute() and path.parts and path.exists():
            if path.parts[0] in ("..", *PACKAGES):
                raise InputError(f"{word}: a job cannot follow this path; write the whole of it, as {path.resolve()}")
            found.add(Path(path.parts[0]))
        package, dot, _ = word.partition(".")
        if dot and package.isidentifier() and package not in PACKAGES:  # kind = "my_package.my_module"
            found |= {path for path in (Path(package), Path(f"{package}.py")) if path.exists()}
    return found


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)
    elif isinstance(value, str) and len(value.encode()) < LONGEST_PART and "\0" not in value:
        yield value
