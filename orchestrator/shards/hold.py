"""A folder that one process at a time fills."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import InputError


@contextmanager
def held(folder: Path, own: set[str], where: str, wait: bool = False) -> Iterator[None]:
    """The folder, made where it is not there, for this process alone.

    Args:
        own: names of which one is there where the folder was begun before.
        where: the name of the user's choice, for messages.
        wait: for another process that is at it; else it is refused.

    Raises:
        InputError: the folder cannot be made, holds something else, or is held.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        inside = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: {getattr(error, 'strerror', error)}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if inside and not inside & own:
            raise InputError(f"{where}: holds something else; give a new or an empty folder")
        yield
    except BlockingIOError:
        raise InputError(f"{where}: another `ancre data prepare` is at it") from None
    finally:
        os.close(handle)
