"""Learning curves with their intervals, for linear networks beside theory, and steps saved at equal metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis import curves, names, plots
from analysis.facts import Facts
from analysis.page import Html, element, figure, join, number, percent, table
from analysis.published import at
from analysis.sections import command, key, left_out, looks

SHRINK = 0.1  # lambda of the theory curve
Theory = list[tuple[str, Sequence[float], Sequence[float]]]


def learning(facts: Facts) -> Html:
    look = looks(facts)
    arms = [(look[arm], curve) for arm, curve in facts.curves.items()]
    if not arms:
        return element("p", "No learning curve: no arm has runs with a finite value at a step in common.")
    caption = f"Each arm's best configuration, mean over its seeds with the 95 % interval.{left_out(facts)}"
    if facts.study.workload == "lnn" and facts.metric == names.TRAIN_LOSS:
        theory, said = _theory(facts)
        picture = plots.linear_network(arms, theory, key(facts, "curves"))
        caption += f" Mean and interval are of logarithms. {said}"
    else:
        picture = plots.learning_curves(arms, str(facts.metric), key(facts, "curves"), facts.mode == "min")
    return join(figure(Html(picture), caption, command(facts, "curves", "--format", "csv")), _saved(facts))


def _theory(facts: Facts) -> tuple[Theory, str]:
    """The bounds of section 3.2; each through the arm that it is about where there is one."""
    spec = facts.winner.spec if facts.winner else {}
    depth, rate = at(spec, "model.depth"), at(spec, "optim.lr")
    slowest = max(facts.curves.values(), key=lambda curve: curve.mean[-1])
    if not isinstance(depth, int) or depth < 3 or not isinstance(rate, int | float) or slowest.steps[-1] < 1:
        return [], "No theory curve: it needs a depth of 3 or more, a learning rate and a step."
    slow_arm, fast_arm = _of(facts, "0:1") or slowest, _of(facts, f"0:{depth - 1}") or slowest
    steps = np.linspace(1, slowest.steps[-1], 200).tolist()
    anchor = (slow_arm.steps[-1] * rate, slow_arm.mean[-1])
    slow = [curves.sublinear(step * rate, depth, anchor) for step in steps]
    fast = [curves.linear(step * rate, fast_arm.mean[0], SHRINK) for step in steps]
    exponent = f"{(depth - 1) / (depth - 2):.3g}"
    drawn: Theory = [
        (f"theory for 0:1, 1/t^{exponent}", steps, slow),
        (f"theory for 0:{depth - 1}, L(0) exp(-2 (1-λ)² t)", steps, fast),
    ]
    return drawn, (
        "Grey: the lower bound of the shortcut 0:1, drawn through a last point as only its slope is the theorem's, and"
        f" the upper bound of 0:{depth - 1} with λ = {SHRINK}; t is step times learning rate (arXiv 2602.09009,"
        " theorems 3.2 and 3.3, appendix C.4)."
    )


def _of(facts: Facts, shortcuts: str) -> curves.Curve | None:
    """The curve of the arm with just these shortcuts."""
    arms = (arm for arm in facts.shown if arm.best and at(arm.best.spec, "topology.shortcuts") == shortcuts)
    return next((facts.curves[arm.arm] for arm in arms if arm.arm in facts.curves), None)


def _saved(facts: Facts) -> Html:
    """Steps saved at matched metric, an arm a row."""
    if not facts.steps:
        text = "Steps saved: not known without the curves of a cascaded network and of another with the same model."
        return element("p", text, class_="muted")
    look = looks(facts)
    rows = [
        [
            look[arm].label if arm in look else arm,
            f"{steps.base.arm}: {number(steps.mean.target)} at {steps.mean.baseline:,}",
            "never reached" if steps.mean.step is None else f"step {steps.mean.step:,.0f}",
            "never" if steps.mean.share is None else percent(steps.mean.share),
            ", ".join("never" if seed.share is None else percent(seed.share) for seed in steps.seeds),
        ]
        for arm, steps in facts.steps.items()
    ]
    text = f"Steps saved at matched {facts.metric}: where each mean curve first has the baseline's best value."
    heads = ["arm", "baseline's best", "reached", "steps saved", "each seed alone"]
    return join(element("p", text), table(heads, rows, [3]))
