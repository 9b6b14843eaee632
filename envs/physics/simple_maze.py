"""A ball in a maze, pushed along x and y: the ant's maze without the ant."""

from xml.etree.ElementTree import Element, SubElement

import jax
import jax.numpy as jnp

from envs.functional import Physics
from envs.maze import cells
from envs.physics.ant import FRAMES, TIMESTEP, bare_ant
from envs.physics.model import STILL, add_sliding, add_target, add_walls, find
from envs.physics.pipeline import BraxEnv

SPEED = 0.1  # standard deviation of the velocity at the start (m/s)
GEAR = "5"  # N of a full action


def ball_model(layout: str, size: float) -> Element:
    """brax's ant.xml with a ball in the ant's place, in a maze."""
    root = bare_ant()
    world, custom, motors = find(root, "worldbody"), find(root, "custom"), find(root, "actuator")
    world.remove(find(world, "body"))
    custom.remove(find(custom, "numeric[@name='init_qpos']"))
    ball = add_sliding(root, "ball", "0 0 0.75", "xy", STILL | {"armature": "1"})
    SubElement(ball, "geom", type="sphere", size="0.25", contype="1", conaffinity="1")
    add_target(root, z=0.01, radius=0.9)
    add_walls(root, layout, size)
    motors.clear()
    for axis in "xy":
        SubElement(motors, "motor", joint=f"ball_{axis}", gear=GEAR)
    return root


class BallMaze(BraxEnv):
    """S = 4: x, y and their velocities. G = 2. It cannot fall."""

    def __init__(self, layout: str, size: float) -> None:
        super().__init__(ball_model(layout, size), TIMESTEP, FRAMES, "spring")
        self.start, self.goals = cells(layout, "R", size)[0], cells(layout, "G", size)

    def reset(self, key: jax.Array) -> Physics:
        velocity, goal = jax.random.split(key)
        q = jnp.append(self.start, jax.random.choice(goal, jnp.asarray(self.goals)))
        return self.init(q, jnp.append(SPEED * jax.random.normal(velocity, (2,)), jnp.zeros(2)))

    def step(self, physics: Physics, action: jax.Array) -> Physics:
        return self.advance(physics, action)

    def observe(self, physics: Physics) -> jax.Array:
        return jnp.concatenate([physics.q[:2], physics.qd[:2], physics.x.pos[-1, :2]])
