"""Figures as SVG: well formed, of their own ids, the same each time, and showing what they were given."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image

from analysis import drawing, plots
from analysis.curves import Curve
from analysis.topology import profile

STEPS = tuple(range(0, 101, 10))
NAMES = ["cascaded", '<b>&"bold"</b>', "$x^2$ \\frac", "emoji \N{GRINNING FACE}\nin two lines", "n" * 300]


def series(count: int) -> list[drawing.Series]:
    return [drawing.Series(NAMES[k % len(NAMES)] + str(k), k, baseline=k == 0) for k in range(count)]


def curve(level: float, interval: bool = True) -> Curve:
    mean = tuple(level * (1 + 10 * 0.9**step) for step in STEPS)
    low, high = tuple(0.9 * value for value in mean), tuple(1.1 * value for value in mean)
    return Curve(STEPS, mean, low if interval else None, high if interval else None, 3 if interval else 1)


def test_an_interval_below_zero_leaves_a_logarithmic_scale_as_it_is():
    """Two seeds can give one: means from 200 down to 40, no end below."""
    mean = (200.0, 100.0, 40.0)
    curves = [(drawing.Series("wide", 1), Curve((1, 2, 3), mean, (-900.0, -50.0, -10.0), (1300.0, 250.0, 90.0), 2))]
    text = plots.learning_curves(curves, "loss", "k")
    whole = text[: text.index("whole run")]
    assert re.findall(r">([\d.e-]+)</text>", whole)[-5:] == ["50", "100", "200", "500", "1000"]


def weights(seeds: int, depth: int) -> np.ndarray:
    return np.triu(np.random.default_rng(0).random((seeds, depth + 1, depth + 1)), 1)


def upper(depth: int) -> np.ndarray:
    return np.triu(np.ones((depth + 1, depth + 1), dtype=bool), 1)


def curves_figure(key: str) -> str:
    return plots.learning_curves([(one, curve(10 + one.style, one.style > 0)) for one in series(9)], "val/loss", key)


def linear_figure(key: str) -> str:
    theory = [("1/t^2", [1.0, 50.0, 100.0], [300.0, 20.0, 5.0]), ("outside", [1.0], [1e9])]
    return plots.linear_network([(one, curve(10)) for one in series(2)], theory, key)


def forest_figure(key: str) -> str:
    return plots.forest([(one, [1e-9, 1.0], (-1.0, 2.0) if one.style else None) for one in series(3)], "loss", key)


def maps_figure(key: str) -> str:
    rows = [("K = 6", weights(3, 6), (0, 1, 2), upper(6)), ("K = 1", weights(1, 1), (7,), upper(1))]
    return plots.heat_maps([*rows, ("zeros", np.zeros((2, 4, 4)), (0, 1), upper(3))], key)


def profile_figure(key: str) -> str:
    return plots.depth_profiles([(f"arm {k}", profile(weights(2, 5))) for k in range(5)], key)


def bracket_figure(key: str) -> str:
    return plots.brackets([(one, {1e-3: 3.0, 1e-2: 2.0}) for one in series(2)], "optim.lr", "loss", key)


def marginal_figure(key: str) -> str:
    maps = [(name, [0.01, 0.1], [1e-3, 3e-3], np.array([[1.0, np.nan], [2.0, 3.0]])) for name in NAMES]
    return plots.marginal_maps(maps, ("temperature", "lr"), "min", key)


FIGURES = [
    curves_figure,
    linear_figure,
    forest_figure,
    maps_figure,
    profile_figure,
    bracket_figure,
    marginal_figure,
]


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_svg_of_its_own(figure: Callable[[str], str]) -> None:
    text = figure("k1")
    root = ElementTree.fromstring(text)
    assert root.tag == "svg" and "viewBox" in root.attrib and "width" not in root.attrib
    assert "http" not in text and "<metadata" not in text
    assert text == figure("k1")
    ids = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
    assert ids and all(name.startswith("k1-") for name in ids)
    used = re.findall(r'(?:href="|url\()#([^")]*)', text)
    assert set(used) <= ids
    assert not re.search(r"#0[1-5]0[0-9]{3}", text), "a stand-in colour was left"


def test_labels_are_plain_text_however_they_look() -> None:
    said = [text.text for text in ElementTree.fromstring(curves_figure("k")).iter("text")]
    assert '<b>&"bold"</b>1' in said
    assert "$x^2$ \\frac2" in said
    assert "emoji \N{GRINNING FACE} in two lines3" in said
    assert any(text and text.startswith("nnn") and text.endswith("…") for text in said)


def test_maps_show_sources_down_and_steps_right_and_leave_blank_what_is_not_allowed() -> None:
    """K = 2, one seed: p_01 = 1, p_02 = 0.001, p_12 = 0.1; the source 1 of step 1 is no shortcut."""
    p = np.array([[[0, 1.0, 0.001], [0, 0, 0.1], [0, 0, 0]]])
    text = plots.heat_maps([("one", p, (0,), upper(2))], "k")
    first = re.search(r'base64,([^"]*)"', text)
    assert first is not None
    pixels = image.imread(io.BytesIO(base64.b64decode(first[1])), format="png")
    corners = pixels[[0, 0, -1, -1], [0, -1, 0, -1]]  # (0,1) (0,2) (1,1) (1,2)
    viridis = [(0.993, 0.906, 0.144), (0.267, 0.005, 0.329), (0.21, 0.72, 0.47)]  # 1, 0.001, about 2/3 of the way
    assert corners[0][:3] == pytest.approx(viridis[0], abs=0.02)
    assert corners[1][:3] == pytest.approx(viridis[1], abs=0.02)
    assert corners[2][3] == 0  # transparent
    assert corners[3][:3] == pytest.approx(viridis[2], abs=0.06)


def test_the_baseline_looks_the_same_and_no_two_arms_alike() -> None:
    looks = [(one.colour, str(one.dash)) for one in series(24)]
    assert len(set(looks)) == 24
    assert looks[0][0] == drawing.SERIES[0]
