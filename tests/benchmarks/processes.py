"""Training steps of several arms, each in a process of its own, as training has: what benchmarks of whole steps share.

Every arm takes one step per round in random order, while the others wait; ratios are of the same round.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from time import perf_counter, process_time

import torch

WARM_UP = 2  # rounds
Seconds = list[tuple[float, float]]  # of each round: by the wall, and of the CPU


def parser(doc: str | None, arms: Sequence[str], batch: int) -> ArgumentParser:
    """Of the options that all these benchmarks have; `serve` is that of an arm's own process."""
    made = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    made.add_argument("--arm", choices=arms, action="append")
    made.add_argument("--rounds", type=int, default=20)
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--batch", type=int, default=batch)
    made.add_argument("--serve", choices=arms, help=SUPPRESS)
    return made


def serve(step: Callable[[], None]) -> None:
    """A step for each line of input: its seconds, by the wall and of the CPU."""
    for _ in sys.stdin:
        wall, cpu = perf_counter(), process_time()
        step()
        print(perf_counter() - wall, process_time() - cpu, flush=True)


def measure(arms: Sequence[str], rounds: int) -> dict[str, Seconds]:
    """Start this script once for each arm, with `--serve ARM` behind its own options, and take the rounds."""
    workers = {
        arm: subprocess.Popen(
            [sys.executable, *sys.argv, "--serve", arm], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for arm in arms
    }
    seconds: dict[str, Seconds] = {arm: [] for arm in arms}
    order = Random(0)
    for turn in range(rounds + WARM_UP):
        for arm in order.sample(arms, len(arms)):
            ask, answer = workers[arm].stdin, workers[arm].stdout
            assert ask is not None and answer is not None
            print(file=ask, flush=True)
            wall, cpu = map(float, answer.readline().split())
            if turn >= WARM_UP:
                seconds[arm].append((wall, cpu))
    for worker in workers.values():
        worker.communicate()
    return seconds


def show(seconds: dict[str, Seconds], what: str, unit: str, count: int, ratios: Sequence[tuple[str, str, str]]) -> None:
    """Print a line for each arm, then each ratio of two.

    Args:
        what, unit: of which a step has `count`, such as "tokens a second" and "tokens/s".
        ratios: arm, arm, and what is wanted of their ratio.
    """
    print(f"torch {torch.__version__}, {what.split()[0]} a step: {count}")
    for arm, rounds in seconds.items():
        wall, cpu = (median(column) for column in zip(*rounds, strict=True))
        print(f"  {arm:18s} {1e3 * wall:7.0f} ms, {1e3 * cpu:7.0f} of the CPU, {count / wall:7.2f} {unit}")
    print(f"{what}, as ratios: median (quartiles) by the wall; of the CPU")
    for one, other, wanted in ratios:
        if {one, other} <= seconds.keys():
            columns = zip(zip(*seconds[other], strict=True), zip(*seconds[one], strict=True), strict=True)
            print(f"  {one} / {other}".ljust(38), *(_ratio(over, under) for over, under in columns), wanted)


def _ratio(over: Sequence[float], under: Sequence[float]) -> str:
    ratios = sorted(a / b for a, b in zip(over, under, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return f"{median(ratios):.3f} ({low:.3f}, {high:.3f})"
