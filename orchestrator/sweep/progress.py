"""What a sweep shows while it runs: what is running, how far it is, what is left.

On a terminal a display that renews itself; elsewhere a line every ten seconds. A trial that fails or diverges gets a
line of its own in both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from analysis.names import DIVERGED, FAILED, RUNNING, STOPPED
from orchestrator.record import log

if TYPE_CHECKING:
    from rich.console import RenderableType

    from orchestrator.record.ledger import Record
    from orchestrator.sweep.sweep import Sweep

WIDTH = 80  # columns
LINE_EVERY = 10.0  # seconds, where there is no terminal
SILENT = 600.0  # seconds without a word from a trial before that is worth a line
SHOWN = 8  # running trials


def duration(seconds: float) -> str:
    """ "2 h 05 min", "3 min 07 s", "12 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def seconds_left(members: Collection[Record], left: int, before: int, elapsed: float) -> float | None:
    """Until all trials have ended; None where no step was done yet.

    Args:
        members: the trials that are known.
        left: how many are still to start.
        before: steps that were done `elapsed` seconds ago.
    """
    done = sum(record.step for record in members) - before
    if done <= 0:
        return None
    planned = sum(record.steps for record in members)
    ahead = planned / len(members) * left
    ahead += sum(record.steps - record.step for record in members if record.state == RUNNING)
    return elapsed / done * ahead


class Progress:
    """Follows one attempt at a study."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        self._sweep, self._folder = sweep, folder
        self._metric = sweep.study.metric
        self._began = time.monotonic()
        self._steps = sum(record.step for record in sweep.members)  # done before this attempt
        self._told = 0  # failed and diverged trials that had their line
        self._silent: set[str] = set()  # trials that had their line for that
        self._next_line = self._began + LINE_EVERY

    # --- what there is to say ------------------------------------------------------------------------------------

    def headline(self) -> str:
        """Done and left, and how long it will take."""
        counts = self._sweep.counts
        total = self._sweep.total
        parts = [f"{self._sweep.done}/{total} done", f"{counts[RUNNING]} running"]
        parts.append(f"{total - self._sweep.done - counts[RUNNING]} left")
        parts += [f"{counts[state]} {state}" for state in (STOPPED, DIVERGED, FAILED) if counts[state]]
        elapsed = time.monotonic() - self._began
        if (seconds := seconds_left(self._sweep.members, self._sweep.left, self._steps, elapsed)) is not None:
            parts.append(f"about {duration(seconds)} to go")
        return f"{self._sweep.study.name}: " + ", ".join(parts)

    def running(self) -> Iterator[str]:
        """One line for each running trial."""
        for record in [record for record in self._sweep.members if record.state == RUNNING]:
            value = record.metrics.get(self._metric)
            shown = "" if value is None else f"  {self._metric} {value:.4g}"
            yield f"{record.arm} {record.id}  step {record.step}/{record.steps}{shown}"

    # --- saying it -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Called many times a second."""
        while self._told < len(self._sweep.unlucky):
            record = self._sweep.unlucky[self._told]
            self._told += 1
            self.say(f"{record.state}: {record.arm} {record.id} at step {record.step}: {record.cause}")
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY
            self._watch()
            self._line()

    def _watch(self) -> None:
        """A hung worker says nothing; somebody has to say so."""
        for record in self._sweep.members:
            silent = time.time() - record.heard
            if record.state == RUNNING and silent > SILENT and record.id not in self._silent:
                self._silent.add(record.id)
                self.say(f"no report for {duration(silent)}: {record.arm} {record.id} after step {record.step}")

    def _line(self) -> None:
        lines = list(islice(self.running(), 2))
        self.say(" | ".join([self.headline(), *lines]))

    def say(self, line: str) -> None:
        """To the user, and to the driver's log in the study's folder."""
        print(line, file=sys.stderr, flush=True)
        log.note(self._folder, line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves what it said."""


class LiveProgress(Progress):
    """The same on a terminal, renewed in place."""

    def __init__(self, sweep: Sweep, folder: Path) -> None:
        super().__init__(sweep, folder)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False, markup=False)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True)

    def _line(self) -> None:
        """The display says it already."""

    def say(self, line: str) -> None:
        self._console.print(line)
        log.note(self._folder, line)

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        lines = [f"  {line}" for line in self.running()]
        if len(lines) > SHOWN:
            lines[SHOWN:] = [f"  and {len(lines) - SHOWN} more"]
        width = min(WIDTH, self._console.width)
        filled = width * self._sweep.done // max(1, self._sweep.total)
        bar = Text.assemble(("━" * filled, "green"), ("━" * (width - filled), "dim"))
        return Group(bar, *(Text(line, no_wrap=True, overflow="ellipsis") for line in (self.headline(), *lines)))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
