"""How long `ancre query` takes over 1,000 and 10,000 runs as a whole command, start of Python included.

    python tests/benchmarks/query.py [--server] [--through-client]

MLflow makes the store; the runs are then put in by plain SQL, with 20 metrics each and a spec of 2 kB, because writing
one takes MLflow 89 ms. The local sqlite file is read directly, the first time after it was dropped from the system's
cache where that is allowed. `--server` asks MLflow's own server over http: cold (nothing is kept), warm (nothing
changed), after 20 runs more, and with 16 that run. `--through-client` times MlflowClient on the file, which is how
all other stores are read.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis import names

THROUGH_CLIENT = """
import sys
from analysis.queries import rank
from analysis.store import Store
from analysis.store_mlflow import MlflowBackend
store = Store(MlflowBackend(sys.argv[1]))
study = store.study("big")
assert rank(store, study, "val/perplexity")[0].summary.n == 5
"""
WHERE = "depth >= 16 and topology.kind = 'ancre' and val/perplexity < 500"
SEEDS = 5


def build(folder: Path, runs: int) -> str:
    """A store with one study of `runs` finished runs, five seeds a cell."""
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    MlflowClient(uri).create_experiment("big", artifact_location=str(folder / "artifacts"))
    add(folder, range(runs))
    return uri


def add(folder: Path, numbers: range, status: str = "FINISHED") -> None:
    """Put runs of these numbers into the store."""
    with sqlite3.connect(folder / "mlflow.db", timeout=60) as connection:
        for k in numbers:
            run, cell, seed = f"{k:032x}", f"{k // SEEDS:012x}", k % SEEDS
            connection.execute(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status,"
                " start_time, end_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
                " VALUES (?, ?, 'LOCAL', '', '', 'me', ?, ?, ?, '', 'active', ?, 1)",
                (run, f"{cell}-s{seed}", status, k, k + 1, f"{folder}/artifacts/{run}"),
            )
            rows = [(key, value, run) for key, value in tags(cell, seed, k // SEEDS, status).items()]
            connection.executemany("INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", rows)
            metrics = {f"depth/{depth:02}/rms": 1.0 + (k * 31 + depth) % 89 / 97 for depth in range(19)}
            metrics[names.VAL_PERPLEXITY] = 10 + k * 7919 % 997
            connection.executemany(
                "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid)"
                " VALUES (?, ?, 0, 1000, 0, ?)",
                [(key, value, run) for key, value in metrics.items()],
            )


def tags(cell: str, seed: int, place: int, status: str) -> dict[str, str]:
    axes = {"optim.lr": 1e-3 * (1 + place % 50), "model.depth": 4 * (1 + place % 16)}
    spec = {"workload": "llm", "topology": {"kind": "ancre" if place % 2 else "cascaded"}, "seed": seed}
    spec |= {"model": {"depth": axes["model.depth"]}, "optim": {"lr": axes["optim.lr"]}, "note": "x" * 2000}
    return {
        names.ROLE: names.TRIAL,
        names.STUDY_NAME: "big",
        names.WORKLOAD: "llm",
        names.TRIAL_ID: f"{cell}-s{seed}",
        names.CELL: cell,
        names.ARM: f"arm-{place % 4}",
        names.SEED: str(seed),
        names.STATE: names.FINISHED if status == "FINISHED" else names.RUNNING,
        names.AXES: json.dumps(axes),
        names.STEPS: "1000",
        names.SPEC: json.dumps(spec),
        "mlflow.runName": f"{cell}-s{seed}",
    }


def timed(words: list[str], uri: str, home: Path) -> tuple[float, float]:
    """CPU and wall seconds of a whole process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    told = {"OMP_NUM_THREADS": "1", "MLFLOW_TRACKING_URI": uri, "ANCRE_HOME": str(home)}
    subprocess.run([sys.executable, *words], check=True, env=os.environ | told, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start


def best(*words: str) -> list[str]:
    return ["-m", "orchestrator", "query", "best", "big", "--metric", names.VAL_PERPLEXITY, *words]


def show(what: str, runs: int, words: list[str], uri: str, home: Path, times: int = 3) -> None:
    cpu, wall = map(min, zip(*(timed(words, uri, home) for _ in range(times)), strict=True))
    print(f"{runs:6} runs, {what:34} {cpu:6.2f} s CPU, {wall:6.2f} s wall (least of {times})", flush=True)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """MLflow's server on the store, with one worker; its URI."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(folder), "--workers", "1", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}, **quiet)
    uri = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            time.sleep(1)
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=5)
                break
            except OSError:
                continue
        yield uri
    finally:
        server.terminate()
        server.wait()


def through_server(folder: Path, runs: int) -> None:
    home = folder / "home"
    with serving(folder) as uri:
        show("http, cold", runs, best(), uri, home, 1)
        show("http, warm", runs, best(), uri, home)
        show("http, warm, --where", runs, best("--where", WHERE), uri, home)
        add(folder, range(runs, runs + 20))
        show("http, 20 runs more", runs, best(), uri, home, 1)
        add(folder, range(runs + 20, runs + 36), "RUNNING")
        show("http, 16 that run", runs, best(), uri, home)


def forgotten(file: Path) -> None:
    """Have the system read a file from the disk again."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--through-client", action="store_true")
    asked = parser.parse_args()
    for runs in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            uri = build(folder, runs)
            forgotten(folder / "mlflow.db")
            show("sqlite, cold", runs, best(), uri, folder, 1)
            show("sqlite, warm", runs, best(), uri, folder)
            show("sqlite, warm, --where", runs, best("--where", WHERE), uri, folder)
            if asked.through_client:
                show("sqlite, MlflowClient", runs, ["-c", THROUGH_CLIENT, uri], uri, folder, 1)
            if asked.server:
                through_server(folder, runs)


if __name__ == "__main__":
    main()
