"""What a study of contrastive RL would take on the device of those who published: their hours at each depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.published_depths import LAYERS_PER_BLOCK, Hours, hours, hours_source
from orchestrator.workloads.base import TrialSpec

if TYPE_CHECKING:
    from orchestrator.study.plan import Plan


def of_trial(trial: TrialSpec) -> Hours | None:
    """None where nothing like it was published."""
    return hours(trial.model_dump(mode="json"), trial.total_steps)


def lines(plan: Plan) -> Iterator[str]:
    """What the estimate leaves out, a line for each published task and depth, and their sum."""
    if plan.study.workload == "crl" and not any(side.probe for side in plan.sides):
        yield "(by FLOPs alone: no physics, no compilation, no waiting for small matrices, so it takes longer)"
    priced = [found for cell in plan.cells if (found := of_trial(cell.trial))]
    if not priced:
        return
    device, source = hours_source()
    steps = ", ".join(f"{count:,}" for count in sorted({cell.trial.total_steps for cell in plan.cells}))
    yield f"published hours of {steps} env steps with cascaded connections on one {device} ({source}):"
    seeds = len(plan.study.seeds)
    for one, cells in Counter(priced).items():
        blocks, trials = one.depth // LAYERS_PER_BLOCK, cells * seeds
        where = f"{one.task}, {blocks} block{'' if blocks == 1 else 's'} (depth {one.depth})"
        amount = f"{one.hours:,.1f} h{'' if one.inside else ' extrapolated'}"
        yield f"  {where}: {amount}, x {trials} = {one.hours * trials:,.0f} h"
    missing = len(plan.cells) - len(priced)
    rest = f"; of {missing} more configurations none are published" if missing else ""
    yield f"  in all {sum(one.hours for one in priced) * seeds:,.0f} published {device} hours{rest}"
