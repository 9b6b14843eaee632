"""Beside the paper: the published table that the study names, and the paper's claims, with our numbers next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from analysis import names, published, published_depths
from analysis.cells import COMPLETE, Cell
from analysis.facts import Facts
from analysis.page import NONE, Html, element, join, number, percent, table
from analysis.published import at
from analysis.published_depths import LAYERS_PER_BLOCK
from analysis.scaling import Scaling
from analysis.sections.summary import saved
from analysis.store import QueryError


def paper(facts: Facts) -> Html | None:
    """None where the paper has nothing to set beside this study."""
    parts = []
    if facts.study.published:
        try:
            parts.append(_beside(facts, published.table(facts.study.published)))
        except QueryError as error:
            parts.append(element("p", str(error)))
    parts += [part for one in facts.scalings if (part := _at_depths(facts, one))]
    if facts.study.workload == "llm":
        parts.append(_claims(facts))
    return join(*parts) if parts else None


def _beside(facts: Facts, printed: published.Table) -> Html:
    """Ours stand behind each column of a size that we ran; where we ran none of them, in a column at the end."""
    sizes = [column for column in printed.columns if _of_size(facts, column)]
    heads, rows = [""], [[entry.label] for entry in printed.rows]
    for k, column in enumerate(printed.columns):
        heads += [f"paper, {column}"] + ([f"ours, {column}"] if column in sizes else [])
        for row, entry in zip(rows, printed.rows, strict=True):
            theirs = entry.values[k]
            row += [theirs if isinstance(theirs, str) else f"{theirs:g}"]
            row += [_ours(entry, _of_size(facts, column))] if column in sizes else []
    if not sizes:
        heads.append(f"ours, {_model(facts)}")
        for row, entry in zip(rows, printed.rows, strict=True):
            row.append(_ours(entry, facts.ranked))
    text = f"{printed.title} ({printed.source}). Ours is the best configuration that fits a row."
    text += "" if sizes else " Model, text and length differ: compare the order, not the level."
    return join(element("p", text), table(heads, rows, range(1, len(heads))))


def _at_depths(facts: Facts, scaling: Scaling) -> Html | None:
    """Published values at each depth of a task, and ours in the same setting and of every other topology."""
    specs = [cell.spec for line in scaling.lines for cell in line.cells.values()]
    known = [row for row in published_depths.rows() if row.metric == facts.metric and any(map(row.matches, specs))]
    if not known:
        return None
    layers = {depth for row in known for depth in row.values} | {LAYERS_PER_BLOCK * blocks for blocks in scaling.blocks}
    depths = sorted(layers)
    rows = [
        [f"{row.task}: {row.title}", *(row.values.get(depth, NONE) for depth in depths), row.source] for row in known
    ]
    for line in scaling.lines:
        ours = (line.cells.get(depth // LAYERS_PER_BLOCK) for depth in depths)
        rows.append([f"ours, {line.label}", *(_measured(cell) if cell else NONE for cell in ours), "this study"])
    heads = ["", *(f"depth {depth} (blocks: {depth // LAYERS_PER_BLOCK})" for depth in depths), "source"]
    return table(heads, rows, range(1, len(heads) - 1))


def _of_size(facts: Facts, column: str) -> list[Cell]:
    return [cell for cell in facts.ranked if published.is_size(column, cell.spec)]


def _ours(entry: published.Entry, ranked: Sequence[Cell]) -> str:
    cell = next((cell for cell in ranked if entry.matches(cell.spec)), None)
    return "not run" if cell is None else _measured(cell)


def _measured(cell: Cell) -> str:
    if cell.summary.mean is None:
        return cell.status
    sd = f" ± {number(cell.summary.sd, 2)}" if cell.summary.sd is not None else ""
    status = "" if cell.status == COMPLETE else f", {cell.status}"
    return f"{number(cell.summary.mean)}{sd} (n = {cell.summary.n}{status})"


def _model(facts: Facts) -> str:
    """What was trained, in a few words."""
    spec: Mapping[str, Any] = facts.ranked[0].spec if facts.ranked else {}
    held = {"width": "model.width", "depth": "model.depth", "steps": "train.steps"}
    known = [f"{name} {at(spec, path)}" for name, path in held.items() if at(spec, path) is not None]
    return ", ".join(known) or "this study"


def _claims(facts: Facts) -> Html:
    """Ours are means over the models compared; agreement is the best arm's."""
    shares = [facts.steps[one.cell.arm].mean.share for one in facts.comparisons if one.cell.arm in facts.steps]
    gains = [
        one.base.summary.mean - one.cell.summary.mean
        for one in facts.comparisons
        if facts.metric == names.VAL_PERPLEXITY and one.base.summary.mean and one.cell.summary.mean
    ]
    learned = facts.learned.agreement if facts.learned else None
    ours = {
        "steps": saved(shares),
        "gain": number(fmean(gains)) if gains else NONE,
        "pearson": number(learned.pearson if learned else None, 2),
        "strongest": percent(learned.strongest if learned else None),
    }
    arms = ", ".join(dict.fromkeys(one.cell.arm for one in facts.comparisons))
    rows = [[claim.title, claim.value, ours[key], claim.source] for key, claim in published.claims().items()]
    return table(["claim", "paper", f"ours ({arms})" if arms else "ours", "source"], rows, [2])
