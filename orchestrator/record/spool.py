"""The rows of one trial on disk, `rows.jsonl`: written by the trial before anyone else hears of them.

A trial that resumes from a checkpoint computes some steps again. A spool then drops its lines at or after the first
newly written step, so that no step is there twice. It always goes on in a file of its own (another inode): whoever
tails it never sees a rewritten one, and a process that was given up but still runs writes nothing more into it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.record import jsonl

ROWS_FILE = "rows.jsonl"
ERROR_FILE = "error.txt"  # why a trial failed, in one line, and the traceback


class Spool:
    """Appends lines, each of a step; opened by the first `append`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: jsonl.Writer | None = None

    def append(self, step: int, line: Mapping[str, Any]) -> None:
        if self._writer is None:
            self._drop_from(step)
            self._writer = jsonl.Writer(self._path, durable=False)
        self._writer.append([{"step": step, **line}])

    def _drop_from(self, step: int) -> None:
        if lines := jsonl.Tail(self._path, _of_a_step).read():
            jsonl.replace(self._path, b"".join(jsonl.dump(line) for line in lines if line["step"] < step))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def row(time: float, metrics: Mapping[str, float]) -> dict[str, Any]:
    """A line of `rows.jsonl`, but for its step."""
    return {"time": round(time, 3), "metrics": jsonl.plain(metrics)}


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every row of a trial so far: step, time and metrics, which are strings where not finite."""
    return tail(folder).read()


def tail(folder: Path) -> jsonl.Tail:
    """Reads the rows of a trial as they are written."""
    return jsonl.Tail(folder / ROWS_FILE, _check)


def last_step(folder: Path) -> int:
    """The step of a trial's last row; 0 where it has none."""
    found = rows(folder)
    return int(found[-1]["step"]) if found else 0


def last_written(folder: Path) -> float:
    """When a trial wrote its last row, in seconds since the epoch; 0 where it has none."""
    try:
        return (folder / ROWS_FILE).stat().st_mtime
    except OSError:
        return 0.0


def _of_a_step(line: Mapping[str, Any]) -> None:
    jsonl.expect(line, {"step": int})


def _check(row: Mapping[str, Any]) -> None:
    jsonl.expect(row, {"step": int, "time": (int, float), "metrics": dict})
    jsonl.numbers(row["metrics"])
