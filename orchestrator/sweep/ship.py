"""How ancre's code gets to the workers of a cluster: the five packages as they are here.

Paths, not modules or a working folder: modules fail inside Ray jobs, and a working folder would upload all of site-
packages where ancre is installed as a wheel.
"""

import os
from typing import Any

from orchestrator.packages import folders

# What decides how a trial runs, wherever it runs.
PASSED_ON = (
    *("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "OMP_WAIT_POLICY"),
    *("RAY_CHDIR_TO_TRIAL_DIR", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "RAY_TRAIN_METRICS_ENABLED"),
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S",
)


def runtime_env() -> dict[str, Any]:
    """Ray's runtime environment of a sweep on a cluster."""
    return {
        "py_modules": [str(folder) for folder in folders().values()],
        "env_vars": {name: os.environ[name] for name in PASSED_ON if name in os.environ},
    }
