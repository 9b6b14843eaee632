"""One HTML file that says what a study found: it opens offline, has no script, and fetches nothing.

Each figure stands beside the command that gives its numbers. What is missing is said, never left out silently.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from analysis.facts import Facts, gather
from analysis.page import Html, document, element, join
from analysis.sections import again
from analysis.sections.depth import depth
from analysis.sections.depths import depths
from analysis.sections.divergence import divergence
from analysis.sections.environment import environment
from analysis.sections.images import images
from analysis.sections.importance import importance
from analysis.sections.learning import learning
from analysis.sections.memory import memory
from analysis.sections.paper import paper
from analysis.sections.plan import plan
from analysis.sections.results import results, troubles
from analysis.sections.summary import summary, verdicts
from analysis.sections.topology import topology
from analysis.sections.tuning import tuning
from analysis.sections.wall_time import wall_time
from analysis.store import QueryError, Store, open_store, redacted


class Report(NamedTuple):
    path: Path
    verdicts: tuple[str, ...]  # a sentence each


def report(
    studies: Sequence[str],
    out: Path,
    tracking_uri: str | None = None,
    metric: str | None = None,
    home: Path | None = None,
) -> Report:
    """Write the report of some studies to `out`, whole or not at all.

    Args:
        studies: their names.
        out: the HTML file; its folder is made where it does not exist.
        tracking_uri: default: MLFLOW_TRACKING_URI, else the sqlite store of the home folder.
        metric: to rank by; default: each study's own.
        home: named in the commands that the report shows; default: none, which suits the default home.

    Returns:
        `out`, and what it says first of each study.

    Raises:
        QueryError: no such store or study, or none named.
    """
    if not studies:
        raise QueryError("a report needs the name of at least one study")
    store = open_store(tracking_uri, home)
    place = None if home is None else str(home)
    facts = [
        replace(gather(store, name, metric), number=k, home=place)
        for k, name in enumerate(dict.fromkeys(studies), start=1)
    ]
    names = ", ".join(study.study.name for study in facts)
    text = document(f"{names} · ancre", _head(facts), *(_study(study, store) for study in facts), _foot(facts, store))
    _write(out, text)
    return Report(out, tuple(f"{study.study.name}: {said}" for study in facts for said in verdicts(study)))


def _head(facts: Sequence[Facts]) -> Html:
    title = element("h1", "Residual topology: what the runs say")
    links = [element("a", study.study.name, href=f"#study-{study.number}") for study in facts]
    return join(title, element("nav", *links) if len(facts) > 1 else None)


def _study(facts: Facts, store: Store) -> Html:
    study = facts.study
    ranked = f"{facts.metric} ({facts.mode})" if facts.metric else "nothing yet"
    hypothesis = study.hypothesis or "No hypothesis was recorded."
    parts = [
        element("h2", study.name, id=f"study-{facts.number}"),
        element("blockquote", element("p", hypothesis)),
        element("p", f"Workload {study.workload or 'unknown'}, ranked by {ranked}."),
        summary(facts),
        _part("Plan", plan(facts, store)),
        _part("Results", results(facts)),
        _part("Learning curves", None if facts.measures else learning(facts)),
        _part("Images", images(facts)),
        _part("Depth", depth(facts)),
        _part("Tuning", tuning(facts)),
        _part("What matters", importance(facts)),
        _part("Where training diverges", divergence(facts)),
        _part("Learned topology", None if facts.measures else topology(facts)),
        _part("At each depth", depths(facts)),
        _part("Beside the paper", paper(facts)),
        _part("Not complete", troubles(facts)),
        _part("Memory and speed", memory(facts)),
        _part("Where the time went", wall_time(facts)),
        _part("Where it ran", environment(facts)),
    ]
    return element("section", *parts)


def _part(title: str, content: Html | None) -> Html | None:
    return join(element("h3", title), content) if content is not None else None


def _foot(facts: Sequence[Facts], store: Store) -> Html:
    read = sum(study.study.read for study in facts)
    made = time.strftime("%Y-%m-%d %H:%M %Z")
    return element(
        "footer",
        element("p", f"{read} MLflow runs read from {redacted(store.backend.uri)}. Written {made}."),
        element("p", "Make it again: ", element("code", again(facts))),
    )


def _write(out: Path, text: str) -> None:
    """By a temporary file in the same folder, so that a reader never sees half a report."""
    out.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
