"""A trial that says nothing for too long: where each of its processes is goes to disk, and the process ends.

Waiting for a worker that will never answer, or for a lock, a process can neither hear a signal nor run Python. So the
interpreter's own timer is set anew at each row; where it runs out, it writes the stacks of all threads and exits.
Until the first row nothing is timed: data are read and code is compiled.
"""

from __future__ import annotations

import faulthandler
import time
from pathlib import Path

SLACK = 0.05  # of the time: to set the timer costs 50 us, so not every row does


def stacks_file(start: int, worker: int = 0) -> str:
    """In the trial's folder, by the number of its start."""
    return f"stacks-{start}-worker{worker}.txt" if worker else f"stacks-{start}.txt"


def clear(folder: Path) -> None:
    """Remove the empty files that killed processes left."""
    for file in folder.glob("stacks-*.txt"):
        if not file.stat().st_size:
            file.unlink(missing_ok=True)


class Silence:
    """Ends this process `seconds` after the last row, with its stacks in `file`."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._path, self._seconds = file, seconds
        self._file = file.open("w")
        self._set = 0.0  # when the timer was last set

    def heard(self) -> None:
        """A row came."""
        if time.monotonic() > self._set + SLACK * self._seconds:
            self._set = time.monotonic()
            faulthandler.dump_traceback_later((1 + SLACK) * self._seconds, exit=True, file=self._file)

    def close(self) -> None:
        """No more rows are to come."""
        faulthandler.cancel_dump_traceback_later()
        self._file.close()
        self._path.unlink(missing_ok=True)
