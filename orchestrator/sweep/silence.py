"""A trial that says nothing for too long: where each of its processes is goes to disk, and the process ends.

Waiting for a worker that will never answer, or for a lock, a process can neither handle a signal nor run Python. So two
timers are set anew at each row, neither of which needs Python: one writes the stacks of all threads, and SIGALRM ends
the process some seconds later, when the other workers have written theirs. Until the first row nothing is timed: data
are read and code is compiled.
"""

from __future__ import annotations

import faulthandler
import signal
import time
from pathlib import Path

SLACK = 0.05  # of the time, a second at most: to set the timers costs 50 us, so not every row does
GRACE = 5.0  # seconds from the stacks to the end


class Silence:
    """Ends this process `seconds` after the last row, with its stacks in `file`."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._path, self._seconds = file, seconds
        self._file = file.open("w")
        self._set = 0.0  # when the timers were last set

    def heard(self) -> None:
        """A row came."""
        slack = min(1.0, SLACK * self._seconds)
        if time.monotonic() > self._set + slack:
            self._set = time.monotonic()
            faulthandler.dump_traceback_later(self._seconds + slack, file=self._file)
            signal.setitimer(signal.ITIMER_REAL, self._seconds + slack + GRACE)

    def close(self) -> None:
        """No more rows are to come."""
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._file.close()
        _remove_empty(self._path)  # the stacks of one that waited for a worker that was silent stay


def stacks_file(start: int, worker: int = 0) -> str:
    """In the trial's folder, by the number of its start."""
    return f"stacks-{start}-worker{worker}.txt" if worker else f"stacks-{start}.txt"


def stacks(folder: Path, start: int) -> list[Path]:
    """What the silent processes of a start have written."""
    found = [folder / stacks_file(start), *sorted(folder.glob(f"stacks-{start}-worker*.txt"))]
    return [file for file in found if file.exists() and file.stat().st_size]


def clear(folder: Path) -> None:
    """Remove the empty files that killed processes left."""
    for file in folder.glob("stacks-*.txt"):
        _remove_empty(file)


def _remove_empty(file: Path) -> None:
    if file.exists() and not file.stat().st_size:
        file.unlink(missing_ok=True)
