"""Where the nodes of a job meet, for the script of a SLURM job.

`python -m orchestrator.launch.meeting` prints this machine's address, a free port for Ray's head, and an option that
the head needs where another job's head is on the same machine.
`python -m orchestrator.launch.meeting ADDRESS NODES SECONDS STEP ..` waits until so many nodes have joined, as long as
the processes STEP run.
"""

import logging
import os
import socket
import sys
import time
from importlib.util import find_spec

import ray


class NobodyThereError(Exception):
    """Too few nodes. `str(error)` is one line."""


def place() -> str:
    ports = _free_ports(2)
    client = f"--ray-client-server-port={ports[1]}" if find_spec("grpc") else ""
    return f"{ray.util.get_node_ip_address()} {ports[0]} {client}"


def _free_ports(count: int) -> list[int]:
    opened = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in opened]
    for one in opened:
        one.close()
    return ports


class Meeting:
    """Waits for Ray's head, then for its nodes."""

    def __init__(self, address: str, seconds: float, steps: list[int]) -> None:
        self._address, self._steps = address, steps
        self._limit = time.monotonic() + seconds

    def wait(self, nodes: int) -> None:
        """Raises NobodyThereError: there are fewer once time is up or a step has ended."""
        host, _, port = self._address.rpartition(":")
        while not _answers(host, int(port)):
            self._check(f"no Ray head answers at {self._address}")
        ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR)
        while (there := len([node for node in ray.nodes() if node["Alive"]])) < nodes:
            self._check(f"{there} of {nodes} nodes have joined")

    def _check(self, fault: str) -> None:
        try:
            for step in self._steps:
                os.kill(step, 0)
        except ProcessLookupError:
            raise NobodyThereError(f"{fault}, and a step of Ray has ended") from None
        if time.monotonic() > self._limit:
            raise NobodyThereError(f"{fault} in time")
        time.sleep(0.5)


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1.0).close()
    except OSError:
        return False
    return True


def main(words: list[str]) -> int:
    if not words:
        print(place())
        return 0
    address, nodes, seconds, *steps = words
    try:
        Meeting(address, float(seconds), [*map(int, steps)]).wait(int(nodes))
    except NobodyThereError as error:
        print(f"ancre: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
