"""The actor as a pure jax function: for rollouts whose policy runs between two physics steps of one compiled scan.

Its parameters are a flat dict of arrays, copied from the torch actor once per training step. The weights of the
topology come along as they are, (K+1, K+1) and normalised, so nothing of its rule is known here.

    enter.weight (W, S+G)   dense.weight (K, 4, W, W)   head.weight (2A, W)     each with its bias
    norm.weight, norm.bias (4K+1, W)                                            absent without LayerNorm
    topology (K+1, K+1): h_j = r_j(h_{j-1}) + sum_{i<j} topology[i, j] h_i
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn

from models.mixing import Mix
from models.resnet import LOG_STD, NORM_EPS, Actor
from models.resnet_spec import LAYERS_PER_BLOCK, ResnetSpec

Params: TypeAlias = Mapping[str, jax.Array]
Policy: TypeAlias = Callable[[Params, jax.Array], tuple[jax.Array, jax.Array]]


@torch.no_grad()
def export(actor: Actor) -> dict[str, Tensor]:
    """The actor's numbers as the policy takes them, on the actor's device.

    Raises:
        ValueError: its topology is no weighted sum of earlier states.
    """
    topology = actor.trunk.stack.topology
    if not isinstance(topology, Mix):
        raise ValueError(
            f"topology {type(topology).__name__} is no weighted sum, which is all that the jax policy reads"
        )
    modules = [*actor.trunk.modules()]
    first, *hidden, head = (module for module in modules if isinstance(module, nn.Linear))
    norms = [module for module in modules if isinstance(module, nn.LayerNorm)]
    arrays = {"topology": topology.total("branch")}
    for part in ("weight", "bias"):
        arrays[f"enter.{part}"], arrays[f"head.{part}"] = getattr(first, part), getattr(head, part)
        stacked = torch.stack([getattr(layer, part) for layer in hidden])
        arrays[f"dense.{part}"] = stacked.view(-1, LAYERS_PER_BLOCK, *stacked.shape[1:])
        if norms:
            arrays[f"norm.{part}"] = torch.stack([getattr(norm, part) for norm in norms])
    return {name: array.detach() for name, array in arrays.items()}


def build(spec: ResnetSpec, actor: Actor) -> Policy:
    """The policy of an actor of this spec: `export`ed parameters and (N, S+G) to mean and log_std, (N, A) each."""
    connect = _chain if is_chain(actor) else _sums
    activation = jax.nn.relu if spec.activation == "relu" else jax.nn.silu

    def active(x: jax.Array, norm: Params) -> jax.Array:
        return activation(_layer_norm(x, norm["weight"], norm["bias"]) if norm else x)

    def layer(h: jax.Array, dense: Params, norm: Params) -> jax.Array:
        return active(_dense(h, dense), norm) if spec.placement == "post" else _dense(active(h, norm), dense)

    def block(h: jax.Array, dense: Params, norms: Params) -> jax.Array:
        for number in range(LAYERS_PER_BLOCK):
            h = layer(h, _at(dense, number), _at(norms, number))
        return h

    def policy(params: Params, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        norms, h = _part(params, "norm"), _dense(observation, _part(params, "enter"))
        outside = _at(norms, 0 if spec.placement == "post" else -1)  # the norm that is in no block
        inside = _rows(norms, slice(1, None) if spec.placement == "post" else slice(-1))
        if spec.placement == "post":
            h = active(h, outside)
        h = connect(block, h, _part(params, "dense"), inside, params["topology"])
        if spec.placement == "pre":
            h = active(h, outside)
        mean, spread = jnp.split(_dense(h, _part(params, "head")), 2, axis=-1)
        low, high = LOG_STD
        return mean, low + 0.5 * (high - low) * (jnp.tanh(spread) + 1)

    return policy


Block: TypeAlias = Callable[[jax.Array, Params, Params], jax.Array]


def _chain(block: Block, h: jax.Array, dense: Params, norms: Params, topology: jax.Array) -> jax.Array:
    """h_j = r_j(h_{j-1}) + w_j h_{j-1}."""

    def step(h: jax.Array, blocks: tuple[Params, Params, jax.Array]) -> tuple[jax.Array, None]:
        own, norm, weight = blocks
        return block(h, own, norm) + weight * h, None

    return jax.lax.scan(step, h, (dense, norms, jnp.diagonal(topology, 1)))[0]


def _sums(block: Block, h: jax.Array, dense: Params, norms: Params, topology: jax.Array) -> jax.Array:
    """h_j = r_j(h_{j-1}) + sum_{i<j} w_ij h_i, over states (K+1, N, W) of which later ones are still 0."""
    depth = len(topology) - 1
    states = jnp.zeros((depth, *h.shape), h.dtype).at[0].set(h)

    def step(
        carry: tuple[jax.Array, jax.Array], blocks: tuple[jax.Array, Params, Params, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        h, states = carry
        number, own, norm, weights = blocks
        h = block(h, own, norm) + jnp.tensordot(weights, states, 1)
        return (h, states.at[number + 1].set(h, mode="drop")), None  # the last state is read by no block

    blocks = (jnp.arange(depth), dense, norms, topology[:-1, 1:].T)
    return jax.lax.scan(step, (h, states), blocks)[0][0]


def is_chain(actor: Actor) -> bool:
    """Whether no step can ever read anything but the state before it."""
    snapshot = actor.trunk.stack.topology.snapshot()
    connected = np.array(snapshot["mask"]) | (np.array(snapshot["offset"] or 0.0) != 0)
    return not np.triu(connected, 2).any()


def _part(params: Params, name: str) -> dict[str, jax.Array]:
    return {key.removeprefix(f"{name}."): array for key, array in params.items() if key.startswith(f"{name}.")}


def _at(layers: Params, number: int) -> dict[str, jax.Array]:
    return {key: array[number] for key, array in layers.items()}


def _rows(norms: Params, which: slice) -> dict[str, jax.Array]:
    """The norms in blocks, (4K, W) as (K, 4, W)."""
    return {key: array[which].reshape(-1, LAYERS_PER_BLOCK, array.shape[1]) for key, array in norms.items()}


def _dense(x: jax.Array, layer: Params) -> jax.Array:
    return x @ layer["weight"].T + layer["bias"]


def _layer_norm(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + NORM_EPS) * weight + bias
