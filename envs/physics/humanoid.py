"""Brax's humanoid on its way to a goal: its observation with inertias and torques, and when it has fallen."""

from abc import abstractmethod
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

import jax
import jax.numpy as jnp
from brax import actuator
from brax.base import Transform

from envs.maze import cells
from envs.physics.draw import in_ring
from envs.physics.model import add_target, add_walls, find, geom, set_gears, shipped
from envs.physics.pipeline import BraxEnv, outside

FRAMES = 10  # physics steps of a step
GEARS = (*[350.0] * 11, *[100.0] * 6)  # brax's own for this pipeline
HEALTHY_Z = (1.0, 2.0)  # m, of the torso
GOAL_Z = 1.25  # m, about that of a torso that stands


class Moved(NamedTuple):
    """The body, and the controls it was moved by, whose torques it feels."""

    state: Any
    control: jax.Array  # (17,) in the actuators' units


def humanoid_model() -> Element:
    """brax's humanoid.xml, whose every part can touch the floor, with a goal that nothing touches."""
    root = shipped("humanoid.xml")
    find(root, "default/geom").set("contype", "1")
    geom(root, "floor").set("size", "100 100 0.125")
    set_gears(root, GEARS)
    add_target(root, z=GOAL_Z, radius=0.5)
    return root


class HumanoidEnv(BraxEnv):
    """The humanoid and its goal, S = 268 and G = 3. A task says where both are."""

    def __init__(self, model: Element, control_dt: float) -> None:
        super().__init__(model, control_dt / FRAMES, FRAMES, "spring")
        inertia = self.system.link.inertia
        # `spring` steps with masses and inertias of their own scale; the observation shows those.
        mass = inertia.mass ** (1 - self.system.spring_mass_scale)
        moments = jax.vmap(jnp.diagonal)(inertia.i) ** (1 - self.system.spring_inertia_scale)
        self._inertia = inertia.replace(mass=mass, i=jax.vmap(jnp.diag)(moments))

    @abstractmethod
    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Where it starts (2,), and its goal (2,)."""

    def reset(self, key: jax.Array) -> Moved:
        start, goal = self.place(key)
        state = self.init(self.system.init_q.at[:2].set(start).at[-2:].set(goal), jnp.zeros(self.system.qd_size()))
        return Moved(state, jnp.zeros(self.system.act_size()))

    def step(self, physics: Moved, action: jax.Array) -> Moved:
        low, high = self.system.actuator.ctrl_range.T
        control = low + (action + 1) * (high - low) * 0.5
        return Moved(self.advance(physics.state, control), control)

    def observe(self, physics: Moved) -> jax.Array:
        state, control = physics
        torques = actuator.to_tau(self.system, control, state.q, state.qd)
        inertias, velocities = self._masses(state)
        goal = jnp.append(state.x.pos[-1, :2], GOAL_Z)
        return jnp.concatenate([state.q, state.qd, inertias.ravel(), velocities.ravel(), torques, goal])

    def fallen(self, physics: Moved) -> jax.Array:
        return outside(physics.state.x.pos[0, 2], HEALTHY_Z)

    def body(self, physics: Moved) -> Any:
        return physics.state

    def _masses(self, state: Any) -> tuple[jax.Array, jax.Array]:
        """Per link, inertia about the common center of mass and mass (12, 10), momentum share and rotation (12, 6)."""
        mass = self._inertia.mass[:, None]
        centers = state.x.vmap().do(self._inertia.transform)
        common = (mass * centers.pos).sum(0) / mass.sum()
        about = centers.replace(pos=centers.pos - common).vmap().do(self._inertia)
        moving = Transform.create(pos=centers.pos - state.x.pos).vmap().do(state.xd)
        inertias = jnp.hstack([about.i.reshape(len(mass), 9), mass])
        return inertias, jnp.hstack([mass * moving.vel / mass.sum(), moving.ang])


class HumanoidRing(HumanoidEnv):
    """From the origin to a point 1 to 5 m away."""

    def __init__(self, control_dt: float) -> None:
        super().__init__(humanoid_model(), control_dt)

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.zeros(2), in_ring(key, 1.0, 5.0)


class HumanoidMaze(HumanoidEnv):
    """From the start cell of a maze to the center of one of its goal cells."""

    def __init__(self, control_dt: float, layout: str, size: float) -> None:
        root = humanoid_model()
        add_walls(root, layout, size)
        super().__init__(root, control_dt)
        self.start, self.goals = cells(layout, "R", size)[0], cells(layout, "G", size)

    def place(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.start), jax.random.choice(key, jnp.asarray(self.goals))
