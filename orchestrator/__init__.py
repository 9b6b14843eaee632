"""ancre from Python: `Study`, `plan`, `start`, `resume` and `best`, loaded when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.queries import best
    from orchestrator.study.plan import plan
    from orchestrator.study.spec import Study
    from orchestrator.sweep.run import resume, start

__all__ = ["Study", "best", "plan", "resume", "start"]

_HOMES = {
    "Study": "orchestrator.study.spec",
    "best": "analysis.queries",
    "plan": "orchestrator.study.plan",
    "resume": "orchestrator.sweep.run",
    "start": "orchestrator.sweep.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
