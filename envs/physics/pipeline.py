"""A brax model stepped by one of brax's pipelines: `spring` for most bodies, `mjx` where contacts must be MuJoCo's."""

import importlib
import warnings
from typing import Any, Literal
from xml.etree.ElementTree import Element, tostring

import jax
from brax.base import System
from brax.io import mjcf

from envs.functional import JaxEnv, Physics
from envs.physics.model import find


class BraxEnv(JaxEnv):
    """An environment whose physics is a state of a brax pipeline, unless its `body` says otherwise."""

    def __init__(self, model: Element, timestep: float, frames: int, backend: Literal["spring", "mjx"]) -> None:
        """`frames` physics steps of `timestep` seconds make a step of the environment."""
        find(model, "option").set("timestep", str(timestep))
        with warnings.catch_warnings():  # brax says at every load that it is no longer maintained
            warnings.filterwarnings("ignore", message="Brax System", category=UserWarning)
            self.system: System = mjcf.loads(tostring(model, encoding="unicode"))
        self.frames = frames
        self._pipeline = importlib.import_module(f"brax.{backend}.pipeline")

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


def outside(value: jax.Array, bounds: tuple[float, float]) -> jax.Array:
    """Whether a value () is below the lower or above the upper bound."""
    return (value < bounds[0]) | (value > bounds[1])
