"""The Ray that a sweep runs in. What the cluster can never give is refused before anything starts."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import InputError
from orchestrator.study.machines import Machine, at_once, none_fits
from orchestrator.study.spec import Resources
from orchestrator.sweep import token
from orchestrator.sweep.ship import runtime_env

SETTINGS = {
    # Memory that a training step frees stays with the process for the next one: to get 4 KB from the system takes 5 us.
    "MALLOC_MMAP_THRESHOLD_": "33554432",  # bytes; larger pieces, such as a replay buffer, go back when freed
    "MALLOC_TRIM_THRESHOLD_": "4294967296",
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait in a loop for work slow every neighbour down tenfold
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths in a study mean what they meant to the user
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # also how often a report of several workers is fetched
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `run` has its own
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # no snapshots of the experiment
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
REACH_SECONDS = 10.0
OBJECT_STORE = 256 * 2**20  # bytes; trials pass next to nothing through it


def configure() -> None:
    """Before Ray is imported. What the user set stays."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def check_here(resources: Resources) -> None:
    """Refuse what a new Ray on this machine could never give. Of GPUs nothing is known before it has started.

    Raises:
        InputError: not even one trial fits.
    """
    ray = sys.modules.get("ray")
    if not (ray and ray.is_initialized()) and not resources.gpus:
        concurrency(resources, [Machine.here()])


def reach(address: str) -> None:
    """Knock at HOST:PORT: Ray itself would try for minutes.

    Raises:
        InputError: nobody answers, or it is no address that a driver can use.
    """
    if address.startswith("ray://"):
        raise InputError(f"--address {address}: should be HOST:PORT or auto, from a machine of the cluster")
    host, colon, port = address.rpartition(":")
    try:
        if colon and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"--address {address}: no Ray cluster answers ({error})") from error


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """The Ray that is already initialised here, the one at `address`, or else a new one on this machine.

    Raises:
        InputError: no cluster answers there.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        _start_here(quiet)
    else:
        try:
            ray.init(address=address, runtime_env=runtime_env(), **quiet)
        except (ConnectionError, ValueError) as error:
            raise InputError(f"--address {address}: no Ray cluster answers ({str(error).splitlines()[0]})") from error
    try:
        yield
    finally:
        ray.shutdown()


def _start_here(quiet: Mapping[str, Any]) -> None:
    """Start Ray on this machine. It gives its own processes 30 s to come up, which a busy machine may not manage."""
    import ray

    token.keep_private()
    for last in (False, False, True):
        try:
            ray.init(
                address="local",
                num_cpus=os.cpu_count(),
                include_dashboard=False,
                object_store_memory=OBJECT_STORE,
                **quiet,
            )
            return
        except Exception as error:  # Ray raises this class itself
            ray.shutdown()
            if last or "timed out during startup" not in str(error):
                raise


def nodes() -> list[Machine]:
    """The machines of the cluster."""
    import ray

    held = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return [Machine(node.get("CPU", 0.0), int(node.get("memory", 0)), node.get("GPU", 0.0)) for node in held]


def concurrency(resources: Resources, machines: Sequence[Machine], memory: int = 0) -> int:
    """How many trials run at a time. An estimate of `memory` may thin them out; it does not forbid them.

    Raises:
        InputError: not even one trial fits.
    """
    if at_once(resources, machines):
        return max(1, at_once(resources, machines, memory))
    raise InputError(f"resources: {none_fits(resources, machines)}")
