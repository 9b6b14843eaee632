"""Experience from environments that live in jax: one compiled scan over the steps, with the policy inside.

The actor's numbers are copied in once per call; physics and policy then run without Python between two steps. Every
array that goes in lies on the device already, so each function is compiled once: `traces` counts how often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor
from torch.utils import dlpack

from envs.functional import BatchState, JaxBatch
from models.resnet import Actor
from models.resnet_spec import ResnetSpec
from orchestrator.crl import policy_jax
from orchestrator.crl.policy_jax import Params
from orchestrator.crl.rollout import Outcome, Rollout, check_width

Scores: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]  # active (N,), steps near the goal (3, N), distance (N,)


class JaxRollout(Rollout):
    """Steps a `JaxBatch` on jax's device; the noise of its actions comes from a key of its own.

    Attributes:
        traces: how often jax has traced, and so compiled, one of its functions.
    """

    def __init__(self, batch: JaxBatch, model: ResnetSpec, actor: Actor, seed: int) -> None:
        self._batch, self._actor = batch, actor
        self._policy = policy_jax.build(model, actor)
        self._device = jax.devices()[0]
        self._unroll = jax.jit(self._collect, static_argnums=3)
        self._episodes: dict[int, Any] = {}  # number of environments -> one evaluation of them, compiled
        self.traces = 0
        first, self._key = self._place(jax.random.split(jax.random.PRNGKey(seed)))
        self._state: BatchState = jax.jit(batch.reset)(first)
        check_width(batch.spec, self._state.obs.shape[1])

    def collect(self, unroll: int) -> tuple[Tensor, int]:
        with jax.default_matmul_precision("highest"):
            self._state, self._key, rows, broken = self._unroll(self._params(), self._state, self._key, unroll)
        return dlpack.from_dlpack(rows.block_until_ready()), int(broken)

    def evaluate(self, seed: int, num_envs: int) -> Outcome:
        if num_envs not in self._episodes:
            batch = self._batch.spec.evaluation().build(num_envs)
            assert isinstance(batch, JaxBatch)  # as its training twin
            self._episodes[num_envs] = jax.jit(self._episode(batch))
        key = self._place(jax.random.PRNGKey(seed))
        with jax.default_matmul_precision("highest"):
            near, distance = self._episodes[num_envs](self._params(), key)
        return Outcome(np.array(near), np.array(distance))

    def _collect(
        self, params: Params, state: BatchState, key: jax.Array, unroll: int
    ) -> tuple[BatchState, jax.Array, jax.Array, jax.Array]:
        """Traced: the state and the key after `unroll` steps, rows (unroll, N, F), how many environments broke."""
        self.traces += 1
        size = self._batch.contract.state_size

        def step(carry: tuple[BatchState, jax.Array], _: None) -> tuple[Any, tuple[jax.Array, jax.Array]]:
            state, key = carry
            key, own = jax.random.split(key)
            mean, log_std = self._policy(params, state.obs)
            action = jnp.tanh(mean + jnp.exp(log_std) * jax.random.normal(own, mean.shape))
            after, step = self._batch.step(state, action)
            marks = jnp.stack((state.episode, ~step.broken), 1).astype(jnp.float32)
            row = jnp.concatenate((state.obs[:, :size], action, marks), 1)
            return (after, key), (row, step.broken.sum())

        (state, key), (rows, broken) = jax.lax.scan(step, (state, key), length=unroll)
        return state, key, rows, broken.sum()

    def _episode(self, batch: JaxBatch) -> Any:
        """One evaluation of a batch, to be compiled: parameters and a key to steps near (3, N) and distance (N,)."""

        def step(params: Params, state: BatchState, scores: Scores) -> tuple[BatchState, Scores]:
            active, near, distance = scores
            mean, _ = self._policy(params, state.obs)
            state, step = batch.step(state, jnp.tanh(mean))
            success = jnp.stack((step.success, step.success_easy, step.success_hard))
            return state, (active & ~step.done, near + (active & success), jnp.where(active, step.distance, distance))

        def episode(params: Params, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            self.traces += 1
            N = batch.num_envs
            scores = jnp.ones(N, bool), jnp.zeros((3, N), jnp.int32), jnp.zeros(N, jnp.float32)
            _, (_, near, distance) = jax.lax.while_loop(
                lambda carry: carry[1][0].any(), lambda carry: step(params, *carry), (batch.reset(key), scores)
            )
            return near, distance

        return episode

    def _params(self) -> dict[str, jax.Array]:
        return {name: self._from_torch(array) for name, array in policy_jax.export(self._actor).items()}

    def _from_torch(self, tensor: Tensor) -> Any:
        """On jax's device: by reference where the tensor is there already."""
        if tensor.is_cuda and self._device.platform == "gpu":
            return jax.dlpack.from_dlpack(tensor.contiguous())
        return self._place(tensor.cpu().numpy())

    def _place(self, array: Any) -> Any:
        return jax.device_put(array, self._device)

    def state(self) -> dict[str, Tensor]:
        leaves = [*jax.tree.leaves(self._state), self._key]
        return {f"{number:03d}": torch.from_numpy(np.array(leaf)) for number, leaf in enumerate(leaves)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        *leaves, self._key = (self._place(state[name].numpy()) for name in sorted(state))
        self._state = jax.tree.unflatten(jax.tree.structure(self._state), leaves)
