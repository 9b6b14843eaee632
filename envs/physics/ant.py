"""Brax's ant on its way to a goal: its start, its observation, and when it has fallen."""

from abc import abstractmethod
from xml.etree.ElementTree import Element

import jax
import jax.numpy as jnp

from envs.functional import Physics
from envs.physics.model import add_target, find, shipped, start_pose
from envs.physics.pipeline import BraxEnv, outside

TIMESTEP, FRAMES = 0.005, 10  # s of a physics step, and how many of them make a step
NOISE = 0.1  # half width of the start's q, standard deviation of its qd
HEALTHY_Z = (0.2, 1.0)  # m
CIRCLE = 10.0  # m


def ant_model() -> Element:
    """brax's ant.xml with a goal that nothing touches."""
    root = shipped("ant.xml")
    find(root, "worldbody/geom[@name='floor']").set("size", "100 100 40")
    add_target(root, z=0.01, radius=0.9)
    pose = find(root, "custom/numeric[@name='init_qpos']").get("data")
    start_pose(root, f"{pose} 0 0")
    return root


class AntEnv(BraxEnv):
    """The ant and its goal, S = 29 and G = 2. A task says where both are."""

    @abstractmethod
    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where the ant starts (2,), before noise, and the last coordinates of q, the goal (2,) last."""

    def reset(self, key: jax.Array) -> Physics:
        place, noise, velocity = jax.random.split(key, 3)
        start, rest = self.place(place)
        q = self.system.init_q + jax.random.uniform(noise, (self.system.q_size(),), minval=-NOISE, maxval=NOISE)
        qd = NOISE * jax.random.normal(velocity, (self.system.qd_size(),))
        return self.init(q.at[:2].add(start).at[-rest.size :].set(rest), qd.at[-rest.size :].set(0))

    def step(self, physics: Physics, action: jax.Array) -> Physics:
        return self.advance(physics, action)

    def observe(self, physics: Physics) -> jax.Array:
        return jnp.concatenate([physics.q[:15], physics.qd[:14], physics.x.pos[-1, :2]])

    def fallen(self, physics: Physics) -> jax.Array:
        return outside(physics.x.pos[0, 2], HEALTHY_Z)


class AntCircle(AntEnv):
    """From the origin to a point of a circle around it."""

    def __init__(self) -> None:
        super().__init__(ant_model(), TIMESTEP, FRAMES, "spring")

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(2), on_circle(key, CIRCLE)


def on_circle(key: jax.Array, radius: float | jax.Array) -> jax.Array:
    """A point (2,) at a distance from the origin, in any direction."""
    angle = jax.random.uniform(key, maxval=2 * jnp.pi)
    return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
