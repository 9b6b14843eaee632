"""How much CPU time the trials of study rl_point take to reach nine of ten goals.

    OMP_WAIT_POLICY=PASSIVE python tests/benchmarks/point.py [SEED ..]

Prints for each trial the CPU seconds of its process, without evaluations, at the first row from which on success_any
is at least 0.9, and the last row's success_any. Asked for: 0.9 within 60 s, cascaded and ANCRe, three seeds.
"""

import sys
import tempfile
import time
from pathlib import Path

from analysis import names
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study
from orchestrator.sweep import cluster
from orchestrator.workloads.base import Place

GOAL = 0.9


def main() -> None:
    seeds = [int(seed) for seed in sys.argv[1:]] or None
    cluster.configure()
    with cluster.connected(None), tempfile.TemporaryDirectory() as folder:
        for arm, _, trial in plan(Study.read("rl_point", seeds=seeds)).trials():
            started, looking, reached = time.process_time(), 0.0, None
            for row in trial.rows(Place(Path(folder) / trial.id, Path(folder))):
                spent = time.process_time() - started - looking
                if row.metrics[names.EVAL_SUCCESS_ANY] < GOAL:
                    reached = None
                elif reached is None:
                    reached = spent
                looking += row.metrics[names.TIME_EVALUATE]
            last = row.metrics[names.EVAL_SUCCESS_ANY]
            at = "never" if reached is None else f"{reached:.0f} s"
            print(f"{arm:9} seed {trial.seed}: 0.9 at {at}, {last:.2f} after {spent:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
