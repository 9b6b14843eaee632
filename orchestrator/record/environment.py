"""What a trial ran on: versions, git commit and device, as written beside its results."""

import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from analysis import names
from orchestrator.packages import check_one_place

COMMIT_FILE = "commit"  # beside the packages where a job has its own copy of them
LIBRARIES = ("ancre", "torch", "ray", "mlflow", "optuna", "numpy", "tokenizers")


@cache
def commit() -> str:
    """The git commit of ancre's code, "-dirty" behind it where it was changed; empty where it is not a checkout."""
    home = check_one_place()
    if (kept := home / COMMIT_FILE).is_file():
        return kept.read_text().strip()
    place = str(home)
    try:
        _git(place, "ls-files", "--error-unmatch", "orchestrator/record/environment.py")
        return _git(place, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(place: str, *words: str) -> str:
    command = ["git", "-C", place, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()


@cache
def _versions() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def device() -> str:
    """The accelerator of this process, or "cpu". A process that never loaded torch does not load it for this."""
    torch = sys.modules.get("torch")
    return str(torch.cuda.get_device_name()) if torch is not None and torch.cuda.is_available() else "cpu"


def describe(commit: str) -> dict[str, Any]:
    """The environment of this process; the commit comes from the driver, for workers have no checkout."""
    return {
        "commit": commit,
        "device": device(),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": _versions(),
    }


def tags(environment: Mapping[str, Any]) -> dict[str, str]:
    """The part of it that queries and reports ask for."""
    versions = {"python": environment["python"], **environment["packages"]}
    shown = ", ".join(f"{name} {versions[name]}" for name in ("python", "torch", "ray", "mlflow") if name in versions)
    known = {
        names.DEVICE: environment["device"],
        names.VERSIONS: shown,
        names.COMMIT: environment["commit"],
    }
    return {tag: value for tag, value in known.items() if value}
