"""Environment steps a second of one compiled rollout: the ant, 256 environments, a policy of 4 layers.

    JAX_PLATFORMS=cpu python tests/benchmarks/rollout.py [KIND [NUM_ENVS]]

Cascaded and ANCRe run in turn, so that a busy machine slows both alike. Asked for: 10,000 a second on 2 idle cores.
"""

import statistics
import sys
import time

from models.resnet_spec import ResnetSpec
from orchestrator import kinds
from orchestrator.crl import rollout

UNROLL, ROUNDS = 62, 5


def main() -> None:
    kind, num_envs = (sys.argv[1:] + ["ant", "256"][len(sys.argv) - 1 :])[:2]
    env, model = kinds.parse("env", {"kind": kind}), ResnetSpec(num_blocks=1)
    rule, runs = env.contract, {}
    for name in ("cascaded", "ancre"):
        topology = kinds.parse("topology", {"kind": name})
        actor = model.actor(rule.observation_size, rule.action_size, topology)
        started = time.perf_counter()
        runs[name] = rollout.build(env, model, actor, int(num_envs), seed=0)
        runs[name].collect(UNROLL)
        print(f"{name:9} ready after {time.perf_counter() - started:.0f} s, compilation included", flush=True)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            started = time.perf_counter()
            run.collect(UNROLL)
            rates[name].append(UNROLL * int(num_envs) / (time.perf_counter() - started))
    for name, found in rates.items():
        print(f"{name:9} {statistics.median(found):,.0f} env steps/s (best {max(found):,.0f})")
    ratio = statistics.median(a / b for a, b in zip(rates["ancre"], rates["cascaded"], strict=True))
    print(f"ancre / cascaded {ratio:.2f}")


if __name__ == "__main__":
    main()
