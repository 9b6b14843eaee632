"""The moving body of an episode, in brax's own viewer, made to work offline.

brax's page loads everything from a network. Its scripts lie in the installed brax package (Apache-2.0), and three.js
lies in trimesh's (MIT, with its notice), which brax requires; `viewer.js` beside this file stands in for the controls
and the menu that neither ships. So nothing is downloaded, and nothing of others is kept in this repository.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
import zipfile
import zlib
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import numpy as np

from analysis.page import Html
from envs.arm.scene import xml
from envs.arm.spec import ArmSpec
from envs.base import JaxSpec
from orchestrator.errors import InputError
from orchestrator.play.episode import Episode

SCRIPTS = ("system.js", "animator.js", "selector.js", "viewer.js")  # of brax, in an order that they can stand in
HEIGHT = "26rem"
DISTANCE = 20.0  # of the camera, in radii of the goal
UNFELT = {"contype": "0", "conaffinity": "0", "mass": "0"}  # of a shape that is for the eye only
NOTICE = "brax's viewer: Copyright The Brax Authors, Apache License 2.0; three.js: MIT, see the notice in the script"


def viewer(played: Episode) -> Html | None:
    """The viewer with the episode in it, as a part of a page; None where there is no body to show."""
    text = _scene(played)
    if text is None:
        return None
    packed = base64.b64encode(zlib.compress(text.encode())).decode()
    scripts = "\n".join(_braxs_scripts())
    distance = DISTANCE * played.env.contract.radius
    own = files("orchestrator.play").joinpath("viewer.js").read_text(encoding="utf-8")
    return Html(
        f"<!-- {NOTICE} -->\n"
        f'<div style="position:relative;height:{HEIGHT}"><div id="brax-viewer" style="height:100%"></div></div>\n'
        f"<script>{_three()}</script>\n"
        f'<script type="module">\n{own}\n{scripts}\nshow(Viewer, "{packed}", {distance:g});\n</script>'
    )


def _scene(played: Episode) -> str | None:
    """The body's shapes and where its links are in each frame, as brax's JSON."""
    if isinstance(played.env, ArmSpec):
        system, states = _arm(played, played.env)
    elif isinstance(played.env, JaxSpec):
        system, states = _brax(played, played.env)
    else:
        return None
    from brax.io import json

    text: str = json.dumps(system, states)
    return text


def _brax(played: Episode, env: JaxSpec) -> tuple[Any, list[Any]]:
    body = env.environment()
    system = body.system.tree_replace({"opt.timestep": env.contract.control_dt})  # the viewer's time of a frame
    return system, [body.body(physics) for physics in played.physics]


def _arm(played: Episode, env: ArmSpec) -> tuple[Any, list[Any]]:
    """The arm's links as MuJoCo places them."""
    import mujoco
    from brax.base import State, Transform
    from brax.io import mjcf

    model = mujoco.MjModel.from_xml_string(_shown(env, played.goals[-1]))
    data = mujoco.MjData(model)
    with warnings.catch_warnings():  # brax says at every load that it is no longer maintained
        warnings.filterwarnings("ignore", message="Brax System", category=UserWarning)
        system = mjcf.load_model(model).tree_replace({"opt.timestep": env.contract.control_dt})
    states = []
    for row in played.physics:
        data.qpos[:] = row[: env.task.nq]
        mujoco.mj_kinematics(model, data)
        links = Transform(pos=np.array(data.xpos[1:]), rot=np.array(data.xquat[1:]))
        states.append(State(q=None, qd=None, x=links, xd=None, contact=None))
    return system, states


def _shown(env: ArmSpec, goal: np.ndarray) -> str:
    """The arm's model for the eye: its links, which have no shape of their own, as rods, and the goal as a ball."""
    root = ElementTree.fromstring(xml(env.task))
    rods = [(body, child.get("pos", "0 0 0")) for body in root.iterfind(".//body") for child in body.findall("body")]
    for body, end in rods:
        if any(float(part) for part in end.split()):
            ElementTree.SubElement(body, "geom", UNFELT, type="capsule", fromto=f"0 0 0 {end}", size="0.04")
    if not env.task.grasps:
        place = " ".join(map(str, goal))
        world = root.find("worldbody")
        assert world is not None
        ElementTree.SubElement(world, "geom", UNFELT, type="sphere", pos=place, size="0.03", rgba="0 0.57 0.42 1")
    return ElementTree.tostring(root, encoding="unicode")


def _three() -> str:
    """three.js, as a script that defines THREE: one line behind its notice; what follows is trimesh's own."""
    archive = files("trimesh").joinpath("resources/templates/viewer.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(archive)) as templates:
        page = templates.read("viewer.html.template").decode()
    found = re.search(r"/\*\*(?:(?!\*/).)*Three\.js Authors.*?\*/\n[^\n]+\n", page, re.DOTALL)
    if found is None:
        raise InputError(f"trimesh {version('trimesh')} has no three.js where it was in 5.2; --out FILE.png needs none")
    return found[0]


def _braxs_scripts() -> list[str]:
    """brax's modules as parts of one: without their imports and exports."""
    folder = files("brax").joinpath("visualizer/js")
    texts = (folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    return [re.sub(r"(?m)^(import|export)\b[^;]*;", "", text) for text in texts]
