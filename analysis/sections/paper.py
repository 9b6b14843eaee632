"""Beside the paper: the published table that the study names, and the paper's claims, with our numbers next to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis import names, published
from analysis.cells import COMPLETE, Cell
from analysis.facts import Facts
from analysis.page import NONE, Html, element, join, number, percent, table
from analysis.published import at
from analysis.store import QueryError


def paper(facts: Facts) -> Html | None:
    """None where the paper has nothing to set beside this study."""
    parts = []
    if facts.study.published:
        try:
            parts.append(_beside(facts, published.table(facts.study.published)))
        except QueryError as error:
            parts.append(element("p", str(error)))
    if facts.study.workload == "llm":
        parts.append(_claims(facts))
    return join(*parts) if parts else None


def _beside(facts: Facts, printed: published.Table) -> Html:
    rows = []
    for entry in printed.rows:
        cell = next((cell for cell in facts.ranked if entry.matches(cell.spec)), None)
        theirs = [value if isinstance(value, str) else f"{value:g}" for value in entry.values]
        rows.append([entry.label, *theirs, "not run" if cell is None else _ours(cell)])
    heads = ["", *(f"paper, {column}" for column in printed.columns), f"ours, {_model(facts)}"]
    text = f"{printed.title} ({printed.source}). Model, text and length differ: compare the order, not the level."
    return join(element("p", text), table(heads, rows, range(1, len(heads))))


def _ours(cell: Cell) -> str:
    if cell.summary.mean is None:
        return cell.status
    sd = f" ± {number(cell.summary.sd, 2)}" if cell.summary.sd is not None else ""
    return (
        f"{number(cell.summary.mean)}{sd} (n = {cell.summary.n}{'' if cell.status == COMPLETE else ', ' + cell.status})"
    )


def _model(facts: Facts) -> str:
    """What was trained, in a few words."""
    spec: Mapping[str, Any] = facts.ranked[0].spec if facts.ranked else {}
    held = {"width": "model.width", "depth": "model.depth", "steps": "train.steps"}
    known = [f"{name} {at(spec, path)}" for name, path in held.items() if at(spec, path) is not None]
    return ", ".join(known) or "this study"


def _claims(facts: Facts) -> Html:
    cell, learned = facts.challenger, facts.learned
    steps = facts.steps.get(cell.arm) if cell else None
    gain = facts.gap if facts.metric == names.VAL_PERPLEXITY and facts.gap and not facts.gap.decades else None
    ours = {
        "steps": NONE if steps is None else _saved(steps.mean.share),
        "gain": NONE if gain is None else number(-gain.mean),
        "pearson": NONE if learned is None else number(learned.agreement.pearson, 2),
        "strongest": NONE if learned is None else percent(learned.agreement.strongest),
    }
    rows = [[claim.title, claim.value, ours[key], claim.source] for key, claim in published.claims().items()]
    return table(["claim", "paper", f"ours ({cell.arm})" if cell else "ours", "source"], rows, [2])


def _saved(share: float | None) -> str:
    return "never reached" if share is None else percent(share, 1)
