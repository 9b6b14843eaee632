"""The MuJoCo model of a task, from `panda.xml`: without what the task lacks, with its bins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from envs.arm.task import Bins, Task

FINGERS = ("left_finger", "right_finger")
TIP = "0 0.005 0.07"  # of a finger, in its own frame: what the grasp has to bring to the cube
WALL = (0.005, 0.033)  # metres: half thickness and half height


def load(task: Task) -> Any:
    """The `mujoco.MjModel`."""
    import mujoco

    return mujoco.MjModel.from_xml_string(xml(task))


def xml(task: Task) -> str:
    root = ElementTree.parse(Path(__file__).with_name("panda.xml")).getroot()
    if task.cube is None:
        _drop(root, {"cube", "fingers", *FINGERS})
    if task.grasps:
        for finger in root.iterfind(".//body/site"):
            if finger.get("name") in ("left", "right"):
                finger.set("pos", TIP)
    if task.bins:
        # As published: a higher friction impedance, against slipping out of the hand.
        _find(root, "option").set("impratio", "10")
        for name, pos, size in walls(task.bins):
            ElementTree.SubElement(_find(root, "worldbody"), "geom", name=name, type="box", pos=pos, size=size)
            for other in ("cube", "hand", *FINGERS):
                ElementTree.SubElement(_find(root, "contact"), "pair", geom1=other, geom2=name)
    return ElementTree.tostring(root, encoding="unicode")


def walls(bins: Bins) -> Iterator[tuple[str, str, str]]:
    """Name, position and half sizes of the eight walls."""
    thick, high = WALL
    offset = bins.half - thick
    for side, x in (("a", -bins.center), ("b", bins.center)):
        for index, sign in enumerate((-1, 1)):
            yield f"{side}{index}", f"{x} {0.6 + sign * offset} {high}", f"{bins.half} {thick} {high}"
            yield f"{side}{index + 2}", f"{x + sign * offset} 0.6 {high}", f"{thick} {bins.half - 2 * thick} {high}"


def _drop(root: ElementTree.Element, names: set[str]) -> None:
    """Take out the elements of these names, and whatever refers to them."""
    for parent in root.iter():
        for child in list(parent):
            used = {child.get(key) for key in ("name", "geom1", "geom2", "joint", "joint1")}
            if child.tag != "default" and used & names:
                parent.remove(child)


def _find(root: ElementTree.Element, tag: str) -> ElementTree.Element:
    return next(root.iter(tag))
