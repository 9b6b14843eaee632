"""What is said while a study runs, kept as text: by its driver, and by each trial's processes.

A trial's output is caught at the file descriptors, so that a library in C and a child process are heard too. It costs a
call at the start and one at the end, and nothing per step.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DRIVER_FILE = "driver.log"  # in the study's folder
TRIAL_FILE = "log.txt"  # in the trial's folder, as the next
WORKER_FILE = "log-{}.txt"  # of each of several workers, by its rank
STREAMS = (1, 2)  # standard output and error


def note(folder: Path, line: str) -> None:
    """Add to the driver's log of a study what its user was told. A full disk loses the line, not the sweep."""
    try:
        with (folder / DRIVER_FILE).open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    except OSError:
        return


@contextmanager
def caught(file: Path) -> Iterator[None]:
    """While the block runs, all that this process and its children print goes to the end of `file`.

    Who prints nothing leaves no file.
    """
    _flush()
    kept = [os.dup(stream) for stream in STREAMS]
    target = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for stream in STREAMS:
            os.dup2(target, stream)
        yield
    finally:
        _flush()
        for stream, before in zip(STREAMS, kept, strict=True):
            os.dup2(before, stream)
            os.close(before)
        empty = os.fstat(target).st_size == 0
        os.close(target)
        if empty:
            file.unlink(missing_ok=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
