"""Brax's ant on its way to a goal: its start, its observation, and when it has fallen."""

from abc import abstractmethod
from xml.etree.ElementTree import Element

import jax
import jax.numpy as jnp

from envs.functional import Physics
from envs.maze import cells
from envs.physics.draw import on_circle
from envs.physics.model import add_target, add_walls, find, geom, set_pose, shipped
from envs.physics.pipeline import BraxEnv, outside

Q, QD = 15, 14  # coordinates and velocities of the ant itself, before those of what lies around it
TIMESTEP, FRAMES = 0.005, 10  # s of a physics step of `spring`, and how many of them make a step
NOISE = 0.1  # half width of the start's q, standard deviation of its qd
HEALTHY_Z = (0.2, 1.0)  # m, of the torso
FEET = ("left_foot_geom", "right_foot_geom", "third_foot_geom", "fourth_foot_geom")
HIPS = ("aux_1_geom", "aux_2_geom", "aux_3_geom", "aux_4_geom")


def bare_ant() -> Element:
    """brax's ant.xml with a floor for long walks."""
    root = shipped("ant.xml")
    geom(root, "floor").set("size", "100 100 40")
    return root


def with_target(root: Element, objects: int) -> Element:
    """The model with its goal, in brax's start pose; `objects` coordinates lie between the ant's and the goal's."""
    add_target(root, z=0.01, radius=0.9)
    pose = find(root, "custom/numeric[@name='init_qpos']").get("data")
    set_pose(root, f"{pose}{' 0' * (objects + 2)}")
    return root


class AntEnv(BraxEnv):
    """The ant and its goal, S = 29 and G = 2. A task says where both are."""

    @abstractmethod
    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where the ant starts (2,), before noise, and the last coordinates of q: the goal (2,), and what is before."""

    def reset(self, key: jax.Array) -> Physics:
        place, noise, velocity = jax.random.split(key, 3)
        start, rest = self.place(place)
        q = self.system.init_q + jax.random.uniform(noise, (self.system.q_size(),), minval=-NOISE, maxval=NOISE)
        qd = NOISE * jax.random.normal(velocity, (self.system.qd_size(),))
        return self.init(q.at[:2].add(start).at[-len(rest) :].set(rest), qd.at[QD:].set(0))

    def step(self, physics: Physics, action: jax.Array) -> Physics:
        return self.advance(physics, action)

    def observe(self, physics: Physics) -> jax.Array:
        return jnp.concatenate([physics.q[:Q], physics.qd[:QD], physics.x.pos[-1, :2]])

    def fallen(self, physics: Physics) -> jax.Array:
        return outside(physics.x.pos[0, 2], HEALTHY_Z)


class AntCircle(AntEnv):
    """From the origin to a point at a distance (m) from it."""

    def __init__(self, distance: float) -> None:
        super().__init__(with_target(bare_ant(), 0), TIMESTEP, FRAMES, "spring")
        self.distance = distance

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(2), on_circle(key, self.distance)


class AntMaze(AntEnv):
    """From the start cell of a maze to the center of one of its goal cells. Torso, hips and feet touch the walls."""

    def __init__(self, layout: str, size: float) -> None:
        root = with_target(bare_ant(), 0)
        for name in ("torso_geom", *HIPS, *FEET):
            geom(root, name).set("conaffinity", "1")
        add_walls(root, layout, size)
        super().__init__(root, TIMESTEP, FRAMES, "spring")
        self.start, self.goals = cells(layout, "R", size)[0], cells(layout, "G", size)

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.start), jax.random.choice(key, jnp.asarray(self.goals))
