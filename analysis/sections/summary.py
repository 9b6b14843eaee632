"""In short: the few numbers that a reader takes away, and one sentence that compares the best arm with the baseline."""

from __future__ import annotations

from collections import Counter

from analysis import names
from analysis.cells import COMPLETE, Cell, Gap
from analysis.facts import Facts
from analysis.page import NONE, Html, element, interval, join, number, p_value, percent
from analysis.sections import spread
from analysis.topology import Agreement


def summary(facts: Facts) -> Html:
    cards = [_gain(facts), _steps(facts), *_agreement(facts), _trials(facts)]
    return join(element("div", *cards, class_="cards"), _verdict(facts))


def _card(big: str, label: str, small: str | None = None, mood: str = "") -> Html:
    note = element("small", small) if small else None
    return element("div", element("b", big), element("span", label), note, class_=f"card {mood}".strip())


def _gain(facts: Facts) -> Html | None:
    cell, base = facts.challenger, facts.baseline
    gap = facts.gap
    if cell is None or base is None or base.best is None or gap is None:
        best = facts.winner
        return _card(number(best.summary.mean), f"best {facts.metric}, by {best.arm}", spread(best)) if best else None
    small = f"{number(cell.summary.mean)} against {number(base.best.summary.mean)}"
    mood = "" if not gap.clear else "good" if gap.lower == (facts.mode == "min") else "bad"
    return _card(change(cell, base.best), f"{facts.metric}: {cell.arm} against {base.arm}", small, mood)


def change(cell: Cell, base: Cell) -> str:
    """One mean against another: in percent, or as a factor where it is ten or more."""
    new, old = cell.summary.mean, base.summary.mean
    if new is None or old is None:
        return NONE
    if new > 0 and old > 0 and not 0.1 < new / old < 10:
        return f"{number(max(new / old, old / new), 2)} times {'lower' if new < old else 'higher'}"
    share = (new - old) / abs(old) if old else 0.0
    return ("+" if share > 0 else "") + percent(share, 1)


def _steps(facts: Facts) -> Html | None:
    cell = facts.challenger
    steps = facts.steps.get(cell.arm) if cell else None
    if cell is None or steps is None or facts.baseline is None:
        return None
    share = steps.mean.share
    paper = "paper: 34.3 % on average" if facts.study.workload == "llm" else None
    label = f"steps saved by {cell.arm} at the final {facts.metric} of {facts.baseline.arm}"
    return _card("never" if share is None else percent(share), label, paper)


def _agreement(facts: Facts) -> list[Html]:
    """Of the best arm that learned its topology."""
    learned = facts.learned
    if learned is None:
        return []
    found, arm = learned.agreement, learned.cell.arm
    if found.pearson is None:
        return [_card(NONE, f"agreement of learned topologies ({arm})", _undefined(found))]
    chance = (
        f"{number(found.pearson_chance, 2)} by chance, p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{p_value(found.pearson_p)}"
    )
    cards = [_card(number(found.pearson, 2), f"correlation of learned weights, {found.seeds} seeds ({arm})", chance)]
    if found.strongest is not None:
        chance = _chance(percent(found.strongest_chance), found.strongest_p)
        cards.append(_card(percent(found.strongest), f"of steps agree on their strongest shortcut ({arm})", chance))
    return cards


def _chance(level: str, p: float | None) -> str:
    return f"{level} by chance, p = {p_value(p)}".replace("p = ", "p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")


def _undefined(found: Agreement) -> str:
    """Why there is no correlation between seeds."""
    return "one seed: nothing to compare" if found.seeds < 2 else "the weights are constant: no correlation"


def _trials(facts: Facts) -> Html:
    states = Counter(run.state for run in facts.study.runs)
    started, done = len(facts.study.runs), states.pop(names.FINISHED, 0)
    planned = facts.planned_trials or started
    rest = [f"{count} {state}" for state, count in sorted(states.items())]
    rest += [f"{planned - started} not started"] if planned > started else []
    return _card(f"{done} of {planned}", "trials finished", ", ".join(rest) or "nothing missing")


def _verdict(facts: Facts) -> Html:
    cell, base, gap = facts.challenger, facts.baseline, facts.gap
    if facts.winner is None:
        return _sentence("No run has a value to rank by, so there is no result yet.")
    if base is None:
        return _sentence("No arm has a cascaded topology, so there is no baseline to compare with.")
    if cell is None or base.best is None or gap is None:
        return _sentence(f"Not both {base.arm} and another arm have a value yet, so there is nothing to compare.")
    counts = {arm.arm: arm.configurations for arm in facts.arms}
    caution = (
        f"Each arm's best configuration ({counts[cell.arm]} tried of {cell.arm}, {counts[base.arm]} of {base.arm}),"
    )
    caution += " chosen and compared on the same runs."
    incomplete = [f"{one.arm}: {one.reason}" for one in (cell, base.best) if one.status != COMPLETE]
    caution += f" Not complete: {'; '.join(incomplete)}." if incomplete else ""
    return join(_sentence(_compared(facts, cell.arm, base.arm, gap)), element("p", caution, class_="muted"))


def _compared(facts: Facts, arm: str, base: str, gap: Gap) -> str:
    size = abs(gap.mean)
    unit = f"orders of magnitude {'below' if gap.lower else 'above'} {base}" if gap.decades else None
    said = f"{arm} ends {number(size, 3)} {unit or ('below ' if gap.lower else 'above ') + base} in {facts.metric}"
    if gap.low is None or gap.high is None:
        return f"{said}. With fewer than two common seeds there is no interval: take it as a hint."
    low, high = sorted((abs(gap.low), abs(gap.high))) if gap.clear else (gap.low, gap.high)
    bounds = f"95 % interval {interval(low, high)} over {gap.n} paired seeds"
    if gap.clear:
        return f"{said} ({bounds}): the difference is clear of zero."
    return f"{said} ({bounds} of the difference, which includes zero): these seeds do not tell the two apart."


def _sentence(text: str) -> Html:
    return element("p", text, class_="verdict")
