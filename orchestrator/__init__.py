"""ancre from Python: `Study`, `plan`, `start`, `resume` and `best`, loaded when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.queries import best
    from orchestrator.plan import plan
    from orchestrator.run import resume, start
    from orchestrator.spec import Study

__all__ = ["Study", "best", "plan", "resume", "start"]

_HOMES = {
    "Study": "orchestrator.spec",
    "best": "analysis.queries",
    "plan": "orchestrator.plan",
    "resume": "orchestrator.run",
    "start": "orchestrator.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
