"""The parts of a page that are drawn: each arm's best configuration, as a report draws it, and what runs now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analysis import plots
from analysis.cells import Cell
from analysis.curves import Curve, average
from analysis.drawing import Series
from analysis.facts import Facts, gather
from analysis.names import RUNNING
from analysis.page import Html, element, join
from analysis.sections import key
from analysis.sections.learning import learning
from analysis.sections.topology import topology
from analysis.store import QueryError, Run, Store
from analysis.topology import allowed, stack

CURVES = 6  # running configurations that are drawn
MAPS = 3  # of them, with their topology


def figures(store: Store, study: str, home: str | None) -> dict[str, Html]:
    """Part -> its figures; empty where nothing was recorded yet.

    Args:
        home: named in the commands that stand under figures; None: the default one.
    """
    try:
        facts = replace(gather(store, study), home=home)
    except QueryError:
        return {}
    if facts.measures:
        return {}
    found = {"now": _now(store, facts)}
    if facts.curves:
        found["learning"] = join(element("h2", "Learning curves of the best"), learning(facts))
    if facts.topologies:
        found["topology"] = join(element("h2", "Learned topologies of the best"), topology(facts))
    return found


def _now(store: Store, facts: Facts) -> Html:
    """Curves and maps of the configurations that run, beside the best one so far."""
    active = {
        cell.cell: (cell, runs) for cell in facts.ranked if (runs := [r for r in cell.runs if r.state == RUNNING])
    }
    drawn = [_curves(store, facts, list(active.values())), _maps(store, facts, list(active.values()))]
    return join(*drawn)


Active = Sequence[tuple[Cell, Sequence[Run]]]


def _curves(store: Store, facts: Facts, active: Active) -> Html | None:
    metric = str(facts.metric)
    found: list[tuple[Series, Curve]] = []
    for cell, runs in active:
        curve = average(list(store.history(runs, metric).values()), facts.study.workload == "lnn")
        if curve and len(curve.steps) > 1:
            found.append((Series(f"{cell.arm} {cell.cell}", 1 + len(found)), curve))
    best = facts.winner
    if best and found and best.arm in facts.curves:
        found.insert(0, (Series(f"best so far: {best.arm} {best.cell}", 0, baseline=True), facts.curves[best.arm]))
    if not found:
        return None
    picture = plots.learning_curves(found[: CURVES + 1], metric, key(facts, "now"), facts.mode == "min")
    return _figure(picture, f"{metric} of what runs, mean over the seeds that run.{_left_out(active, CURVES)}")


def _maps(store: Store, facts: Facts, active: Active) -> Html | None:
    rows = []
    for cell, runs in active:
        try:
            snapshots = [next(iter(networks.values())) for run in runs if (networks := store.topology(run))]
            if snapshots and all(snapshot.get("p") for snapshot in snapshots):
                p, trained = stack(snapshots)
                if trained.any():
                    rows.append((f"{cell.arm} {cell.cell}", p, [run.seed for run in runs], allowed(snapshots[0])))
        except (QueryError, ValueError, KeyError):  # a damaged file hides no other
            continue
    if not rows:
        return None
    picture = plots.heat_maps(rows[:MAPS], key(facts, "now-maps"))
    return _figure(picture, f"The weight |p| of source i in step j by now, logarithmic.{_left_out(rows, MAPS)}")


def _left_out(found: Sequence[object], most: int) -> str:
    return f" Drawn are {most} of {len(found)} configurations." if len(found) > most else ""


def _figure(picture: str, caption: str) -> Html:
    shown = element("div", Html(picture), class_="scroll", role="img", aria_label=caption)
    return element("figure", shown, element("figcaption", caption))
