"""Brax's arm of two links in a plane, whose tip goes to a goal."""

import jax
import jax.numpy as jnp
from brax.base import Transform

from envs.functional import Physics
from envs.physics.draw import in_ring
from envs.physics.model import set_gears, shipped
from envs.physics.pipeline import BraxEnv

TIP = (0.11, 0.0, 0.0)  # m, in the second link
REACH = 0.2  # m, of goals


class Reacher(BraxEnv):
    """S = 10: cosines and sines of both angles, the tip's position and velocity. G = 3: where the tip shall be."""

    def __init__(self) -> None:
        root = shipped("reacher.xml")
        set_gears(root, (25.0, 25.0))  # brax's own for this pipeline
        super().__init__(root, 0.005, 4, "spring")

    def reset(self, key: jax.Array) -> Physics:
        angle, velocity, goal = jax.random.split(key, 3)
        q = self.system.init_q[:2] + jax.random.uniform(angle, (2,), minval=-0.1, maxval=0.1)
        qd = jax.random.uniform(velocity, (2,), minval=-0.005, maxval=0.005)
        return self.init(jnp.append(q, in_ring(goal, 0.0, REACH)), jnp.append(qd, jnp.zeros(2)))

    def step(self, physics: Physics, action: jax.Array) -> Physics:
        return self.advance(physics, action)

    def observe(self, physics: Physics) -> jax.Array:
        angles, tip = physics.q[:2], Transform.create(pos=jnp.array(TIP))
        position, velocity = physics.x.take(1).do(tip).pos, tip.do(physics.xd.take(1)).vel
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), position, velocity, physics.x.pos[2]])
