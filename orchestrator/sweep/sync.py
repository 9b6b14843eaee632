"""`ancre sync`: send what a tracking store that was away has not got yet, without starting Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from analysis.store import redacted
from orchestrator.errors import InputError, did_you_mean
from orchestrator.record import lock
from orchestrator.record.ledger import LEDGER_FILE, History
from orchestrator.record.tracking import uri_of
from orchestrator.record.uploader import unsent
from orchestrator.sweep.upload_process import UploadProcess

PATIENCE = 86_400.0  # seconds for one study; a store that does not answer is given up long before


def sync(home: Path, study: str | None) -> list[dict[str, Any]]:
    """One row for `study`, or for each study under `home`: how many runs were sent, how many are left, and why.

    Raises:
        InputError: no such study, or no store can be there.
    """
    uri_of(home)
    names = sorted(path.parent.name for path in (home / "studies").glob(f"*/{LEDGER_FILE}"))
    if study is not None and study not in names:
        raise InputError(f"no study {study!r} in {home}{did_you_mean(study, names)}")
    return [_sync(home.absolute(), name) for name in names if study in (None, name)]


def _sync(home: Path, study: str) -> dict[str, Any]:
    folder = home / "studies" / study
    before = left = 0
    why = ""
    try:
        history = History(folder)
        before = left = len(unsent(home, study, history))
        if before:
            with lock.hold(folder), UploadProcess(home, study) as uploader:
                why = uploader.finish(PATIENCE)
            left = len(unsent(home, study, history))
    except InputError as error:  # its driver runs, and sends them; or its ledger is damaged
        why = str(error)
    return {"study": study, "sent": before - left, "left": left, "why": redacted(why)}
