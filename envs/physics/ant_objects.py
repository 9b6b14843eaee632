"""The ant with something to move: a ball that has to reach the goal, or a block that is in the way.

Sizes, masses and places as in JaxGCRL's ant_ball and ant_push (Apache-2.0).
"""

from xml.etree.ElementTree import Element, SubElement

import jax
import jax.numpy as jnp

from envs.functional import Physics
from envs.physics.ant import FEET, FRAMES, QD, TIMESTEP, AntEnv, Q, bare_ant, with_target
from envs.physics.draw import on_circle
from envs.physics.model import STILL, add_box, add_sliding, find, geom, set_pose

# Center x, y and half widths x, y (m) of the room's walls, each 4 m high:
#     AABCC
#     AA CC      the block M is between the start S and the goals above and beside it
#     D M E
#     D SFF
#     GGGFF
WALLS = {
    "A": (-4, 20, 8, 8),
    "B": (8, 24, 4, 4),
    "C": (20, 20, 8, 8),
    "D": (-8, 4, 4, 8),
    "E": (24, 8, 4, 4),
    "F": (20, -4, 8, 8),
    "G": (0, -8, 12, 4),
}


class AntBall(AntEnv):
    """The goal, 5 m away, is the ball's. S = 31: the ant's, and the ball's x, y."""

    def __init__(self) -> None:
        root = bare_ant()
        for name in ("torso_geom", *FEET):
            geom(root, name).set("conaffinity", "1")
        ball = add_sliding(root, "object", "0 0 0.5", "xy", STILL | {"armature": "1"})
        shape = {"type": "sphere", "size": "0.5", "conaffinity": "0"}
        SubElement(ball, "geom", shape | {"density": "1", "rgba": "1 1 1 0"})
        SubElement(ball, "geom", shape | {"density": "0.1", "rgba": "1 1 1 1", "contype": "1"})
        super().__init__(with_target(root, 2), TIMESTEP, FRAMES, "spring")

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        goal_key, ball_key = jax.random.split(key)
        goal = on_circle(goal_key, 5.0)
        # The ball's offset takes its sine from the goal's angle, as in the published code.
        ball = 0.2 * goal + jnp.stack([on_circle(ball_key, 1.0)[0], goal[1] / 5.0])
        return jnp.zeros(2), jnp.concatenate([ball, goal])

    def observe(self, physics: Physics) -> jax.Array:
        return _with_object(physics)


class AntPush(AntEnv):
    """A block of 0.2 g fills the middle of the room, on the way to the goal. S = 31: the ant's, and its x, y."""

    def __init__(self) -> None:
        root = bare_ant()
        find(root, "default/geom").attrib.update(density="40", solimp=".995 .995 .01")
        geom(root, "torso_geom").set("contype", "1")
        for name, (x, y, half_x, half_y) in WALLS.items():
            add_box(root, f"wall_{name}", (x, y, 2), (half_x, half_y, 2), {"contype": "0", "conaffinity": "1"})
        block = add_sliding(root, "object", "8 8 2", "xyz", STILL)
        SubElement(block, "geom", type="box", size="3.6 3.6 1.8", mass="0.0002", contype="1", conaffinity="1")
        set_pose(root, "0 0 0.75 1 0 0 0 0 1 0 -1 0 -1 0 1")
        _set_solver(find(root, "option"))
        super().__init__(with_target(root, 3), 0.01, 5, "mjx")

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        corner, offset = jax.random.split(key)
        goal = jax.random.permutation(corner, jnp.array([16.0, 8.0]))
        return jnp.zeros(2), goal + jax.random.uniform(offset, (2,), maxval=2.0)

    def observe(self, physics: Physics) -> jax.Array:
        return _with_object(physics)


def _with_object(physics: Physics) -> jax.Array:
    own, bodies = (physics.q[:Q], physics.qd[:QD]), physics.x.pos
    return jnp.concatenate([*own, bodies[-2, :2], bodies[-1, :2]])


def _set_solver(option: Element) -> None:
    option.attrib.update(solver="Newton", iterations="4", ls_iterations="8")
    SubElement(option, "flag", eulerdamp="disable")
