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

NOT_RUN = "not run"


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
    """Ours stand behind each column of a size that we ran; where we ran none of them, in columns at the end."""
    heads: list[str] = [""]
    rows: list[list[object]] = [[entry.label] for entry in printed.rows]

    def add(head: str, values: Sequence[object]) -> None:
        heads.append(head)
        for row, held in zip(rows, values, strict=True):
            row.append(held)

    sizes = {column.size for column in printed.columns if _of_size(facts, column.size)}
    for k, column in enumerate(printed.columns):
        head = ": ".join(filter(None, (column.size, column.head)))
        if printed.printed:
            add(f"paper, {head}", [_theirs(entry, k) for entry in printed.rows])
        if column.size in sizes:
            cells = _of_size(facts, column.size)
            add(f"ours, {head}", [_ours(entry, cells, column, printed) for entry in printed.rows])
    for column in () if sizes else _own_columns(printed):
        values = [_ours(entry, facts.ranked, column, printed) for entry in printed.rows]
        if column.metric is None or any(value not in (NONE, NOT_RUN) for value in values):
            add(f"ours: {column.head}" if column.head else f"ours, {_model(facts)}", values)
    explained = _explained(printed, None if sizes or not printed.columns else _model(facts))
    return join(element("p", explained), table(heads, rows, range(1, len(heads))))


def _own_columns(printed: published.Table) -> list[published.Column]:
    """What to show of models that the paper has not: each metric once."""
    several = {column.metric: column for column in printed.columns if column.metric}
    return [*several.values()] or [published.Column("", "")]


def _explained(printed: published.Table, other: str | None) -> str:
    """`other`: what ours are, where they are of no size that the paper has."""
    text = f"{printed.title} ({printed.source}). Ours is the best configuration that fits a row, under it its arm"
    text += "; of ANCRe the reading of the authors' code comes first, which keeps the inner residuals."
    if not printed.printed:
        text += " The paper prints this table as a picture: its text does not hold the numbers."
    elif any(not entry.values for entry in printed.rows):
        text += f" {NONE}: the paper prints these rows as a picture, its text does not hold the numbers."
    text += f" Ours has another size ({other}): compare the order, not the level." if other else ""
    return text + (f" In brackets: ours {GALORE}" if printed.galore_compat else "")


GALORE = (
    "as GaLore's code reckons it, which the paper's numbers follow: from the sum of the batches' mean losses over their"
    " number plus one, so it reads low, and the lower the fewer batches there are."
)


def _theirs(entry: published.Entry, column: int) -> str:
    if not entry.values:
        return NONE
    held = entry.values[column]
    return held if isinstance(held, str) else f"{held:g}"


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


def _of_size(facts: Facts, size: str) -> list[Cell]:
    return [cell for cell in facts.ranked if published.is_size(size, cell.spec)]


def _ours(
    entry: published.Entry, ranked: Sequence[Cell], column: published.Column, printed: published.Table
) -> str | Html:
    cells = sorted(
        (cell for cell in ranked if entry.matches(cell.spec)), key=lambda one: not published.preferred(one.spec)
    )
    if not cells:
        return NOT_RUN
    metric = entry.metric(column)
    if metric is not None and metric != cells[0].metric:
        found = [run.metrics[metric] for run in cells[0].counted if metric in run.metrics]
        return number(fmean(found) / column.unit) if found else NONE
    compat = [run.metrics.get(names.PERPLEXITY_GALORE_COMPAT) for run in cells[0].counted if printed.galore_compat]
    known = [value for value in compat if value is not None]
    brackets = f" [{number(fmean(known))}]" if known else ""
    return join(_measured(cells[0]), brackets, element("small", cells[0].arm))


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
    made = table(["claim", "paper", f"ours ({arms})" if arms else "ours", "source"], rows, [2])
    if facts.study.published:
        return made
    return join(
        element("p", "The paper's LLaMA runs are on C4, 60M to 1B: beside another model, compare no levels."), made
    )
