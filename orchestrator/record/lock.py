"""One driver per study: who holds it, and when a lock that was left behind may be taken over.

The operating system's lock on the file is what excludes a second driver; it is gone with its process, however that
ends. What the file says is for people, and for the one case that the system cannot answer: an owner on another
machine.
"""

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import InputError

LOCK_FILE = "lock"


@dataclass(frozen=True)
class Owner:
    """A driver: a process id means nothing after a reboot or once it is used again, hence boot and start."""

    pid: int
    host: str
    boot: str  # of the machine
    started: str  # of the process, in clock ticks since the boot
    attempt: int

    @classmethod
    def me(cls, attempt: int) -> "Owner":
        return cls(os.getpid(), platform.node(), _boot(), _start_of(os.getpid()), attempt)

    def alive(self) -> bool:
        """Whether the process still runs. One on another machine is taken to."""
        if self.host != platform.node():
            return True
        return self.boot == _boot() and self.started == _start_of(self.pid) != ""

    def __str__(self) -> str:
        return f"{self.pid}@{self.host}"


def owner(folder: Path) -> Owner | None:
    """The driver that runs a study now; None where there is none, or only one that was killed."""
    try:
        found = Owner(**json.loads((folder / LOCK_FILE).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):  # none, empty or torn: its writer was killed
        return None
    return found if found.alive() else None


@contextmanager
def hold(folder: Path) -> Iterator[Callable[[int], None]]:
    """Hold a study while the block runs; call what it yields with the attempt's number, once that is known.

    Raises:
        InputError: another driver holds it.
    """
    path = folder / LOCK_FILE
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)  # the holder may be writing its name
            raise InputError(
                f"study {folder.name!r} is run by {owner(folder) or 'another driver'}: wait for it, or stop it"
            ) from None
        other = owner(folder)
        if other is not None and other.host != platform.node():
            raise InputError(f"study {folder.name!r} is run by {other}; if that machine is gone, delete {path}")

        def sign(attempt: int) -> None:
            _write(file.fileno(), json.dumps(asdict(Owner.me(attempt))))

        sign(0)
        try:
            yield sign
        finally:
            _write(file.fileno(), "")


def _write(file: int, text: str) -> None:
    os.ftruncate(file, 0)
    os.write(file, text.encode())


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _start_of(pid: int) -> str:
    """The start time of a process; empty where there is none. Elsewhere than on Linux only whether it lives."""
    try:
        if Path("/proc/self/stat").exists():
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except FileNotFoundError:
        return ""
    except PermissionError:
        pass
    return "alive"
