"""An episode as a file: the top view as PNG, or a page with the top view and, where there is one, the moving body."""

from __future__ import annotations

import io

from analysis.drawing import canvas, svg
from analysis.page import Html, document, element, number
from orchestrator.play.bodies import viewer
from orchestrator.play.episode import Episode
from orchestrator.play.top_view import draw, shape
from orchestrator.trials import Found
from orchestrator.workloads.crl import Spec

WIDTH = 6.0  # inches


def picture(played: Episode) -> bytes:
    """The top view as PNG, on white."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=shape(played, WIDTH), dpi=120, layout="constrained")
    draw(figure.subplots(), played, ink="black")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def page(found: Found[Spec], played: Episode) -> str:
    """One HTML file that opens offline."""
    steps = len(played.observations) - 1
    distance = float(played.env.judge(played.observations[-1])[0])
    how = ", ended early" if played.ended else ""
    said = (
        f"{steps} steps of {played.env.contract.control_dt:g} s{how}; {played.at_goal} of them within "
        f"{played.env.contract.radius:g} of the goal, {number(distance, 3)} away at the end."
    )
    origin = f"Trial {found.trial} of study {found.study}, after {played.step:,} environment steps."
    body = viewer(played)
    parts = [
        element("h1", f"An episode of {played.env.kind}"),
        element("p", origin, class_="muted"),
        element("p", said),
        body,
        element("h3", "From above"),
        element("figure", Html(_top(played)), style="max-width: 40rem"),
    ]
    return document(f"{found.trial} · ancre", *parts)


def _top(played: Episode) -> str:
    with canvas(*shape(played, WIDTH), "top") as figure:
        draw(figure.subplots(), played, ink="#010101")
        return svg(figure, "top")
