"""A job on this machine: a process that outlives the terminal it was started from."""

import argparse
import shlex

from orchestrator.launch.job import Job, Prepared, System

SCRIPT = "run.sh"
OUTPUT = "output.log"


def _prepare(job: Job, asked: argparse.Namespace) -> Prepared:
    return Prepared({SCRIPT: _script(job)}, ("bash", str(job.folder / SCRIPT)), {})


def _script(job: Job) -> str:
    return f"""#!/bin/bash
# Runs study {job.study.name} on this machine. The same again goes on with what is missing.
set -eu
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={shlex.quote(str(job.token))}
export PYTHONPATH={shlex.quote(str(job.code))}:${{PYTHONPATH:-}}:{shlex.quote(str(job.here))} PYTHONSAFEPATH=1
cd -- {shlex.quote(str(job.here))}
exec {shlex.join([job.python, "-m", "orchestrator", "start", str(job.study_file), "--home", str(job.home)])}
"""


SYSTEM = System(_prepare, missing=str, sees_home=True)
