"""What a sweep costs beside a bare `tune.Tuner`: 48 one-worker trials of 10 reports, whole processes, in turns.

    python tests/benchmarks/sweep.py [--rounds 3] [--work sleep|cpu] [--seconds 0.05]

Both run the same rows of the same trials on the same cores, from an empty folder; ours also keeps a ledger and spools,
and has every point in MLflow when it ends. Tune is as it comes ("bare"), and with its processes kept between trials
("reuse"), as ours are. A second ratio leaves out the start of Python and Ray, which is the same in all.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

LRS = [0.05 * (1 + number) for number in range(12)]
SEEDS = [0, 1, 2, 3]
REPORTS = 10
KINDS = ("ours", "bare", "reuse")
WORKLOAD = "tests.benchmarks.sweep_rows"


def ours(home: Path, train: dict[str, Any]) -> float:
    """`ancre start`, after the imports; seconds from Ray's start on."""
    from orchestrator.study.spec import Study
    from orchestrator.sweep import cluster
    from orchestrator.sweep.run import start

    axes = {"optim.lr": LRS}
    study = Study(name="sweep", workload=WORKLOAD, seeds=SEEDS, axes=axes, trial={"train": train})
    cluster.configure()
    with cluster.connected(None):
        began = time.perf_counter()
        done = start(study, home)
    assert done.trials == {"finished": len(LRS) * len(SEEDS)} and done.unsent == 0
    return time.perf_counter() - began


def bare(home: Path, train: dict[str, Any], reuse: bool) -> float:
    """The same trials under Tune alone."""
    from orchestrator.sweep import cluster

    with cluster.connected(None):
        from ray import tune

        began = time.perf_counter()
        space = {"lr": tune.grid_search(LRS), "seed": tune.grid_search(SEEDS), "train": train}
        tuner = tune.Tuner(
            tune.with_resources(bare_trial, {"CPU": 1}),
            param_space=space,
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=str(home), verbose=0),
        )
        results = tuner.fit()
        assert len(results) == len(LRS) * len(SEEDS) and not results.errors
        return time.perf_counter() - began


def bare_trial(config: dict[str, Any]) -> None:
    from ray import tune

    from orchestrator.workloads.base import Place
    from tests.benchmarks.sweep_rows import Spec

    spec = Spec.model_validate({"optim": {"lr": config["lr"]}, "seed": config["seed"], "train": config["train"]})
    for row in spec.rows(Place(Path(), Path())):
        tune.report({"step": row.step, **row.metrics})


def once(which: str, train: dict[str, Any]) -> float:
    with tempfile.TemporaryDirectory() as home:
        return ours(Path(home), train) if which == "ours" else bare(Path(home), train, reuse=which == "reuse")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", choices=("sleep", "cpu"), default="sleep", help="how a trial spends its time")
    parser.add_argument("--seconds", type=float, default=0.05, help="between two reports")
    parser.add_argument("--only", choices=KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(once(arguments.only, {"steps": REPORTS, arguments.work: arguments.seconds}))
        return
    options = ["--work", arguments.work, "--seconds", str(arguments.seconds)]
    whole: dict[str, list[float]] = {which: [] for which in KINDS}
    inner: dict[str, list[float]] = {which: [] for which in KINDS}
    for _ in range(arguments.rounds):
        for which in KINDS:
            began = time.perf_counter()
            command = [sys.executable, __file__, "--only", which, *options]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            whole[which].append(time.perf_counter() - began)
            inner[which].append(float(done.stdout.splitlines()[-1]))
            print(f"{which:5} {whole[which][-1]:6.1f} s, {inner[which][-1]:6.1f} s without start-up", flush=True)
    for other in KINDS[1:]:
        ratios = [median(taken["ours"]) / median(taken[other]) for taken in (whole, inner)]
        print(f"ours / {other}: {ratios[0]:.2f}, without start-up {ratios[1]:.2f}")


if __name__ == "__main__":
    main()
