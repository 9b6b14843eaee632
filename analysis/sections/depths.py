"""What happens at each depth: how states grow, what blocks return, where the gradient goes, and who changes little."""

from __future__ import annotations

from analysis import names, plots_depth
from analysis.facts import Facts
from analysis.page import Html, figure
from analysis.sections import command, key, left_out, looks

PANELS = {
    names.DEPTH_STATE_RMS: "root mean square of h_j",
    names.DEPTH_OUTPUT_RMS: "root mean square of what block j returned",
    names.DEPTH_GRADIENT_NORM: "gradient norm of block j",
    names.DEPTH_COSINE: "cosine of h_{j-1} and h_j",
}


def depths(facts: Facts) -> Html | None:
    """None where no run looked."""
    if not facts.depths:
        return None
    look = looks(facts)
    lines = [(look[arm], held.values) for arm, held in facts.depths.items()]
    picture = plots_depth.at_each_depth(PANELS, lines, key(facts, "depths"))
    steps = sorted({held.step for held in facts.depths.values()})
    when = f"step {steps[0]:,}" if len(steps) == 1 else f"steps {steps[0]:,} to {steps[-1]:,}"
    caption = (
        f"Each arm's best configuration when it last looked, at {when}; mean over its seeds. h_j is what leaves step j"
        f" and block j + 1 reads. A cosine near 1: that block hardly changes its input.{left_out(facts)}"
    )
    return figure(Html(picture), caption, command(facts, "depths", "--format", "csv"))
