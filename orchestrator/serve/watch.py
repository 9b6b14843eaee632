"""A study that is looked at: the parts of its page, made anew when what they show has changed, each with a version.

A look waits neither for a drawing nor for word of a driver on another machine, and what takes long is done less often,
so that watching costs a sweep's machine little.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from analysis import cells
from analysis.names import HYPOTHESIS, METRIC, PAUSED, RUNNING
from analysis.page import Html, element
from analysis.store import QueryError, Store, default_home, redacted
from orchestrator.errors import InputError
from orchestrator.record import lock
from orchestrator.record.ledger import LEDGER_FILE, PLANNED, Record
from orchestrator.record.status import standing
from orchestrator.serve import parts
from orchestrator.serve.aside import SHARE, Aside
from orchestrator.serve.figures import figures
from orchestrator.serve.folder import StudyFolder
from orchestrator.sweep.progress import seconds_left

EVERY = 0.5  # seconds between two looks, of all pages together
FIGURES_EVERY = 5.0
DRIVER_EVERY = 3.0
FIRST_WAIT = 0.5  # for the driver's name, where a page is opened
PROGRESS = "progress"
PARTS = (PROGRESS, "running", "now", "leaders", "troubles", "learning", "topology")  # of a page, in its order


class Part(NamedTuple):
    """A piece of a page; equal pieces have equal versions."""

    version: str
    html: Html


def part(html: Html) -> Part:
    return Part(blake2b(html.encode(), digest_size=6).hexdigest(), html)


@dataclass(frozen=True)
class Pools:
    """The threads that all studies share."""

    draw: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "draw"))  # matplotlib's settings are global
    ask: Executor = field(default_factory=lambda: ThreadPoolExecutor(8, "ask"))


class Watched:
    """One study under a home."""

    def __init__(self, folder: Path, home: Path, pools: Pools) -> None:
        self._folder, self._home = folder, home
        self._driver = Aside(self._find_driver, pools.ask, DRIVER_EVERY, None)
        self._figures = Aside(self._draw, pools.draw, FIGURES_EVERY, dict[str, Html]())
        self._study: StudyFolder | None = None
        self._seen = (0, 0)  # the ledger's inode and the study's version, as of the last look
        self._drawn = (0, 0)  # as of the last drawing
        self._led = (0, 0)  # as of the last leaderboard
        self._lead_due = 0.0
        self._leaders = Html("")
        self._looked = 0.0
        self._one = threading.Lock()  # look at a time

    # --- what there is to say -------------------------------------------------------------------------------------

    def standing(self) -> dict[str, Any]:
        """As `ancre status` has it; where the ledger cannot be read, a row with its fault."""
        try:
            study = self._look()
        except InputError as error:
            return {"study": self._folder.name, "fault": str(error)}
        return standing(self._folder.name, study.trials, self._driver.ask(FIRST_WAIT))

    def parts(self) -> dict[str, Part]:
        """All parts by now."""
        try:
            study = self._look()
        except InputError as error:
            fault = element("p", redacted(str(error)), class_="note")
            return {name: part(fault if name == PROGRESS else Html("")) for name in PARTS}
        driver = self._driver.ask(FIRST_WAIT)
        trials = study.trials
        active = [record for record in trials if record.state == RUNNING]
        made = {
            PROGRESS: parts.progress(
                standing(self._folder.name, trials, driver), self._seconds_left(study, trials, driver), self._home
            ),
            "running": parts.running(active, study.ledger.study.get(METRIC), driver),
            "leaders": self._lead(study),
            "troubles": parts.troubles(trials),
            **self._figures.ask(),
        }
        return {name: part(made.get(name) or Html("")) for name in PARTS}

    @property
    def hypothesis(self) -> str:
        return self._study.ledger.study.get(HYPOTHESIS, "") if self._study else ""

    # --- finding it out -------------------------------------------------------------------------------------------

    def _look(self) -> StudyFolder:
        with self._one:
            if self._study is None or time.monotonic() > self._looked + EVERY:
                self._study = self._updated()
                self._looked = time.monotonic()
            return self._study

    def _updated(self) -> StudyFolder:
        ledger = self._folder / LEDGER_FILE
        try:
            inode = ledger.stat().st_ino
        except OSError as error:
            raise InputError(f"{ledger}: {error.strerror}") from error
        if self._study is None or inode != self._seen[0]:  # another file is read from its beginning
            self._study = None
            study = StudyFolder(self._folder)
        else:
            study = self._study
        study.update()
        self._seen = inode, study.version
        return study

    def _find_driver(self) -> str | None:
        owner = lock.owner(self._folder)
        return str(owner) if owner else None

    def _seconds_left(self, study: StudyFolder, trials: list[Record], driver: str | None) -> float | None:
        if driver is None:
            return None
        left = sum(record.state in (PLANNED, PAUSED) for record in trials)
        return seconds_left(trials, left, study.ledger.before, time.time() - study.ledger.began)

    def _lead(self, study: StudyFolder) -> Html:
        """The leaderboard, ranked as by `ancre query best`."""
        if self._led != self._seen and time.monotonic() >= self._lead_due:
            began = time.monotonic()
            self._led = self._seen
            self._leaders = self._ranked(Store(study))
            self._lead_due = time.monotonic() + (time.monotonic() - began) / SHARE
        return self._leaders

    def _ranked(self, store: Store) -> Html:
        try:
            study = store.study(self._folder.name)
            metric = cells.metric_of(study)
            mode = cells.mode_of(study, None)
        except QueryError as error:
            return element("p", str(error), class_="muted")
        return parts.leaders(study, metric, mode, cells.rank(store, study, metric, mode), self._home)

    def _draw(self) -> dict[str, Html]:
        study, seen = self._study, self._seen
        if study is None or seen == self._drawn:
            return self._figures.last
        self._drawn = seen
        elsewhere = None if self._home == default_home() else str(self._home)
        return figures(Store(study), self._folder.name, elsewhere)
