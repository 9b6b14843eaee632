"""Random SIGKILLs over a study of 24 trials, then its leaderboard beside that of an uninterrupted run.

`python tests/faults/soak.py [KILLS] [SEED]`: 200 kills take about 20 minutes. A killed driver is started again, a
killed trial is the driver's to start again, and what a killed uploader did not send, `ancre sync` sends at the end.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from orchestrator import best
from orchestrator.record.ledger import History
from orchestrator.record.tracking import uri_of
from orchestrator.study.spec import Study
from tests.faults.driver import Driver, check_whole, processes

VICTIMS = ("driver", "worker", "uploader")
LRS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
SEEDS = [0, 1, 2]
TRIALS = len(LRS) * len(SEEDS)
LONGEST_WAIT = 1.0  # seconds between two kills
PATIENCE = 20.0  # seconds until there is one of a kind to kill: a driver that starts has no trials yet
STEP_SECONDS = 0.05


def study(name, steps, sleep):
    return Study(
        name=name,
        workload="tests.orchestrator.sweep_workload",
        seeds=SEEDS,
        axes={"optim.lr": LRS},
        trial={"train": {"steps": steps, "sleep": sleep}},
        budget={"preemptions": 1000},
    )


def victims(driver, home):
    """The processes that may be killed now, by what they are."""
    found = {"driver": [driver.process]} if driver.process.poll() is None else {}
    for pid, sid, args in processes():
        if "orchestrator.record.uploader" in args and str(home) in args:
            found.setdefault("uploader", []).append(pid)
        elif sid == driver.process.pid and args.startswith("ray::") and "ImplicitFunc" in args:
            found.setdefault("worker", []).append(pid)
    return found


def run(home, name, kills, choose, steps):
    """Start a study and kill what belongs to it; how often each was killed."""
    path = home / f"{name}.toml"
    path.write_text(study(name, steps, STEP_SECONDS).to_toml())
    killed = Counter()
    words = ("start", path, "--home", home)  # also once it has begun: it may have been killed before that
    driver = Driver(*words)
    while driver.process.poll() is None and killed.total() < kills:
        kind, limit = choose.choice(VICTIMS), time.monotonic() + PATIENCE
        while not victims(driver, home).get(kind) and time.monotonic() < limit:
            time.sleep(0.1)
        time.sleep(choose.uniform(0.1, LONGEST_WAIT))
        if not (there := victims(driver, home).get(kind)):
            continue
        if kind == "driver":
            driver.process.kill()
            driver.end()
            driver = Driver(*words)
        else:
            subprocess.run(["kill", "-KILL", str(choose.choice(there))], stderr=subprocess.DEVNULL, check=False)
        killed[kind] += 1
    code, said = driver.end()
    assert code == 0, said
    assert Driver("sync", name, "--home", home).end()[0] == 0
    return killed


def leaderboard(home, name):
    found = best(name, top=99, tracking_uri=uri_of(home))
    return [(cell.axes, cell.summary.n, cell.summary.mean, cell.summary.sd) for cell in found]


def soak(home, kills, seed, steps):
    """Raises AssertionError where anything is lost, or is there twice. How often what was killed."""
    killed = run(home, "soaked", kills, random.Random(seed), steps)
    check_whole(home, "soaked", TRIALS, steps)
    path = home / "straight.toml"
    path.write_text(study("straight", steps, 0.0).to_toml())
    code, said = Driver("start", path, "--home", home).end()
    assert code == 0, said
    assert leaderboard(home, "soaked") == leaderboard(home, "straight")
    assert len(leaderboard(home, "soaked")) == len(LRS)
    return killed


def main(kills=200, seed=0):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ancre-soak-") as folder:
        home = Path(folder)
        killed = soak(home, kills, seed, steps=3 * kills)
        attempts = History(home / "studies" / "soaked").attempts
    counts = ", ".join(f"{count} of a {kind}" for kind, count in sorted(killed.items()))
    print(f"{killed.total()} kills ({counts}), {attempts} attempts, {time.monotonic() - began:.0f} s: nothing lost, "
          "nothing twice, the leaderboard of an uninterrupted run")  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
