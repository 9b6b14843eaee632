"""In short: the few numbers that a reader takes away, and a sentence that compares the best with the baseline."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from analysis import names
from analysis.cells import COMPLETE, Cell, Comparison, Gap, gap
from analysis.facts import Facts
from analysis.page import NONE, Html, element, interval, join, number, p_value, percent
from analysis.sections import spread
from analysis.tasks import task_names
from analysis.topology import Agreement

CARDS = 3  # models that are compared in a card each
LISTED = 8  # arms in the order of a study without a baseline


def summary(facts: Facts) -> Html:
    cards = [*_gains(facts), _steps(facts), *_agreement(facts), _trials(facts)]
    said = [element("p", sentence, class_="verdict") for sentence in verdicts(facts)]
    return join(element("div", *cards, class_="cards"), *said, *_others(facts), _caution(facts))


def _card(big: str, label: str, small: str | None = None, mood: str = "") -> Html:
    note = element("small", small) if small else None
    return element("div", element("b", big), element("span", label), note, class_=f"card {mood}".strip())


def _gains(facts: Facts) -> list[Html]:
    best = facts.winner
    if best and not facts.comparisons:
        return [_card(number(best.summary.mean), f"best {facts.metric}, by {best.arm}", spread(best))]
    return [_gain(facts, one) for one in facts.comparisons[:CARDS]]


def _gain(facts: Facts, one: Comparison) -> Html:
    small = f"{number(one.cell.summary.mean)} against {number(one.base.summary.mean)}"
    mood = "" if not one.gap.clear else "good" if _better(facts, one) else "bad"
    label = f"{facts.metric}: {one.cell.arm} against {one.base.arm}{_model(facts, one)}"
    return _card(change(one.cell, one.base), label, small, mood)


def _better(facts: Facts, one: Comparison) -> bool:
    return one.gap.lower == (facts.mode == "min")


def _model(facts: Facts, one: Comparison) -> str:
    """Which of several models a comparison is of."""
    name = task_names([each.model for each in facts.comparisons])[facts.comparisons.index(one)]
    return f", {name}" if name else ""


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
    """Of the compared arms, mean over models."""
    arms = [one.cell.arm for one in facts.comparisons if one.cell.arm in facts.steps]
    shares = [facts.steps[arm].mean.share for arm in arms]
    if not arms or not shares:
        return None
    paper = "paper: 34.3 % on average" if facts.study.workload == "llm" else None
    if len(arms) == 1:
        label = f"steps saved by {arms[0]} at the best {facts.metric} of {facts.steps[arms[0]].base.arm}"
    else:
        label = f"steps saved at the baseline's best {facts.metric}, mean of {len(arms)} models"
    return _card(saved(shares), label, paper)


def saved(shares: list[float | None]) -> str:
    """The mean share of steps saved, which there is only where every model's target was reached."""
    reached = [share for share in shares if share is not None]
    if len(reached) < len(shares):
        return "never" if not reached else f"{len(reached)} of {len(shares)} reached it"
    return percent(fmean(reached)) if reached else NONE


def _agreement(facts: Facts) -> list[Html]:
    """Of the best arm that learned its topology."""
    learned = facts.learned
    if learned is None:
        return []
    found, arm = learned.agreement, learned.cell.arm
    if len(facts.topologies[arm]) > 1:
        arm = f"{arm}, {learned.network}"
    if found.pearson is None:
        return [_card(NONE, f"agreement of learned topologies ({arm})", _undefined(found))]
    chance = _chance(number(found.pearson_chance, 3), found.pearson_p)
    cards = [_card(number(found.pearson, 3), f"correlation of learned weights, {found.seeds} seeds ({arm})", chance)]
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


def verdicts(facts: Facts) -> list[str]:
    """What the study found, a sentence for each model: its best arm against the baseline, or all arms in order."""
    if facts.winner is None:
        return ["No run has a value to rank by, so there is no result yet."]
    if facts.comparisons:
        return [_compared(facts, one) for one in facts.comparisons]
    best = [arm.best for arm in facts.arms if arm.best]
    order = [f"{cell.arm} ({number(cell.summary.mean)})" for cell in facts.ranked if cell in best]
    more = f" and {len(order) - LISTED} more" if len(order) > LISTED else ""
    return [f"By {facts.metric}, best first: {', '.join(order[:LISTED])}{more}. There is no cascaded arm to beat."]


def _others(facts: Facts) -> list[Html]:
    """The arms that the verdict does not speak of, against the same baseline: only where there is one model."""
    if len(facts.comparisons) != 1:
        return []
    (one,) = facts.comparisons
    rest = [arm.best for arm in facts.arms if arm.best and arm.arm not in (one.cell.arm, one.base.arm)]
    said = [f"{cell.arm} {_judged(facts, between)}" for cell in rest if (between := gap(cell, one.base))]
    return [element("p", f"The others, against {one.base.arm}: {'; '.join(said)}.", class_="muted")] if said else []


def _judged(facts: Facts, between: Gap) -> str:
    amount = f"{number(between.mean, 3)}{' orders of magnitude' if between.decades else ''}"
    signed = amount if between.lower else f"+{amount}"
    if not between.clear:
        return f"{signed} ({'no interval' if between.low is None else 'not told apart'})"
    return f"{signed} ({'better' if between.lower == (facts.mode == 'min') else 'worse'})"


def _compared(facts: Facts, one: Comparison) -> str:
    between, base = one.gap, one.base.arm
    side = "below" if between.lower else "above"
    amount = f"{number(abs(between.mean), 3)}{' orders of magnitude' if between.decades else ''}"
    said = f"{one.cell.arm} ends {amount} {side} {base} in {facts.metric}{_model(facts, one)}"
    if between.low is None or between.high is None:
        return f"{said}. With fewer than two common seeds there is no interval: take it as a hint."
    bounds = interval(between.low, between.high)
    if between.clear:
        judged = "better" if _better(facts, one) else "worse"
        return (
            f"{said} (95 % interval of the difference {bounds} over {between.n} paired seeds): {judged}, and clear of"
            " zero."
        )
    return (
        f"{said}, but the 95 % interval of the difference, {bounds} over {between.n} paired seeds, includes zero:"
        " these seeds do not tell the two apart."
    )


def _caution(facts: Facts) -> Html | None:
    """What qualifies the comparison."""
    if not facts.comparisons:
        return None
    pairs = [cell for one in facts.comparisons for cell in (one.cell, one.base)]
    counts = {arm.arm: arm.configurations for arm in facts.arms}
    tried = ", ".join(f"{counts[arm]} of {arm}" for arm in dict.fromkeys(cell.arm for cell in pairs))
    incomplete = "; ".join(f"{cell.arm}: {cell.reason}" for cell in pairs if cell.status != COMPLETE)
    text = f"Each arm's best configuration (tried: {tried}), chosen and compared on the same runs."
    return element("p", text + (f" Not complete: {incomplete}." if incomplete else ""), class_="muted")
