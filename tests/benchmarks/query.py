"""How long `query best` takes over 1,000 and 10,000 runs: process CPU and wall time, start of Python included.

    python tests/benchmarks/query.py [--through-client]

MLflow makes the store; the runs are then put in by plain SQL, with 20 metrics each and a spec of 2 kB, because writing
one takes MLflow 89 ms. `--through-client` also times the general way, which any server takes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from analysis import names

CALL = """
import json, sys
from analysis.queries import best
rows = [cell.row() for cell in best("big", "val/perplexity", top=5, tracking_uri=sys.argv[1])]
assert len(rows) == 5 and rows[0]["n"] == 5, rows[:1]
json.dumps(rows)
"""
THROUGH_CLIENT = """
import json, sys
from analysis import queries
from analysis.store import Store
from analysis.store_mlflow import MlflowBackend
queries.open_store = lambda uri: Store(MlflowBackend(uri))
""" + CALL.replace("from analysis.queries import best", "best = queries.best")
SEEDS = 5


def build(folder: Path, runs: int) -> str:
    """A store with one study of `runs` finished runs, five seeds a cell."""
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    experiment = MlflowClient(uri).create_experiment("big", artifact_location=str(folder / "artifacts"))
    with sqlite3.connect(folder / "mlflow.db") as connection:
        for k in range(runs):
            run, cell, seed = f"{k:032x}", f"{k // SEEDS:012x}", k % SEEDS
            connection.execute(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status,"
                " start_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
                " VALUES (?, ?, 'LOCAL', '', '', 'me', 'FINISHED', ?, '', 'active', ?, ?)",
                (run, f"{cell}-s{seed}", k, f"{folder}/artifacts/{run}", experiment),
            )
            tags = {
                names.ROLE: names.TRIAL,
                names.STUDY_NAME: "big",
                names.WORKLOAD: "llm",
                names.TRIAL_ID: f"{cell}-s{seed}",
                names.CELL: cell,
                names.ARM: f"arm-{k // SEEDS % 4}",
                names.SEED: str(seed),
                names.STATE: names.FINISHED,
                names.AXES: json.dumps({"optim.lr": 1e-3 * (1 + k // SEEDS)}),
                names.STEPS: "1000",
                names.SPEC: json.dumps({"workload": "llm", "topology": {"kind": "ancre"}, "note": "x" * 2000}),
                "mlflow.runName": f"{cell}-s{seed}",
            }
            rows = [(key, value, run) for key, value in tags.items()]
            connection.executemany("INSERT INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", rows)
            metrics = {f"depth/{depth:02}/rms": 1.0 for depth in range(19)} | {
                names.VAL_PERPLEXITY: 10 + k * 7919 % 997
            }
            connection.executemany(
                "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid)"
                " VALUES (?, ?, 0, 1000, 0, ?)",
                [(key, value, run) for key, value in metrics.items()],
            )
    return uri


def timed(code: str, uri: str) -> tuple[float, float]:
    """CPU and wall seconds of a whole process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", code, uri], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--through-client", action="store_true")
    ways = {"sqlite": CALL} | ({"client": THROUGH_CLIENT} if parser.parse_args().through_client else {})
    for runs in (1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            uri = build(Path(folder), runs)
            for way, code in ways.items():
                cpu, wall = map(min, zip(*(timed(code, uri) for _ in range(3)), strict=True))
                print(f"{runs:6} runs, {way:6}: {cpu:.2f} s CPU, {wall:.2f} s wall (least of 3)")


if __name__ == "__main__":
    main()
