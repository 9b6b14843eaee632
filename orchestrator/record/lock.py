"""One driver per study: a lease, which its holder renews, with a number that only grows.

A home may lie on storage whose locks mean nothing between machines (NFS). What holds there too is that of two links to
one name exactly one is made, and that a rename is whole. So a driver claims the next attempt by linking
`leases/NUMBER.json`, the highest number holds the study, and its file changes every few seconds.

A driver of this machine lives as long as its process. One of another machine is watched: it is gone once its lease has
not changed for as long as `EXPIRES`, by the watcher's own clock, so that no two clocks are compared. Whoever was
suspended or cut off that long finds a higher number before it writes again.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError
from orchestrator.record import jsonl
from orchestrator.record.ledger import LEDGER_FILE, History

LEASES = "leases"  # a folder of a study
RELEASED = b"{}"
SIGNED = ("pid", "host", "boot", "started")
RENEW = 2.0  # seconds between two renewals
EXPIRES = 20.0  # seconds without one, after which a driver of another machine is gone
LOOK = 0.2  # seconds between two looks at the lease of another machine


class LeaseError(OSError):
    """Another driver has taken the study over: nothing more may be written to it."""


@dataclass(frozen=True)
class Owner:
    """A driver: a process id means nothing after a reboot or once it is used again, hence boot and start."""

    pid: int
    host: str
    boot: str  # of the machine
    started: str  # of the process, in clock ticks since the boot
    attempt: int
    lease: Path  # what it renews

    @classmethod
    def me(cls, lease: Path) -> Owner:
        return cls(os.getpid(), platform.node(), _boot(), _start_of(os.getpid()), int(lease.stem), lease)

    def alive(self) -> bool:
        """Whether it still runs. One on another machine is watched for `EXPIRES` at most."""
        if self.host == platform.node():
            return self.boot == _boot() and self.started == _start_of(self.pid) != ""
        seen, limit = _content(self.lease), time.monotonic() + EXPIRES
        while time.monotonic() < limit:
            time.sleep(LOOK)
            if (now := _content(self.lease)) != seen:
                return _owner(self.lease, now) is not None
        return False

    def __str__(self) -> str:
        return f"{self.pid}@{self.host}"


def owner(folder: Path) -> Owner | None:
    """The driver that runs a study now; None where there is none, or only one that was killed.

    Takes up to `EXPIRES` where the last one ran on another machine.
    """
    found = _holder(folder)
    return found if found and found.alive() else None


class Lease:
    """The right to write a study's files, as attempt `number`."""

    def __init__(self, folder: Path, number: int) -> None:
        self.number = number
        self._leases = folder / LEASES
        self._path = self._leases / f"{number}.json"
        self.owner = Owner.me(self._path)
        self._renewals = 0
        self._renewed = _clock()
        self._one = threading.Lock()  # renewal at a time
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._keep, daemon=True)

    def claim(self, gone: Owner | None) -> None:
        """Raises FileExistsError where another driver was first. `gone` was found to run no more."""
        mine = self._leases / f".{self.number}.{self.owner.pid}.{threading.get_ident()}"
        mine.write_bytes(self._signed())
        try:
            os.link(mine, self._path)
        finally:
            mine.unlink()
        others = _numbers(self._leases) - {self.number}
        signers = {_signer(self._leases, number) for number in others} - {None, gone}
        if max(others, default=0) > self.number or any(other.alive() for other in signers if other):
            self._path.unlink()  # our look at the study was out of date: it was released, removed and held anew since
            raise FileExistsError(self._path)
        for earlier in others:
            (self._leases / f"{earlier}.json").unlink(missing_ok=True)
        self._renewing.start()

    def check(self) -> None:
        """Raise LeaseError where a later attempt holds the study."""
        if _clock() - self._renewed > EXPIRES / 2:  # suspended, or cut off from the storage
            self._renew()
        if self.lost:
            raise LeaseError(f"this driver was suspended or cut off, and the study was taken over by {self._holder}")

    @property
    def lost(self) -> bool:
        return _highest(self._leases) != self.number

    @property
    def _holder(self) -> str:
        return str(_holder(self._leases.parent) or "another driver")

    def release(self) -> None:
        """Leave the number behind, so that none is given twice; of a study that never began, nothing at all."""
        self._over.set()
        self._renewing.join()
        with suppress(OSError):  # of a full disk, or one that is away; the next driver finds that this one is gone
            if self.lost:
                return
            if (self._leases.parent / LEDGER_FILE).exists():
                jsonl.replace(self._path, RELEASED)
            else:
                self._path.unlink()

    def _keep(self) -> None:
        while not self._over.wait(RENEW):
            try:
                self._renew()
            except OSError:  # the storage is away for now; `check` tries again before anything is written
                continue

    def _renew(self) -> None:
        """Renaming a file makes NFS look at the folder anew: what `lost` finds after that is not out of date."""
        with self._one:
            if not self.lost:
                self._renewals += 1
                jsonl.replace(self._path, self._signed())
                self._renewed = _clock()

    def _signed(self) -> bytes:
        said = {name: getattr(self.owner, name) for name in SIGNED}
        return json.dumps({**said, "renewals": self._renewals}).encode()


