"""A job of a Ray cluster's job server, and a template for `ray up` that makes such a cluster.

The server's address is on the head's own loopback: `ray dashboard cluster.yaml` leads there from elsewhere.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import sys
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import yaml

from orchestrator.launch.job import MACHINES, Job, Prepared, System, tracking

CLUSTER_FILE = "cluster.yaml"
ADDRESS = "http://127.0.0.1:8265"
PORT = 6379
TOKEN = "~/.ancre-token"  # on the cluster's machines
HEADER = """\
# A Ray cluster for ancre: fill in the machines and the login, or another provider of Ray's, then
#   ray up {file} && ray dashboard {file}
# Each machine needs Python with ancre's dependencies and ray[default] {version}, and {home} on storage that all share.
"""


def _prepare(job: Job, asked: argparse.Namespace) -> Prepared:
    file = shlex.quote(str(job.folder / CLUSTER_FILE))
    header = HEADER.format(file=file, version=version("ray"), home=job.home)
    text = header + yaml.safe_dump(_cluster(job), sort_keys=False, width=120)
    # A token that is set here is that of a cluster which is there already.
    known = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    token = {} if known else {"RAY_AUTH_TOKEN_PATH": str(job.token)}
    command = _submission(job, asked.address or ADDRESS)
    return Prepared({CLUSTER_FILE: text}, command, {"RAY_AUTH_MODE": "token", **token})


def _missing() -> str:
    there = find_spec("aiohttp") and find_spec("requests")
    return "" if there else "Ray's job client: pip install 'ray[default]'"


def _cluster(job: Job) -> dict[str, Any]:
    """What `ray up` reads. It stops no Ray that it did not start."""
    token = "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=" + TOKEN
    ray = f"{shlex.quote(job.python)} -m ray.scripts.scripts start --num-cpus={job.machines.cpus}"
    ray += f" --num-gpus={job.machines.gpus}" if job.machines.gpus else ""
    head = f"{ray} --head --port={PORT} --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
    return {
        "cluster_name": f"ancre-{job.study.name}",
        "max_workers": job.machines.nodes - 1,
        "provider": {
            "type": "local",
            "head_ip": "HEAD_IP",
            "worker_ips": [f"WORKER_{number}_IP" for number in range(1, job.machines.nodes)],
        },
        "auth": {"ssh_user": "USER"},
        "file_mounts": {TOKEN: str(job.token)},
        "initialization_commands": [f"test -d {shlex.quote(str(job.home))}"],
        "head_start_ray_commands": [f"chmod 600 {TOKEN}; {token}; {head}"],
        "worker_start_ray_commands": [f"chmod 600 {TOKEN}; {token}; {ray} --address=$RAY_HEAD_IP:{PORT}"],
    }


def _submission(job: Job, address: str) -> tuple[str, ...]:
    """The job is the folder `job`, which Ray uploads."""
    entry = [job.python, "-m", "orchestrator", "start", job.study_file.name, "--home", str(job.home)]
    settings = {"PYTHONPATH": job.code.name, **tracking()}
    return (
        *(sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--no-wait"),
        *("--address", address, "--submission-id", f"ancre-{job.study.name}-{secrets.token_hex(3)}"),
        *("--working-dir", str(job.study_file.parent), "--"),
        *("env", *(f"{name}={value}" for name, value in settings.items()), *entry, "--address", "auto"),
    )


SYSTEM = System(_prepare, _missing, options=(*MACHINES, "address"))
