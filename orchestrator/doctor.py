"""What is installed, which devices there are, and whether this machine can run a study: `ancre doctor`."""

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.packages import check_one_place

LIBRARIES = ("ray", "torch", "mlflow", "optuna", "gymnasium", "brax", "numpy", "pydantic", "tokenizers")
FREE_DISK = 2 * 2**30  # bytes; below this a sweep with checkpoints soon fills the disk


def examine(home: Path) -> Iterator[dict[str, str]]:
    """One row per check: `check`, `found`, and `verdict`, which is ok or says what to do."""
    yield _packages()
    yield {"check": "python", "found": platform.python_version(), "verdict": "ok"}
    yield from map(_library, LIBRARIES)
    yield {"check": "cpu cores", "found": str(os.cpu_count()), "verdict": "ok"}
    yield _devices()
    yield _home(home)
    yield {"check": "tracking", "found": os.environ.get("MLFLOW_TRACKING_URI", f"sqlite in {home}"), "verdict": "ok"}


def _packages() -> dict[str, str]:
    try:
        return {"check": "ancre", "found": f"{version('ancre')} in {check_one_place()}", "verdict": "ok"}
    except (InputError, PackageNotFoundError) as error:
        return {"check": "ancre", "found": "-", "verdict": str(error)}


def _library(name: str) -> dict[str, str]:
    try:
        return {"check": name, "found": version(name), "verdict": "ok"}
    except PackageNotFoundError:
        return {"check": name, "found": "-", "verdict": f"missing: pip install {name}"}


def _devices() -> dict[str, str]:
    import torch

    count = torch.cuda.device_count()
    found = ", ".join(torch.cuda.get_device_name(index) for index in range(count)) or "none: trials run on the CPU"
    return {"check": "gpu", "found": found, "verdict": "ok"}


def _home(home: Path) -> dict[str, str]:
    place = home.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK):
        verdict = f"{place} is not writable: pass --home or set ANCRE_HOME"
    elif free < FREE_DISK:
        verdict = "nearly full: pass --home or set ANCRE_HOME to a disk with room"
    else:
        verdict = "ok"
    return {"check": "home", "found": f"{home} ({free / 2**30:.0f} GB free)", "verdict": verdict}
