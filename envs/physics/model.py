"""Brax's own models as XML trees, and the edits that turn them into goal-reaching tasks.

brax 0.14.2 ships ant.xml, humanoid.xml, reacher.xml and pusher.xml (Apache-2.0, The Brax Authors). They are read from
the installed package and changed in memory; no copy is kept here. The edits are those of JaxGCRL and scaling-crl
(Apache-2.0), restated.
"""

from collections.abc import Iterable
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, fromstring

import brax


def shipped(name: str) -> Element:
    """A model that brax ships, by its file's name."""
    return fromstring((Path(brax.__file__).parent / "envs" / "assets" / name).read_text())


def find(root: Element, path: str) -> Element:
    """The element at an XPath that the model is known to have."""
    element = root.find(path)
    if element is None:
        raise LookupError(f"the model {root.get('model')!r} of this brax has no {path}: brax 0.14.2 has")
    return element


def add_slider(root: Element, name: str, axes: Iterable[str], z: float, joint: dict[str, str]) -> Element:
    """A body at height z (m) that slides along `axes`, last in the world; returns it, to be given its geoms."""
    body = SubElement(find(root, "worldbody"), "body", name=name, pos=f"0 0 {z}")
    directions = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}
    for axis in axes:
        SubElement(body, "joint", {"name": f"{name}_{axis}", "type": "slide", "axis": directions[axis]} | joint)
    return body


def add_target(root: Element, z: float, radius: float) -> None:
    """The goal, as a ball of 1 kg that nothing touches; its two coordinates are the last of q."""
    still = {"armature": "0", "damping": "0", "stiffness": "0", "limited": "true", "range": "-100 100"}
    ball = add_slider(root, "target", "xy", z, still)
    SubElement(ball, "geom", name="target", type="sphere", size=str(radius), mass="1", contype="0", conaffinity="0")


def add_box(root: Element, name: str, center: Iterable[float], half: Iterable[float], **contact: str) -> None:
    """A fixed box in the world (m)."""
    where = {"pos": " ".join(map(str, center)), "size": " ".join(map(str, half))}
    SubElement(
        find(root, "worldbody"), "geom", {"name": name, "type": "box", "rgba": "0.7 0.5 0.3 1"} | where | contact
    )


def start_pose(root: Element, q: str) -> None:
    """The pose (q) that starts are drawn around."""
    find(root, "custom/numeric[@name='init_qpos']").set("data", q)
