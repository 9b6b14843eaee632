"""A brax model stepped by one of brax's pipelines: `spring` for bodies, `mjx` where a task needs MuJoCo's contacts."""

import importlib
import warnings
from typing import Any, Literal
from xml.etree.ElementTree import Element, tostring

import jax
import jax.numpy as jnp
from brax.base import System
from brax.io import mjcf

from envs.functional import JaxEnv, Physics


class BraxEnv(JaxEnv):
    """An environment whose physics is a state of a brax pipeline, unless `body` says otherwise."""

    def __init__(self, model: Element, timestep: float, frames: int, backend: Literal["spring", "mjx"]) -> None:
        """`frames` physics steps of `timestep` seconds make a step of the environment."""
        with warnings.catch_warnings():  # the one on brax being no longer maintained, at every load
            warnings.filterwarnings("ignore", message="Brax System", category=UserWarning)
            system = mjcf.loads(tostring(model, encoding="unicode"))
        self.system: System = system.tree_replace({"opt.timestep": timestep})
        self.frames = frames
        self._pipeline = importlib.import_module(f"brax.{backend}.pipeline")

    def set_gear(self, gear: Any) -> None:
        """Replaces the model's actuator strengths by `gear` (A,)."""
        self.system = self.system.replace(actuator=self.system.actuator.replace(gear=jnp.asarray(gear)))

    def body(self, physics: Physics) -> Any:
        """The state of the pipeline, as brax's viewer takes it."""
        return physics

    def init(self, q: jax.Array, qd: jax.Array) -> Any:
        """The state of the pipeline at coordinates q and velocities qd."""
        return self._pipeline.init(self.system, q, qd, None, None, False)

    def advance(self, state: Any, control: jax.Array) -> Any:
        """The state of the pipeline one environment step later."""

        def frame(state: Any, _: None) -> tuple[Any, None]:
            return self._pipeline.step(self.system, state, control, False), None

        return jax.lax.scan(frame, state, None, self.frames)[0]

    def scaled(self, action: jax.Array) -> jax.Array:
        """Action (A,) in [-1, 1] as the actuators' controls."""
        low, high = self.system.actuator.ctrl_range.T
        control: jax.Array = low + (action + 1) * (high - low) * 0.5
        return control


def outside(value: jax.Array, bounds: tuple[float, float]) -> jax.Array:
    """Whether a value () is below the lower or above the upper bound."""
    return (value < bounds[0]) | (value > bounds[1])
