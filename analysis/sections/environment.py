"""Where it ran: versions, commit and device of the runs; more than one of a thing is said."""

from __future__ import annotations

from collections import Counter

from analysis import names
from analysis.facts import Facts
from analysis.page import Html, table

RECORDED = {"versions": names.VERSIONS, "commit": names.COMMIT, "device": names.DEVICE}


def environment(facts: Facts) -> Html:
    rows = []
    for title, tag in RECORDED.items():
        seen = Counter(run.tags[tag] for run in facts.study.runs if tag in run.tags)
        said = "; ".join(f"{found} ({count} runs)" if len(seen) > 1 else found for found, count in seen.items())
        rows.append([title, said or "not recorded"])
    return table(["what", "recorded"], rows)
