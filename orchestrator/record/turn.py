"""Whose turn it is to write a trial's files: of all processes that were started for it, that of the last start.

A process on a machine that was cut off, or that was suspended, may go on after its trial was started again elsewhere.
It finds that the turn is another's before it writes a row or a checkpoint, and ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.record import jsonl

TURN_FILE = "turn.json"


class Superseded(Exception):  # noqa: N818 - a verdict on a process, not a fault in it
    """The trial was started again: this process may write nothing more, and nobody waits for it."""


def starts(folder: Path) -> int:
    """How often the trial in `folder` was started."""
    return int(_read(folder / TURN_FILE).get("number", 0))


class Turn:
    """One start of the trial in `folder`, known by its token."""

    def __init__(self, folder: Path, token: str) -> None:
        self._path, self._token = folder / TURN_FILE, token
        self.number = int(token.partition("-")[0])  # of this start
        self._seen: tuple[int, int] | None = None  # what the file was when it was last read

    @staticmethod
    def take(folder: Path, attempt: int) -> str:
        """Begin a start of the trial, on behalf of an attempt at the study; its token.

        Raises:
            Superseded: a later attempt has started it.
        """
        before = _read(folder / TURN_FILE)
        if before.get("attempt", 0) > attempt:
            raise Superseded(f"attempt {before['attempt']} at the study has started this trial again")
        number = before.get("number", 0) + 1
        said = {"attempt": attempt, "number": number, "token": f"{number}-{uuid4().hex[:8]}"}
        jsonl.replace(folder / TURN_FILE, json.dumps(said).encode())
        return str(said["token"])

    def check(self) -> None:
        """Cheap enough for each row. Raises Superseded: the trial was started again."""
        stat = self._path.stat()
        seen = (stat.st_ino, stat.st_mtime_ns)
        if seen != self._seen:
            if _read(self._path).get("token") != self._token:
                raise Superseded(f"{self._path.parent.name} was started again")
            self._seen = seen


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
        jsonl.expect(found, {"attempt": int, "number": int, "token": str})
    except (OSError, ValueError, TypeError, RecursionError):  # none, or changed by another hand
        return {}
    return found if isinstance(found, dict) else {}
