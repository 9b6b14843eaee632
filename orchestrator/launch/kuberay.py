"""A job on Kubernetes: a RayJob of KubeRay 1.6 or newer, and a ConfigMap with the study and the code.

KubeRay makes the cluster's token and keeps it in a Secret of its own; none is in these files.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import re
import shlex
import shutil
import tarfile
from importlib.metadata import version
from typing import Any

import yaml

from orchestrator.errors import InputError
from orchestrator.launch.job import MACHINES, Job, Prepared, System, tracking

MANIFEST = "rayjob.yaml"
LARGEST = 2**20 - 2**14  # bytes: a ConfigMap holds 1 MiB, with what Kubernetes adds
FILES = "/ancre"  # where the pods find the ConfigMap
CODE = "code.tar.xz"
RETRIES = 2  # new clusters after one that was lost; each goes on with what is missing


def _prepare(job: Job, asked: argparse.Namespace) -> Prepared:
    """Applied by the server: as kubectl itself does it, the code would not fit."""
    where = ("--namespace", asked.namespace) if asked.namespace else ()
    command = ("kubectl", "apply", "--server-side", *where, "--filename", str(job.folder / MANIFEST))
    return Prepared({MANIFEST: _manifest(job, asked)}, command, {})


def _missing() -> str:
    return "" if shutil.which("kubectl") else "kubectl: install it, with access to a cluster that runs KubeRay"


def _manifest(job: Job, asked: argparse.Namespace) -> str:
    metadata = {"name": _name(job)} | ({"namespace": asked.namespace} if asked.namespace else {})
    texts = {"run.sh": _script(job), job.study_file.name: job.study_file.read_text()}
    code = _packed(job)
    if (size := len(code) + sum(map(len, texts.values()))) > LARGEST:
        raise InputError(f"--on kuberay: study and code are {size} bytes, a ConfigMap takes {LARGEST}")
    content = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": texts,
        "binaryData": {CODE: base64.b64encode(code).decode()},
    }
    ray_job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata,
        "spec": _spec(job, asked),
    }
    text: str = yaml.safe_dump_all([content, ray_job], sort_keys=False, width=120)
    return text


def _name(job: Job) -> str:
    """The study's, as Kubernetes takes names; two studies never have the same."""
    plain = re.sub(r"[^a-z0-9]+", "-", job.study.name.lower()).strip("-")[:24].strip("-")
    return "-".join(part for part in ("ancre", plain, hashlib.sha256(job.study.name.encode()).hexdigest()[:8]) if part)


def _packed(job: Job) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        archive.add(job.code, arcname=".")
    return buffer.getvalue()


def _script(job: Job) -> str:
    python = shlex.quote(job.python)
    start = ["-m", "orchestrator", "start", f"{FILES}/{job.study_file.name}", "--home", str(job.home)]
    return f"""\
set -eu
code=$(mktemp -d)
{python} -m tarfile -e {FILES}/{CODE} "$code"
export PYTHONPATH="$code" PYTHONSAFEPATH=1
exec {python} {shlex.join([*start, "--address", "auto"])}
"""


def _spec(job: Job, asked: argparse.Namespace) -> dict[str, Any]:
    pod = _pod(job, asked)
    workers = {
        "groupName": "workers",
        "replicas": job.machines.nodes - 1,
        "minReplicas": job.machines.nodes - 1,
        "maxReplicas": job.machines.nodes - 1,
        "rayStartParams": {},
        "template": pod,
    }
    return {
        "entrypoint": f"bash {FILES}/run.sh",
        "shutdownAfterJobFinishes": True,
        "backoffLimit": RETRIES,
        "rayClusterSpec": {
            "rayVersion": version("ray"),
            "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {}, "template": pod},
            **({"workerGroupSpecs": [workers]} if job.machines.nodes > 1 else {}),
        },
    }


def _pod(job: Job, asked: argparse.Namespace) -> dict[str, Any]:
    amounts: dict[str, Any] = {"cpu": job.machines.cpus}
    if job.machines.gpus:
        amounts["nvidia.com/gpu"] = job.machines.gpus
    if asked.memory:
        amounts["memory"] = f"{asked.memory}Gi"
    container: dict[str, Any] = {
        "name": "ray",
        "image": asked.image,
        "env": [{"name": name, "value": value} for name, value in tracking().items()],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
        "volumeMounts": [
            {"name": "home", "mountPath": str(job.home)},
            {"name": "files", "mountPath": FILES, "readOnly": True},
        ],
    }
    volumes = [
        {"name": "home", "persistentVolumeClaim": {"claimName": asked.claim}},
        {"name": "files", "configMap": {"name": _name(job)}},
    ]
    return {"spec": {"containers": [container], "volumes": volumes}}


SYSTEM = System(
    _prepare,
    _missing,
    options=(*MACHINES, "image", "claim", "memory", "namespace"),
    required=("image", "claim"),
)
