"""Where the time of a run went, for workloads that say: rollout, learning, evaluation, copying of weights."""

from __future__ import annotations

from analysis import names, plots_depth
from analysis.facts import Facts
from analysis.page import NONE, Html, figure, join, number, percent, table
from analysis.sections import command, key

HOUR = 3600.0  # seconds
SPEEDS = {
    names.ENV_STEPS_PER_S: "env steps/s",
    names.GRAD_STEPS_PER_S: "gradient steps/s",
    names.IMAGES_PER_S: "images/s",
}


def wall_time(facts: Facts) -> Html | None:
    """None where no run said."""
    cells = [arm.best for arm in facts.shown if arm.best and arm.best.cell in facts.seconds]
    rows = [(cell, facts.seconds[cell.cell]) for cell in cells]
    if not rows:
        return None
    bars = [(cell.arm, {_part(name): held for name, held in seconds.items()}) for cell, seconds in rows]
    caption = "How each arm's best configuration spent its time, sum over a run and mean over its seeds."
    drawn = figure(
        Html(plots_depth.time_split(bars, key(facts, "time"))), caption, command(facts, "runs", "--format", "csv")
    )
    speeds = [name for name in SPEEDS if any(name in run.metrics for cell, _ in rows for run in cell.counted)]
    parts = [name for name in names.TIMES if any(name in seconds for _, seconds in rows)]
    made = [
        [
            cell.arm,
            number(sum(seconds.values()) / HOUR, 3),
            *(percent(seconds.get(part, 0.0) / (sum(seconds.values()) or 1.0), 1) for part in parts),
            *(_speed([run.metrics.get(name) for run in cell.counted]) for name in speeds),
        ]
        for cell, seconds in rows
    ]
    heads = ["arm", "hours", *map(_part, parts), *(SPEEDS[name] for name in speeds)]
    return join(drawn, table(heads, made, range(1, len(heads))))


def _part(name: str) -> str:
    return name.rpartition("/")[2]


def _speed(values: list[float | None]) -> str:
    """The mean over seeds of the last value."""
    found = [value for value in values if value is not None]
    return number(sum(found) / len(found)) if found else NONE
