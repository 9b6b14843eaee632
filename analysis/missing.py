"""What a study has not finished: configurations without all their seeds, why, and the command that goes on."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis import names
from analysis.cells import UNFINISHED, Cell
from analysis.store import Study


def missing(study: Study, ranked: Sequence[Cell], whole: bool = True, home: Path | None = None) -> list[dict[str, Any]]:
    """A row for each configuration that lacks seeds, and one for an arm's that were never recorded.

    Args:
        study: the study.
        ranked: its cells, or those that are asked about.
        whole: these are all of them, so that those never recorded are told too.
        home: named in the command; None: where commands look anyway.
    """
    dash = ["--"] if study.name.startswith("-") else []
    go_on = shlex.join(["ancre", "resume", *(["--home", str(home)] if home else []), *dash, study.name])
    rows: list[dict[str, Any]] = [
        {
            "cell": cell.cell,
            "arm": cell.arm,
            "status": cell.status,
            "missing": list(cell.missing),
            "reason": cell.reason,
            "axes": dict(cell.axes),
            "command": go_on if _can_go_on(study, cell) else None,
        }
        for cell in ranked
        if cell.missing
    ]
    recorded = Counter({run.cell: run.arm for run in study.runs}.values())
    for arm, planned in study.arms.items() if whole else ():
        never = (planned.get("configurations") or 0) - recorded[arm]
        if never > 0:
            reason = f"{never} configuration{'s' if never > 1 else ''} not started"
            row = dict.fromkeys(("cell", "arm", "status", "missing", "reason", "axes", "command"))
            said = {"arm": arm, "status": UNFINISHED, "missing": list(study.seeds), "reason": reason, "axes": {}}
            rows.append(row | said | {"command": go_on})
    return rows


ENDED = (names.FINISHED, names.STOPPED, names.DIVERGED)  # a trial that ended so is not run again


def _can_go_on(study: Study, cell: Cell) -> bool:
    """Whether a seed is missing that a resumed sweep would run: not one that diverged or was stopped."""
    if study.lost_race(cell.runs):
        return False
    ended = {run.seed for run in cell.runs if run.state in ENDED}
    return not set(cell.missing) <= ended
