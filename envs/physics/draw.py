"""Points in the plane, drawn at random."""

import jax
import jax.numpy as jnp


def on_circle(key: jax.Array, radius: float | jax.Array) -> jax.Array:
    """A point (2,) at a distance from the origin, in a direction drawn uniformly."""
    angle = jax.random.uniform(key, maxval=2 * jnp.pi)
    return radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def in_ring(key: jax.Array, near: float, far: float) -> jax.Array:
    """A point (2,) whose distance from the origin is uniform in [near, far), so that near points are denser."""
    distance, direction = jax.random.split(key)
    return on_circle(direction, jax.random.uniform(distance, minval=near, maxval=far))


def in_box(key: jax.Array, low: tuple[float, float], high: tuple[float, float]) -> jax.Array:
    """A point (2,) of a box, drawn uniformly."""
    return jax.random.uniform(key, (2,), minval=jnp.array(low), maxval=jnp.array(high))
