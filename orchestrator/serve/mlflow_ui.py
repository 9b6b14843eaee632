"""`ancre ui`: MLflow's own pages on this home's runs, on this machine alone.

`python -m orchestrator.serve.mlflow_ui PORT` is the child that runs MLflow's server. It leads a process group, which
ends as soon as its standard input closes: when `ancre ui` ends, however that ends.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from analysis.store import redacted, sqlite_file
from orchestrator.errors import InputError
from orchestrator.record.tracking import uri_of
from orchestrator.record.uploader import QUIET
from orchestrator.serve.arguments import LOOPBACK
from orchestrator.serve.command import refused

STORE = "MLFLOW_BACKEND_STORE_URI"  # in the environment, for a command line can be read by all users
ARTIFACTS = "MLFLOW_DEFAULT_ARTIFACT_ROOT"
NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # of its own, beside the pages
LOOK = 0.2  # seconds between two tries to reach it
GRACE = 3.0  # seconds that the server has to end


def ui(asked: Namespace) -> int:
    """Run MLflow's server until Ctrl-C, or say where it runs already.

    Raises:
        InputError: nothing was recorded yet, the port is taken, or MLflow's server does not start.
    """
    uri = uri_of(asked.home)
    if uri.startswith(("http://", "https://")):
        print(f"{redacted(uri)} has the runs, as MLFLOW_TRACKING_URI says: open that")
        return 0
    file = sqlite_file(uri)
    if file is not None and not file.exists():
        raise InputError(f"{file}: no run was recorded there yet; start a study first")
    port = _free(asked.port)
    try:
        with TemporaryFile() as log, _server(uri, asked.home, port, log) as child:
            if _comes_up(child, port):
                print(f"http://{LOOPBACK}:{port}/ has MLflow's own pages; Ctrl-C ends them", flush=True)
            child.wait()
            log.seek(0)
            print(redacted(log.read().decode(errors="replace")), file=sys.stderr)
    except KeyboardInterrupt:
        return 0
    raise InputError("MLflow's server has ended; what it said is above")


def _free(port: int) -> int:
    """A port that nobody has; `port` where that is not 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise refused(LOOPBACK, port, error) from error
        found: int = probe.getsockname()[1]
        return found


@contextmanager
def _server(uri: str, home: Path, port: int, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server as a child, which ends with the block."""
    artifacts = (home / "artifacts").absolute().as_uri()
    environment = {**os.environ, **QUIET, **NO_JOBS, STORE: uri, ARTIFACTS: artifacts}
    command = [sys.executable, "-m", "orchestrator.serve.mlflow_ui", str(port)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        yield child
    finally:
        child.communicate()  # closes its input


def _comes_up(child: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until it answers; false where it ends before that."""
    while child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return True
        time.sleep(LOOK)
    return False


def main(port: str) -> None:
    """In the child: MLflow's server, until our input closes or it ends by itself."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # which is sent to the whole group
    server = ["mlflow", "server", "--host", LOOPBACK, "--port", port, "--workers", "1", "--no-serve-artifacts"]
    process = subprocess.Popen(
        [sys.executable, "-m", *server, "--uvicorn-opts", "--log-level warning"], stdin=subprocess.DEVNULL
    )
    threading.Thread(target=_follow_parent, daemon=True).start()
    process.wait()
    os.killpg(0, signal.SIGKILL)  # MLflow's server has processes of its own


def _follow_parent() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
