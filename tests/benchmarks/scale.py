"""What a sweep costs at size, each part in processes of its own; figures beside what they should be.

    python tests/benchmarks/scale.py ledger     # 10,000 trials: seconds to load the ledger, and for a page on it
    python tests/benchmarks/scale.py trials     # 1,000 trials of a second, 16 at a time, beside the ideal
    python tests/benchmarks/scale.py reports    # 64 trials at a time that report once a second
    python tests/benchmarks/scale.py driver     # 10,000 short trials: the driver's memory at its peak

Trials sleep, so that 16 or 64 of them at a time need no more cores than there are.
"""

import argparse
import json
import logging
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from analysis import names
from orchestrator.record import spool
from orchestrator.record.ledger import ATTEMPT, PLANNED, History, Ledger
from orchestrator.serve.site import Site
from orchestrator.serve.watch import EVERY
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study

WORKLOAD = "tests.benchmarks.sweep_rows"
AT_ONCE = {"trials": 16, "reports": 64, "driver": 16}


def study_of(name: str, trials: int, steps: int, sleep: float) -> Study:
    """One arm of so many configurations, one seed; each step sleeps so many seconds."""
    rates = [0.01 * (1 + number) for number in range(trials)]
    train = {"steps": steps, "sleep": sleep}
    return Study(name=name, workload=WORKLOAD, trial={"train": train}, axes={"optim.lr": rates})


def ledger() -> None:
    """A ledger as a sweep of 10,000 trials of LLaMA leaves it."""
    rates = [1e-6 * (1 + number) for number in range(5000)]
    study = Study.read("demo").model_dump(exclude={"arms"}) | {"axes": {"optim.lr": rates}, "seeds": [0, 1]}
    cells = plan(Study(**study | {"arms": {"drop": {"topology": {"kind": "ancre", "inner_residual": "drop"}}}})).cells
    metrics = {names.VAL_PERPLEXITY: 17.25, names.TRAIN_LOSS: 3.5, names.TOKENS_PER_S: 12345.6}
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "studies" / "big"
        folder.mkdir(parents=True)
        book = Ledger(folder)
        tags = {names.ROLE: names.STUDY, names.METRIC: names.VAL_PERPLEXITY, names.PLANNED_SEEDS: "[0, 1]"}
        book.write(ATTEMPT, attempt=1, study=tags)
        lines: list[dict[str, Any]] = []
        for cell in cells:
            for seed in (0, 1):
                trial, spec = cell.trial_id(seed), cell.trial.with_seed(seed).model_dump(mode="json")
                known = {"trial": trial, "cell": cell.id, "arm": cell.arm, "axes": cell.axes, "seed": seed}
                planned = {"event": PLANNED, **known, "steps": 100, "spec": spec}
                started = {"event": names.RUNNING, "trial": trial, "attempt": 1}
                ended = {"event": names.FINISHED, "trial": trial, "step": 100, "metrics": metrics}
                lines += [planned, started, ended]
        book.write_all(lines)
        size = (folder / "ledger.jsonl").stat().st_size
        took = []
        for _ in range(5):
            began = time.perf_counter()
            assert len(History(folder).trials) == 10_000
            took.append(time.perf_counter() - began)
        print(f"ledger of 10,000 trials ({size / 1e6:.1f} MB): {min(took):.2f} s, least of 5 (should be < 1)")
        page(Path(home), lambda: book.write(names.RUNNING, trial=lines[0]["trial"], attempt=1))


def page(home: Path, change: Callable[[], None]) -> None:
    """What a page of `ancre serve` asks for: at first, again, and after a change."""
    site = Site(home)
    for when in ("first", "again", "after a change"):
        if when == "after a change":
            change()
            time.sleep(2 * EVERY)
        began = time.perf_counter()
        answer = site.answer("/studies/big/state.json", "")
        took = time.perf_counter() - began
        assert answer is not None
        print(f"its page, {when}: {took:.3f} s, {len(answer.body) / 1e3:.0f} kB (should be < 1)")


def sweep(which: str, home: Path) -> None:
    """One sweep in this process; prints seconds from its first trial's start to the last one's end, and memory."""
    from orchestrator.sweep import cluster
    from orchestrator.sweep.run import start

    study = {
        "trials": lambda: study_of(which, 1000, 1, 1.0),
        "reports": lambda: study_of(which, 64, 60, 1.0),
        "driver": lambda: study_of(which, 10_000, 1, 0.0),
    }[which]()
    cluster.configure()
    import ray

    at_once = AT_ONCE[which]
    ray.init(
        address="local", num_cpus=at_once, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    done = start(study, home)
    assert done.trials == {"finished": plan(study).num_trials}, done.trials
    ray.shutdown()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "seconds": done.seconds}))


def measured(which: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, __file__, which, "--home", home]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        seen = json.loads(done.stdout.splitlines()[-1])
        folder = Path(home) / "studies" / which
        records = History(folder).trials.values()
        spent = max(record.ended for record in records) - min(record.started for record in records)
        if which == "trials":
            ideal = len(records) / AT_ONCE[which]
            print(
                f"{len(records):,} trials of 1 s, 16 at a time: {spent:.1f} s, {spent / ideal:.3f} of the ideal (1.2)"
            )
        elif which == "reports":
            rows = [spool.rows(folder / "trials" / record.id) for record in records]
            paces = [(row[-1]["time"] - row[0]["time"]) / (len(row) - 1) for row in rows]
            print(f"64 trials, a report a second: a second takes {fmean(paces):.4f} (should be < 1.02)")
        else:
            peak = seen["peak"] / 1e6
            print(f"{len(records):,} short trials: driver up to {peak:.0f} MB (should be < 1,000), {spent:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("ledger", *AT_ONCE))
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.home:
        sweep(arguments.part, arguments.home)
    elif arguments.part == "ledger":
        ledger()
    else:
        measured(arguments.part)


if __name__ == "__main__":
    main()
