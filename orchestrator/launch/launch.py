"""`ancre launch`: the study is planned, written as a job for what runs it, and submitted where that is asked for."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from analysis.store import redacted
from orchestrator.errors import InputError
from orchestrator.launch import kuberay, local, ray_cluster, slurm
from orchestrator.launch.job import Job, Prepared, System, machines_for, new_folder, relative_paths, tracking
from orchestrator.record import log
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study

SYSTEMS: Mapping[str, System] = {
    "local": local.SYSTEM,
    "ray": ray_cluster.SYSTEM,
    "slurm": slurm.SYSTEM,
    "kuberay": kuberay.SYSTEM,
}
BEGIN_SECONDS = 20.0  # in which a driver on this machine that cannot start has said so


def launch(study: Study, asked: argparse.Namespace) -> list[str]:
    """Write the job, submit it where asked; what to tell the user.

    Raises:
        InputError: the study cannot run, an option is not of this system, or its client is missing or refuses.
    """
    system = SYSTEMS[asked.on]
    _check_options(system, asked)
    if asked.submit and (missing := system.missing()):
        raise InputError(f"--on {asked.on} --submit: needs {missing}")
    made = plan(study)
    cpus = os.cpu_count() if asked.on == "local" else asked.cpus
    machines, at_once = machines_for(made, asked.nodes, cpus, asked.gpus)
    relative_paths(study)
    tracking()
    home = asked.home.absolute()
    if not system.sees_home and asked.out is None and not home.is_dir():
        raise InputError(f"--home {home}: is not on this machine; say with --out DIR where the job's folder goes")
    folder = new_folder(home, asked.out, f"{study.name}-{asked.on}")
    job = Job(study, folder, home, machines, asked.python or (sys.executable if system.sees_home else "python"))
    job.write()
    prepared = system.prepare(job, asked)
    for name, text in prepared.files.items():
        (folder / name).write_text(text)
    told = [
        f"{study.name}: {made.num_trials} trials, {min(at_once, made.num_trials)} at a time; results in {home}",
        f"job: {folder}",
    ]
    if not asked.submit:
        return [*told, f"submit with: {_shown(prepared)}"]
    return [*told, _start_here(job, prepared) if asked.on == "local" else _submit(job, prepared)]


def _check_options(system: System, asked: argparse.Namespace) -> None:
    for name, other in SYSTEMS.items():
        for option in other.options:
            if getattr(asked, option) is not None and option not in system.options:
                raise InputError(f"--{option}: is an option of --on {name}, not of --on {asked.on}")
    for option in system.required:
        if not getattr(asked, option):
            raise InputError(f"--on {asked.on}: needs --{option} (see ancre launch --help)")


def _shown(prepared: Prepared) -> str:
    variables = [f"{name}={value}" for name, value in prepared.variables.items()]
    return shlex.join([*(["env", *variables] if variables else []), *prepared.command])


def _submit(job: Job, prepared: Prepared) -> str:
    done = subprocess.run(
        prepared.command, env={**os.environ, **prepared.variables}, capture_output=True, text=True, check=False
    )
    said = [redacted(line.strip()) for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        why = said[-1] if said else f"exit code {done.returncode}"
        raise InputError(f"{job.folder}: is written, but was not taken: {why}")
    return "\n".join(["submitted:", *said])


def _start_here(job: Job, prepared: Prepared) -> str:
    """A process of a session of its own, waited for until it has begun: what it cannot begin with is told at once."""
    output, said = job.folder / local.OUTPUT, job.home / "studies" / job.study.name / log.DRIVER_FILE
    before = _size(said)
    process = _detached(prepared.command, output)
    limit = time.monotonic() + BEGIN_SECONDS
    while (ended := os.waitpid(process, os.WNOHANG))[0] == 0 and _size(said) == before and time.monotonic() < limit:
        time.sleep(0.1)
    if code := os.waitstatus_to_exitcode(ended[1]):
        lines = [line for line in output.read_text(errors="replace").splitlines() if line.strip()]
        raise InputError(lines[-1].removeprefix("ancre: ") if lines else f"{output}: exit code {code}")
    return f"started: process {process}, its output is in {output}"


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _detached(command: tuple[str, ...], output: Path) -> int:
    """Start a process that reads nothing, writes to `output` and outlives this one; its id."""
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(command[0], command, os.environ, file_actions=streams, setsid=True)
