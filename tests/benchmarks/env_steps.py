"""Env steps a second of an environment under random actions, in one scan as long as an unroll; no policy, no learning.

    python tests/benchmarks/env_steps.py [KIND [NUM_ENVS]]

Prints wall and CPU figures: the second holds on a machine that others use too.
"""

import sys
import time
from functools import partial
from typing import Any

import jax

from envs.functional import BatchState, JaxBatch
from orchestrator import kinds

UNROLL, ROUNDS = 62, 10


def main(kind: str = "ant", num_envs: str = "256") -> None:
    batch = kinds.find("env", kind)().build(int(num_envs))
    if not isinstance(batch, JaxBatch):
        sys.exit(f"{kind} runs in numpy: this benchmark is of jax")
    state, times = jax.jit(batch.reset)(jax.random.PRNGKey(0)), []
    unroll = jax.jit(lambda s, key: jax.lax.scan(partial(_step, batch), s, jax.random.split(key, UNROLL)))
    for index in range(ROUNDS + 1):  # the first compiles
        start = time.perf_counter(), time.process_time()
        state, _ = jax.block_until_ready(unroll(state, jax.random.PRNGKey(index)))
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = (sorted(column)[ROUNDS // 2] for column in zip(*times[1:], strict=True))
    steps = UNROLL * int(num_envs)
    print(f"{kind} x {num_envs}, brax on {jax.devices()[0].platform}: first unroll {times[0][0]:.1f} s")
    print(f"median of {ROUNDS} unrolls: {steps / wall:,.0f} env steps/s, {steps / cpu:,.0f} per second of CPU")


def _step(batch: JaxBatch, state: BatchState, key: jax.Array) -> tuple[BatchState, Any]:
    shape = (batch.num_envs, batch.contract.action_size)
    state, step = batch.step(state, jax.random.uniform(key, shape, minval=-1.0))
    return state, step.distance.mean()


if __name__ == "__main__":
    main(*sys.argv[1:])
