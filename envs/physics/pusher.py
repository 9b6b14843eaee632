"""Brax's arm of seven joints, which pushes an object across a table to a goal."""

import jax
import jax.numpy as jnp
from brax.base import Transform

from envs.functional import Physics
from envs.physics.draw import in_box
from envs.physics.model import set_gears, shipped
from envs.physics.pipeline import BraxEnv

# Where goals lie on the table (m), relative to brax's own goal. These are the two slides in brax's order, y then x.
GOALS = {"easy": ((-0.55, -0.2), (-0.25, 0.2)), "hard": ((-0.65, -0.55), (0.35, 0.45))}
OBJECTS = ((-0.3, -0.2), (0.0, 0.2))
CLEAR = 0.17  # m; an object nearer than this to its goal starts farther from brax's own goal


class Pusher(BraxEnv):
    """S = 20: angles (7), tip (3), object (3), angular velocities (7). G = 3: where the object shall be."""

    def __init__(self, difficulty: str) -> None:
        root = shipped("pusher.xml")
        set_gears(root, [20.0] * 7)  # brax's own for this pipeline
        super().__init__(root, 0.001, 50, "spring")
        self.goals = GOALS[difficulty]
        # brax fuses the tips with the wrist that rolls; their place is that of the wrist before it.
        self._links = jnp.array([self.system.link_names.index(x) for x in ("r_wrist_flex_link", "object", "goal")])

    def reset(self, key: jax.Array) -> Physics:
        place, velocity = jax.random.split(key)
        qd = jax.random.uniform(velocity, (7,), minval=-0.005, maxval=0.005)
        q = jnp.append(self.system.init_q[:-4], self.place(place))
        return self.init(q, jnp.append(qd, jnp.zeros(4)))

    def place(self, key: jax.Array) -> jax.Array:
        """Where object and goal lie on the table, (4,)."""
        object_key, goal_key = jax.random.split(key)
        thing, goal = in_box(object_key, *OBJECTS), in_box(goal_key, *self.goals)
        apart = jnp.linalg.norm(thing - goal)
        return jnp.append(thing * jnp.where(apart < CLEAR, CLEAR / apart, 1.0), goal)

    def step(self, physics: Physics, action: jax.Array) -> Physics:
        return self.advance(physics, action)

    def observe(self, physics: Physics) -> jax.Array:
        centers = physics.x.vmap().do(Transform.create(pos=self.system.link.inertia.transform.pos)).pos
        tip, thing, goal = centers[self._links]
        return jnp.concatenate([physics.q[:7], tip, thing, physics.qd[:7], goal])
