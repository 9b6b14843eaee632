"""Where training diverges: a heat map for each axis."""

from __future__ import annotations

from analysis.divergence import Place, atlas
from analysis.facts import Facts
from analysis.page import NONE, Html, figure, join, table
from analysis.plots_tuning import divergence_maps
from analysis.sections import command, key

ARMS = 20  # drawn; those that diverge most


def divergence(facts: Facts) -> Html | None:
    """None where nothing diverged."""
    places = atlas(facts.study.runs, facts.metric)
    totals = sorted((one for one in places if one.axis is None), key=lambda one: (-one.share, one.arm))
    lost = [one for one in totals if one.diverged]
    if not lost:
        return None
    rows = [[one.arm, one.trials, one.diverged, one.first_step, one.metric] for one in lost[:ARMS]]
    rows = [[NONE if held is None else held for held in row] for row in rows]
    made = table(["arm", "trials", "diverged", "first at step", "metric"], rows, [1, 2, 3])
    arms = sorted(one.arm for one in totals[:ARMS])
    drawn = [one for one in places if one.axis is not None and one.arm in arms]
    maps = [_map(axis, [one for one in drawn if one.axis == axis]) for axis in dict.fromkeys(one.axis for one in drawn)]
    if not maps:
        return made
    more = f" Of {len(totals)} arms, the {ARMS} that diverge most." if len(totals) > ARMS else ""
    caption = f"Trials that diverged, of those at each value of an axis.{more}"
    picture = Html(divergence_maps(maps, key(facts, "divergence")))
    return join(made, figure(picture, caption, command(facts, "diverged")))


def _map(axis: str | None, places: list[Place]) -> tuple[str, list[str], list[str], list[Place]]:
    arms = list(dict.fromkeys(one.arm for one in places))
    return str(axis), list(dict.fromkeys(one.value for one in places)), arms, places
