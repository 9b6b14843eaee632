"""Gradient steps a second of the contrastive-RL agent, and what ANCRe costs there.

    python tests/benchmarks/gradient_step.py                          # ant's sizes, 2 threads
    python tests/benchmarks/gradient_step.py --rounds 20 --only ratio

Rates are of whole steps of all three networks on batches drawn from a buffer, by the wall clock and, for a machine that
does other work too, by the clock of this process (its threads' time over their number). Arms take turns, in random
order; ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import cycle
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import torch

from envs.base import Contract
from models.resnet_spec import ResnetSpec
from models.topology import ancre, cascaded
from models.topology.base import TopologySpec
from orchestrator.crl.agent import Agent, Topologies
from orchestrator.crl.replay import Batch, Replay, row_size
from orchestrator.crl.spec import AgentSpec, TrainSpec

ANT = Contract(29, (0, 1), 8, radius=0.5, easy=2.0, hard=0.1, control_dt=0.05)
TRAIN = TrainSpec(num_envs=64, unroll=50, window=100, prefill=101, slots=200, env_steps=10**6, eval_every=10**6)
RATES = [(4, 512), (4, 256), (16, 512), (16, 256)]  # layers, batch
RATIOS = [(64, 512)]


class Arm(NamedTuple):
    agent: Agent
    batches: Iterator[Batch]
    wall: list[float]  # seconds of each turn
    cpu: list[float]


def arm(topology: TopologySpec, depth: int, batch: int) -> Arm:
    agent = Agent(AgentSpec(), ResnetSpec(depth=depth), Topologies(topology, topology, topology), ANT, seed=0)
    agent.start()
    replay = Replay(TRAIN, ANT, agent.spec.gamma)
    rows = torch.randn(TRAIN.slots, TRAIN.num_envs, row_size(ANT))
    rows[..., -2:] = torch.ones(2)  # one episode, nothing broken
    replay.add(rows)
    return Arm(agent, cycle(replay.sample_many(20, batch, torch.Generator())), [], [])


def take_turns(arms: dict[str, Arm], rounds: int, steps: int) -> None:
    order, names = Random(0), list(arms)
    for turn in range(rounds + 1):
        for name in order.sample(names, len(names)):
            agent, batches, wall, cpu = arms[name]
            began = perf_counter(), process_time()
            for _ in range(steps):
                agent.gradient_step(next(batches))
            if turn:  # the first warms up
                wall.append(perf_counter() - began[0])
                cpu.append(process_time() - began[1])


def rates(rounds: int, threads: int) -> None:
    arms = {f"depth {depth:2d} batch {batch}": arm(cascaded.Spec(), depth, batch) for depth, batch in RATES}
    steps = 3
    take_turns(arms, rounds, steps)
    for name, (_, _, wall, cpu) in arms.items():
        print(
            f"  {name}: {steps / median(wall):6.2f} steps/s (best {steps / min(wall):6.2f}); by CPU time on {threads} "
            f"threads {threads * steps / median(cpu):6.2f} (best {threads * steps / min(cpu):6.2f})"
        )


def ratios(rounds: int) -> None:
    for depth, batch in RATIOS:
        arms = {spec.kind: arm(spec, depth, batch) for spec in (cascaded.Spec(), ancre.Spec())}
        take_turns(arms, rounds, 1)
        for clock in ("wall", "cpu"):
            base, mixed = (getattr(arms[kind], clock) for kind in ("cascaded", "ancre"))
            each = sorted(b / a for a, b in zip(base, mixed, strict=True))
            quartiles = f"{each[len(each) // 4]:.3f} .. {each[-len(each) // 4]:.3f}"
            print(
                f"  depth {depth} batch {batch}, ancre / cascaded by {clock} time: median {median(each):.3f} "
                f"(quartiles {quartiles}), fastest {min(mixed) / min(base):.3f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("rates", "ratio"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, width 256, {options.threads} threads, {options.rounds} rounds")
    if options.only != "ratio":
        rates(options.rounds, options.threads)
    if options.only != "rates":
        ratios(options.rounds)


if __name__ == "__main__":
    main()
