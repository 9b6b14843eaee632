"""Brax's own models as XML trees, and the edits that turn them into goal-reaching tasks.

brax 0.14.2 ships ant.xml, humanoid.xml, reacher.xml and pusher.xml (Apache-2.0, The Brax Authors). They are read from
the installed package and changed in memory; no copy is kept here. What is changed follows JaxGCRL and scaling-crl
(Apache-2.0).
"""

from collections.abc import Iterable
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, fromstring

import brax

from envs.maze import cells

STILL = {"armature": "0", "damping": "0", "limited": "true", "range": "-100 100"}  # a joint that nothing brakes


def shipped(name: str) -> Element:
    """A model that brax ships, by its file's name."""
    return fromstring((Path(brax.__file__).parent / "envs" / "assets" / name).read_text())


def find(root: Element, path: str) -> Element:
    """The element at an XPath. LookupError: this brax ships another model than 0.14.2 does."""
    element = root.find(path)
    if element is None:
        raise LookupError(f"the {root.get('model')} model of this brax has no {path}: brax 0.14.2 has")
    return element


def geom(root: Element, name: str) -> Element:
    """The geom of a name."""
    return find(root, f".//geom[@name='{name}']")


def add_sliding(root: Element, name: str, position: str, axes: str, joint: dict[str, str]) -> Element:
    """A body at a position (m) that slides along the axes in `axes`, after all others; returned without geoms."""
    body = SubElement(find(root, "worldbody"), "body", {"name": name, "pos": position})
    directions = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
    for axis in axes:
        SubElement(body, "joint", {"name": f"{name}_{axis}", "type": "slide", "axis": directions[axis]} | joint)
    return body


def add_target(root: Element, z: float, radius: float) -> None:
    """The goal, as a ball of 1 kg that nothing touches; its two coordinates become the last of q."""
    ball = add_sliding(root, "target", f"0 0 {z}", "xy", STILL)
    SubElement(ball, "geom", name="target", type="sphere", size=str(radius), mass="1", contype="0", conaffinity="0")


def add_box(root: Element, name: str, center: Iterable[float], half: Iterable[float], contact: dict[str, str]) -> None:
    """A fixed box in the world: its center and half widths (m), and what touches it."""
    shape = {"type": "box", "pos": " ".join(map(str, center)), "size": " ".join(map(str, half))}
    SubElement(find(root, "worldbody"), "geom", {"name": name, "rgba": "0.7 0.5 0.3 1"} | shape | contact)


def add_walls(root: Element, layout: str, size: float) -> None:
    """A maze's walls: a box as wide as a cell and half as high on each cell of `layout` that is one."""
    for x, y in cells(layout, "#", size):
        half = (size / 2, size / 2, size / 4)
        add_box(root, f"wall_{x:g}_{y:g}", (x, y, size / 4), half, {"contype": "1", "conaffinity": "1"})


def set_pose(root: Element, q: str) -> None:
    """The pose that starts are drawn around."""
    find(root, "custom/numeric[@name='init_qpos']").set("data", q)


def set_gears(root: Element, gears: Iterable[float]) -> None:
    """How strong each motor is, in the model's order."""
    for motor, gear in zip(find(root, "actuator"), gears, strict=True):
        motor.set("gear", str(gear))
