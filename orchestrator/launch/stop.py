"""`ancre stop`: a study is asked to pause wherever it runs, and waited for.

A driver on this machine gets a signal; any other one reads the request from the home folder.
"""

import os
import platform
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from analysis.names import PAUSED, RUNNING
from analysis.store import default_home
from orchestrator.errors import InputError, did_you_mean
from orchestrator.record import lock, stop_request
from orchestrator.record.ledger import ENDED, LEDGER_FILE, History

LOOK_EVERY = 0.2  # seconds
SECOND_SIGNAL = 1.0  # seconds after the first, where it is to end now
PATIENCE = 10.0  # seconds before the user is told what is waited for


def stop(home: Path, study: str, now: bool) -> str:
    """Stop the driver of a study, if it has one; how the study stands then.

    Raises:
        InputError: there is no such study, or the request cannot be written.
    """
    folder = folder_of(home, study)
    driver = lock.owner(folder)
    if driver is None:
        return f"{study}: is not running; {_left(home, folder)}"
    _ask(folder, driver, now)
    _wait(folder, driver)
    return f"{study}: stopped; {_left(home, folder)}"


def folder_of(home: Path, study: str) -> Path:
    """The folder of a study that was started in `home`. Raises InputError: there is none."""
    known = sorted(path.parent.name for path in (home / "studies").glob(f"*/{lock.LOCK_FILE}"))
    if study not in known:
        raise InputError(f"no study {study!r} in {home}{did_you_mean(study, known)}")
    return home / "studies" / study


def _ask(folder: Path, driver: lock.Owner, now: bool) -> None:
    here = driver.host == platform.node()
    if here and _signal(driver):
        if now:
            time.sleep(SECOND_SIGNAL)
            _signal(driver)
        return
    try:
        stop_request.ask(folder, now)
    except OSError as error:
        raise InputError(f"{folder}: the request to stop cannot be written: {error.strerror}") from error


def _signal(driver: lock.Owner) -> bool:
    """Whether a driver on this machine got it, or is gone. Of another user's, only the file asks."""
    try:
        if driver.alive():
            os.kill(driver.pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def _wait(folder: Path, driver: lock.Owner) -> None:
    tell = time.monotonic() + PATIENCE
    while (owner := lock.owner(folder)) is not None and owner.pid == driver.pid and owner.host == driver.host:
        if time.monotonic() > tell:
            tell = float("inf")
            print(f"{driver} waits for running trials to report; --now would not", file=sys.stderr, flush=True)
        time.sleep(LOOK_EVERY)


def _left(home: Path, folder: Path) -> str:
    counts = Counter(record.state for record in History(folder).trials.values())
    total, done = counts.total(), sum(counts[state] for state in ENDED)
    paused = counts[PAUSED] + counts[RUNNING]  # a killed driver could not say that they are paused
    if total == done and (folder / LEDGER_FILE).exists():
        return f"all {total} trials have ended"
    elsewhere = "" if home.absolute() == default_home().absolute() else f" --home {home}"
    return (
        f"{done} of {total} trials have ended, {paused} are paused, {total - done - paused} have not run; "
        f"go on with: ancre resume {folder.name}{elsewhere}"
    )
