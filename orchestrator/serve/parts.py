"""The parts of a page that need no drawing: how far a study is, what runs, what leads, what went wrong."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.cells import Cell
from analysis.names import DIVERGED, FAILED, FINISHED, RUNNING, STOPPED
from analysis.page import NONE, Html, element, join, number, table
from analysis.sections.results import leaderboard
from analysis.store import Study, default_home, redacted
from orchestrator.answers import configuration
from orchestrator.record.ledger import Record
from orchestrator.sweep.progress import SILENT, duration

SHOWN = 12  # configurations of the leaderboard, and running trials
TROUBLES = 25
LEFT = "left"
SEGMENTS = (FINISHED, STOPPED, DIVERGED, FAILED, RUNNING, LEFT)  # of the bar, in its order


def overview(rows: Sequence[Mapping[str, Any]]) -> Html:
    """All studies of a home, from their standings."""
    if not rows:
        return element("p", "No study was started here yet: ", element("code", "ancre start demo"))
    return element("ul", *map(_entry, rows), class_="studies")


def _entry(row: Mapping[str, Any]) -> Html:
    name = element("a", row["study"], href=address(row["study"]))
    if "fault" in row:
        return element("li", element("h2", name), element("p", redacted(row["fault"]), class_="note"))
    said = element("p", f"{ended(row)} of {row['trials']} trials ended, ", driven(row), class_="muted")
    return element("li", element("h2", name), bar(row), said)


def address(study: str) -> str:
    """The page of a study; its name holds letters, digits, _ and - only."""
    return f"/studies/{study}"


def ended(standing: Mapping[str, Any]) -> int:
    return sum(standing[state] for state in (FINISHED, STOPPED, DIVERGED))


def driven(standing: Mapping[str, Any]) -> str:
    return f"run by {standing['driver']}" if standing["driver"] else "not running now"


def bar(standing: Mapping[str, Any]) -> Html:
    """A segment for each state that trials are in, and a legend."""
    counts = [(state, count) for state in SEGMENTS if (count := _count(standing, state))]
    parts = [element("i", class_=state, style=f"flex-grow:{count}") for state, count in counts]
    legend = [element("span", element("i", class_=state), f"{count} {state}") for state, count in counts]
    whole = ", ".join(f"{count} {state}" for state, count in counts)
    drawn = element("div", *parts, class_="bar", role="img", aria_label=whole)
    return join(drawn, element("p", *legend, class_="legend"))


def _count(standing: Mapping[str, Any], state: str) -> int:
    """What is left does not include what runs, here."""
    count: int = standing[state] - (standing[RUNNING] if state == LEFT else 0)
    return count


def progress(standing: Mapping[str, Any], seconds: float | None, home: Path) -> Html:
    """How far a study is, how long it will take, and how to go on with it where nobody runs it."""
    done, total = ended(standing), standing["trials"]
    cards = [_card(f"{done} of {total}", "trials ended"), _card(str(standing[RUNNING]), "running now")]
    if seconds is not None:
        cards.append(_card(duration(seconds), "to go, about"))
    if trouble := standing[DIVERGED] + standing[FAILED]:
        cards.append(_card(str(trouble), "diverged or failed", "bad"))
    said = element("p", driven(standing)[0].upper() + driven(standing)[1:] + ". ", class_="muted")
    if not standing["driver"] and (standing[LEFT] or standing[FAILED]):
        again = shlex.join(["ancre", "resume", standing["study"], *_homed(home)])
        said = join(said, element("p", "What is left: ", element("code", again), class_="muted"))
    return join(bar(standing), element("div", *cards, class_="cards"), said)


def _card(big: str, label: str, mood: str = "") -> Html:
    return element("div", element("b", big), element("span", label), class_=f"card {mood}".strip())


def _homed(home: Path) -> list[str]:
    return [] if home == default_home() else ["--home", str(home)]


def running(records: Sequence[Record], metric: str | None, driver: str | None) -> Html | None:
    """The trials that run, with how far they are."""
    if not records:
        return None
    heads = ["trial", "arm", "configuration", "", "step", metric or ""]
    rows = [
        [
            element("code", record.id),
            record.arm,
            join(configuration(record.axes), _silence(record) if driver else element("small", "its driver is gone")),
            element("progress", value=str(record.step), max=str(max(record.steps, 1)), aria_label="steps done"),
            f"{record.step:,} of {record.steps:,}",
            number(record.metrics.get(metric or "")),
        ]
        for record in records[:SHOWN]
    ]
    more = len(records) - SHOWN
    rest = element("p", f"and {more} more", class_="muted") if more > 0 else None
    return join(element("h2", "Running now" if driver else "Was running"), table(heads, rows, [4, 5]), rest)


def _silence(record: Record) -> Html | None:
    """A hung worker says nothing."""
    silent = time.time() - record.heard
    return element("small", f"no report for {duration(silent // 60 * 60)}", class_="bad") if silent > SILENT else None


def leaders(study: Study, metric: str, mode: str, ranked: Sequence[Cell], home: Path) -> Html:
    """The best configurations, as `ancre query best` has them."""
    best = f"{'Lowest' if mode == 'min' else 'Highest'} {metric} first; mean, interval and sd are over n seeds."
    asked = ["ancre", "query", "best", study.name, "--top", str(SHOWN), *_homed(home)]
    said = element("p", best, class_="muted")
    command = element("p", "As a table: ", element("code", shlex.join(asked)), class_="muted")
    more = len(ranked) - SHOWN
    rest = element("p", f"and {more} more configurations", class_="muted") if more > 0 else None
    return join(element("h2", "Leaderboard"), said, leaderboard(ranked, SHOWN), rest, command)


def troubles(records: Iterable[Record]) -> Html | None:
    """What diverged or failed, the latest first."""
    unlucky = [record for record in records if record.state in (DIVERGED, FAILED)]
    if not unlucky:
        return None
    latest = sorted(unlucky, key=lambda record: record.ended, reverse=True)
    rows = [
        [
            element("code", record.id),
            record.arm,
            element("span", record.state, class_=f"tag {record.state}"),
            f"{record.step:,}",
            redacted(record.cause) or NONE,
        ]
        for record in latest[:TROUBLES]
    ]
    more = len(latest) - TROUBLES
    rest = element("p", f"and {more} more", class_="muted") if more > 0 else None
    made = table(["trial", "arm", "", "step", "why"], rows, [3])
    return join(element("h2", "What went wrong"), made, rest)
