"""The images that runs drew: how good they are, with and without guidance, and a grid of them for each arm."""

from __future__ import annotations

from base64 import b64encode

from analysis import names, plots_depth
from analysis.facts import Drawn, Facts
from analysis.page import NONE, Html, element, figure, join, number, table
from analysis.sections import command, key, looks, sampling

SHOWN = ("fid", "kid", names.ACCURACY)  # metrics that are drawn over steps


def images(facts: Facts) -> Html | None:
    """None where no run drew any."""
    if not facts.drawn:
        return None
    pictures = [_picture(facts, arm, drawn) for arm, drawn in facts.drawn.items() if drawn.picture]
    explained = (
        f"Last values, mean ± standard deviation over seeds. {names.VAL}: drawn without guidance; {names.GUIDED}: with"
        " it. Distances are in the features of the network that the study names: they stand beside published ones only"
        " where that is the same network, and as many images were drawn."
    )
    grids = element("div", *pictures, class_="pictures") if pictures else None
    return join(_table(facts), element("p", explained, class_="muted"), _curves(facts), grids)


def _table(facts: Facts) -> Html:
    metrics = [metric for metric in names.DRAWN if any(metric in drawn.last for drawn in facts.drawn.values())]
    rows = [[metric, *(_last(drawn, metric) for drawn in facts.drawn.values())] for metric in metrics]
    return table(["", *facts.drawn], rows, range(1, len(facts.drawn) + 1))


def _last(drawn: Drawn, metric: str) -> str:
    if metric not in drawn.last:
        return NONE
    last = drawn.last[metric]
    return number(last.mean) + (f" ± {number(last.sd, 2)}" if last.sd is not None else "")


def _curves(facts: Facts) -> Html | None:
    """Of the metrics that the study does not rank by: those were drawn before."""
    look = looks(facts)
    panels = []
    for metric in (under + name for under in (names.VAL, names.GUIDED) for name in SHOWN):
        lines = [(look[arm], drawn.curves[metric]) for arm, drawn in facts.drawn.items() if metric in drawn.curves]
        if metric != facts.metric and any(len(curve.steps) > 1 for _, curve in lines):
            panels.append((metric, lines))
    if not panels:
        return None
    picture = Html(plots_depth.several_metrics(panels, key(facts, "images")))
    caption = "Other metrics of drawn images over the step, mean over seeds with the 95 % interval."
    asked = command(facts, "curves", "--metric", panels[0][0], "--format", "csv")
    return figure(picture, caption, asked)


def _picture(facts: Facts, arm: str, drawn: Drawn) -> Html:
    content = b64encode(drawn.picture or b"").decode()
    guided = ", drawn with guidance" if any(name.startswith(names.GUIDED) for name in drawn.last) else ""
    caption = f"{arm}, seed {drawn.run.seed}: images of the last evaluation, a row a class{guided}."
    shown = element("img", src=f"data:image/png;base64,{content}", alt=caption)
    more = element("span", "More: ", element("code", sampling(facts, drawn.run)), class_="command")
    return element("figure", shown, element("figcaption", element("span", caption), more))
