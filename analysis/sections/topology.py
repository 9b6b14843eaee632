"""The learned topology: agreement between seeds beside chance, maps of the coefficients, and where the weight goes."""

from __future__ import annotations

from analysis import plots
from analysis.facts import Facts
from analysis.page import Html, element, figure, join, number, p_value, percent, table
from analysis.queries import Topology
from analysis.sections import command, key

MAPS = 6  # networks that are drawn


def topology(facts: Facts) -> Html:
    several = any(len(networks) > 1 for networks in facts.topologies.values())
    found = [
        (f"{arm}, {one.network}" if several else arm, one)
        for arm, networks in facts.topologies.items()
        for one in networks
    ]
    if not found:
        return element("p", "No finished run recorded a topology.")
    explained = (
        "Pearson: correlation of the learned weights, mean over pairs of seeds. Strongest: share of steps j ≥ 2 whose"
        " strongest incoming shortcut is the same in both seeds of a pair. Chance and p: the sources of each step"
        " shuffled, in each seed alone. Last: the share of the incoming weight from h₀ (what enters the first block),"
        " from the previous state, and from those between."
    )
    of_outputs = [label for label, one in found if one.outputs]
    if of_outputs:
        explained += (
            f" Of {', '.join(of_outputs)}, the weights are those of outputs, not of states: source i is what came out"
            " of block i, and what a weight owes to the input is left out."
        )
    learned = [(label, one) for label, one in found if one.learned] or found
    shown = learned[:MAPS]
    some = f" Drawn are {len(shown)} of {len(found)} networks: fixed ones only where none is learned, {MAPS} at most."
    left = some if len(shown) < len(found) else ""
    made_by = command(facts, "topology", "--format", "json")
    return join(_table(found), element("p", explained, class_="muted"), _maps(facts, shown, left, made_by))


def _table(found: list[tuple[str, Topology]]) -> Html:
    rows = []
    for label, one in found:
        a, shares = one.agreement, one.profile.mean() or (None, None, None)
        pearson = [number(a.pearson, 3), number(a.pearson_chance, 3), p_value(a.pearson_p)]
        strongest = [percent(a.strongest), percent(a.strongest_chance), p_value(a.strongest_p)]
        rows.append([label, a.seeds, *pearson, *strongest, *(percent(share) for share in shares)])
    heads = ["arm", "seeds", "Pearson", "chance", "p", "strongest", "chance", "p", "h₀", "previous", "between"]
    return table(heads, rows, range(1, len(heads)))


def _maps(facts: Facts, shown: list[tuple[str, Topology]], left: str, made_by: str) -> Html:
    maps = plots.heat_maps([(label, one.p, one.seeds, one.allowed) for label, one in shown], key(facts, "maps"))
    caption = f"The weight |p| of source i in step j, logarithmic; shortcuts that are not allowed are blank.{left}"
    drawn = figure(Html(maps), caption, made_by)
    profiles = [(label, one.profile) for label, one in shown if one.profile.steps]
    if not profiles:
        return drawn
    bars = plots.depth_profiles(profiles, key(facts, "profile"))
    caption = "Where the incoming weight of each step comes from, mean over seeds."
    return join(drawn, figure(Html(bars), caption, made_by))
