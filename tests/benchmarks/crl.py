"""End to end: environment steps a second of a whole training step, and how much of it is RLlib's own.

    JAX_PLATFORMS=cpu python tests/benchmarks/crl.py [KIND]

The ant, 128 environments, networks of 4 layers, batch 256, one gradient step for each 64 environment steps. RLlib's own
share is all of a training step that is neither physics, nor policy, nor gradient: rows into the ring, weights to the
runner, and its own bookkeeping. Asked for: 2,200 env steps/s on 2 idle cores, and a share of at most 0.05.
Beside other work set OMP_WAIT_POLICY=PASSIVE: torch's threads else spin against it.
"""

import os
import statistics
import sys
import time

import torch

from analysis import names
from models.resnet_spec import ResnetSpec
from orchestrator import kinds
from orchestrator.crl.agent import Topologies
from orchestrator.crl.algorithm import CRLConfig
from orchestrator.crl.module import Setup
from orchestrator.crl.spec import AgentSpec, TrainSpec
from orchestrator.sweep import cluster

NUM_ENVS, UNROLL, ROUNDS = 128, 62, 6


def main() -> None:
    kind = (sys.argv[1:] or ["ant"])[0]
    topology = kinds.parse("topology", {"kind": "cascaded"})
    train = TrainSpec(
        num_envs=NUM_ENVS,
        unroll=UNROLL,
        gradient_steps=NUM_ENVS * UNROLL // 64,
        batch=256,
        slots=2000,
        prefill=1000,
        window=900,
    )
    env = kinds.parse("env", {"kind": kind})
    threads = os.cpu_count() or 1
    torch.set_num_threads(threads)
    plan = Setup(
        env, ResnetSpec(num_blocks=1), Topologies(*[topology] * 3), AgentSpec(), train, seed=0, threads=threads
    )
    cluster.configure()
    with cluster.connected(None):
        algorithm = CRLConfig().of(plan).build_algo()
        algorithm.train()  # fills the ring and compiles
        algorithm.take_seconds()
        rates, shares = [], []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            algorithm.train()
            wall, spent = time.perf_counter() - started, algorithm.take_seconds()
            rates.append(train.training_step / wall)
            shares.append(1 - sum(spent.values()) / wall)
            rollout, learn = spent[names.TIME_ROLLOUT], spent[names.TIME_LEARN]
            print(
                f"{rates[-1]:,.0f} env steps/s: rollout {rollout:.2f} s, gradients {learn:.2f} s, rest {shares[-1]:.1%}"
            )
        algorithm.stop()
    print(f"median {statistics.median(rates):,.0f} env steps/s, RLlib's own share {statistics.median(shares):.1%}")


if __name__ == "__main__":
    main()