@contextmanager
def hold(folder: Path) -> Iterator[Lease]:
    """Hold a study while the block runs, as its next attempt. Leaves no empty folder behind.

    Raises:
        InputError: another driver holds it.
    """
    leases = folder / LEASES
    highest = _highest(leases)  # looked up once: who claims the next one while we watch this one wins
    holder = _signer(leases, highest)
    if holder and holder.alive():
        raise _held(folder, holder)
    lease = Lease(folder, (highest or History(folder).attempts) + 1)
    while True:
        try:
            leases.mkdir(parents=True, exist_ok=True)
            lease.claim(holder)
            break
        except FileNotFoundError:  # a start that was refused removed its empty folder
            continue
        except FileExistsError:
            raise _held(folder, _holder(folder)) from None
        except OSError as error:
            raise InputError(f"{leases}: cannot be written: {error.strerror}") from error
    try:
        yield lease
    finally:
        lease.release()
        _remove_empty(leases, folder)


def _held(folder: Path, holder: Owner | None) -> InputError:
    return InputError(f"study {folder.name!r} is run by {holder or 'another driver'}: wait for it, or stop it")


def _remove_empty(*folders: Path) -> None:
    with suppress(OSError):  # not empty, or another driver begins here
        for folder in folders:
            folder.rmdir()


def _numbers(leases: Path) -> set[int]:
    try:
        return {int(path.stem) for path in leases.glob("*.json") if path.stem.isdecimal()}
    except FileNotFoundError:  # removed while we look
        return set()


def _highest(leases: Path) -> int:
    """0: nobody ever held the study."""
    return max(_numbers(leases), default=0)


def _holder(folder: Path) -> Owner | None:
    """Who signed the highest lease and has not released it; whether it still runs is another question."""
    return _signer(folder / LEASES, _highest(folder / LEASES))


def _signer(leases: Path, number: int) -> Owner | None:
    path = leases / f"{number}.json"
    return _owner(path, _content(path))


def _content(lease: Path) -> bytes:
    try:
        return lease.read_bytes()
    except OSError:
        return b""


def _owner(lease: Path, content: bytes) -> Owner | None:
    try:
        said = json.loads(content)
        pid, host, boot, started = (said[name] for name in SIGNED)
        return Owner(pid, host, boot, started, int(lease.stem), lease)
    except (ValueError, TypeError, KeyError, RecursionError):  # none, released, or changed by another hand
        return None


def _clock() -> float:
    """Seconds that also pass while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _boot() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""


def _start_of(pid: int) -> str:
    """The start time of a process; empty where there is none. Elsewhere than on Linux only whether it lives."""
    try:
        if Path("/proc/self/stat").exists():
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return "" if state == "Z" else fields[18]  # one that ended and nobody waited for
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except FileNotFoundError:
        return ""
    except PermissionError:
        pass
    return "alive"
