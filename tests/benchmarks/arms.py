"""Environment steps a second of the arm's tasks under native MuJoCo, and of the point; random actions, with resets.

    python tests/benchmarks/arms.py              # every task, one thread against all; the median of interleaved rounds
    python tests/benchmarks/arms.py --agree      # a push in contact under MJX and under MuJoCo (compiles for a minute)

A step of the arm is 25 steps of physics. On a machine that is busy with other work, read steps per CPU second, which
idle cores would each give.
"""

from __future__ import annotations

import argparse
import os
import platform
from statistics import median
from time import perf_counter, process_time

import numpy as np

from envs import arm_binpick, arm_grasp, arm_push, arm_reach, point
from envs.base import GoalEnvSpec
from envs.host import HostBatch

TASKS: dict[str, GoalEnvSpec] = {
    "point": point.Spec(),
    "arm-reach": arm_reach.Spec(backend="mujoco"),
    "arm-grasp": arm_grasp.Spec(backend="mujoco"),
    "arm-push easy": arm_push.Spec(backend="mujoco", difficulty="easy"),
    "arm-push hard": arm_push.Spec(backend="mujoco", difficulty="hard"),
    "arm-binpick easy": arm_binpick.Spec(backend="mujoco", difficulty="easy"),
    "arm-binpick hard": arm_binpick.Spec(backend="mujoco", difficulty="hard"),
}


def made(spec: GoalEnvSpec, num_envs: int, threads: int) -> HostBatch:
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when the batch is built
    batch = spec.build(num_envs)
    assert isinstance(batch, HostBatch)
    batch.reset(0)
    return batch


def rates(batch: HostBatch, steps: int, rng: np.random.Generator) -> tuple[float, float]:
    """Environment steps per second and per CPU second."""
    actions = rng.uniform(-1, 1, (steps, batch.num_envs, batch.contract.action_size))
    wall, cpu = perf_counter(), process_time()
    for action in actions:
        batch.step(action)
    done = steps * batch.num_envs
    return done / (perf_counter() - wall), done / (process_time() - cpu)


def speed(num_envs: int, rounds: int, threads: int) -> None:
    rng = np.random.default_rng(0)
    print(f"{platform.processor() or platform.machine()}, {threads} CPUs, {num_envs} environments, {rounds} rounds")
    print(f"{'steps a second':18}{'1 thread':>12}{'all':>12}{'per CPU second':>18}{'ratio':>8}")
    for name, spec in TASKS.items():
        one, every = (made(spec, num_envs, count) for count in (1, threads))
        steps = 200 if name == "point" else 5
        seen = [(rates(one, steps, rng), rates(every, steps, rng)) for _ in range(rounds)]
        single, many, per_cpu = (median(values) for values in zip(*((a, b, c) for (a, c), (b, _) in seen), strict=True))
        ratio = median(b / a for (a, _), (b, _) in seen)
        print(f"{name:18}{single:12,.0f}{many:12,.0f}{per_cpu:18,.0f}{ratio:8.2f}", flush=True)


def agree() -> None:
    """The closed hand pushes the cube 0.25 m: how far the two simulators are apart, in metres and radians."""
    import jax

    spec = arm_push.Spec(backend="mujoco")
    env, batch = spec.environment(), made(spec, 1, 1)
    step, low = jax.jit(env.step), np.array([0.0, 0.2, -0.6, 1.0, 1.0])
    batch.restore(moved(batch, -0.5, 0.6, 0.03))
    for _ in range(60):
        batch.step(low[None])
    batch.restore(moved(batch, 0.08, 0.614, 0.03))
    row = batch.state()["physics"][0].astype(np.float32)
    for count, turn in enumerate(np.linspace(0, -0.5, 15), start=1):
        action = np.array([turn, *low[1:]])
        row = step(row, action)
        (native,), _ = batch.step(action[None])
        apart = np.abs(np.asarray(env.observe(row)) - native)
        print(f"step {count:2}  cube at x {native[0]:.3f}, apart {apart[:3].max():.4f}  joints {apart[3:10].max():.5f}")


def moved(batch: HostBatch, *cube: float) -> dict[str, np.ndarray]:
    state = batch.state()
    physics = state["physics"].copy()
    physics[:, :3] = cube
    return {**state, "physics": physics}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--agree", action="store_true")
    args = parser.parse_args()
    if args.agree:
        agree()
    else:
        speed(args.envs, args.rounds, args.threads)


if __name__ == "__main__":
    main()
