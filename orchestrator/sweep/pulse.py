"""Whether Ray itself still lives: a driver whose Ray is gone would wait for it for a minute, or for ever.

What is asked is only whether the cluster's control service and this machine's raylet accept a connection. A busy one
does; one whose process or machine is gone does not.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

KNOCK_EVERY = 1.0  # seconds
NO_ANSWER = 3.0  # seconds for one connection
HERE = 5.0  # seconds without an answer from a Ray of this machine alone, after which it is gone
CLUSTER = 30.0  # of a cluster, whose control service may be started again; Ray itself ends the driver after 60


@contextmanager
def watched(patience: float, gone: Callable[[str], None]) -> Iterator[None]:
    """Watch the Ray that is initialised while the block runs; tell `gone`, once, what no longer answers."""
    places = _places()
    over = threading.Event()
    watching = threading.Thread(target=_watch, args=(places, patience, gone, over), daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()


def _places() -> dict[str, tuple[str, int]]:
    import ray

    context = ray.get_runtime_context()
    host, _, port = context.gcs_address.rpartition(":")
    (here,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return {
        "control service": (host.strip("[]"), int(port)),
        "raylet": (here["NodeManagerAddress"], here["NodeManagerPort"]),
    }


def _watch(
    places: dict[str, tuple[str, int]], patience: float, gone: Callable[[str], None], over: threading.Event
) -> None:
    answered = dict.fromkeys(places, time.monotonic())
    while not over.wait(KNOCK_EVERY):
        for what, (host, port) in places.items():
            try:
                socket.create_connection((host, port), NO_ANSWER).close()
                answered[what] = time.monotonic()
            except OSError:
                if time.monotonic() > answered[what] + patience:
                    gone(f"Ray's {what} at {host}:{port} is gone")
                    return
