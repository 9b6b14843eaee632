"""Experience from environments that live in numpy: a loop, with the torch actor between two steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from envs.host import HostBatch
from models.resnet import Actor
from orchestrator.crl.rollout import Outcome, Rollout, check_width


class HostRollout(Rollout):
    """Steps a `HostBatch`; the noise of its actions comes from a generator of its own."""

    def __init__(self, batch: HostBatch, actor: Actor, seed: int) -> None:
        self._batch, self._actor = batch, actor
        self._device = next(actor.parameters()).device
        self._noise = torch.Generator(self._device).manual_seed(seed)
        check_width(batch.spec, self._batch.reset(seed).shape[1])

    @torch.inference_mode()
    def collect(self, unroll: int) -> tuple[Tensor, int]:
        batch, rule = self._batch, self._batch.contract
        S, A = rule.state_size, rule.action_size
        rows = np.empty((unroll, batch.num_envs, S + A + 2), dtype=np.float32)
        broken = 0
        for row in rows:
            row[:, :S] = batch.observation[:, :S]
            row[:, S + A] = batch.episode
            mean, log_std = self._actor(self._observed(batch.observation))
            noise = torch.randn(mean.shape, generator=self._noise, device=self._device)
            action = torch.tanh(mean + log_std.exp() * noise).cpu().numpy()
            _, step = batch.step(action)
            row[:, S : S + A] = action
            row[:, S + A + 1] = ~step.broken
            broken += int(step.broken.sum())
        return torch.from_numpy(rows), broken

    @torch.inference_mode()
    def evaluate(self, seed: int, num_envs: int) -> Outcome:
        spec = self._batch.spec.evaluation()
        batch = spec.build(num_envs)
        assert isinstance(batch, HostBatch)  # as its training twin
        observation = batch.reset(seed)
        active = np.ones(num_envs, dtype=bool)
        near = np.zeros((3, num_envs), dtype=np.int32)
        distance = np.zeros(num_envs, dtype=np.float32)
        for _ in range(spec.episode_length):
            mean, _ = self._actor(self._observed(observation))
            observation, step = batch.step(torch.tanh(mean).cpu().numpy())
            near += active & (step.success, step.success_easy, step.success_hard)
            distance = np.where(active, step.distance, distance)
            active &= ~step.done
            if not active.any():
                break
        return Outcome(near, distance)

    def _observed(self, observation: np.ndarray) -> Tensor:
        return torch.from_numpy(observation).to(self._device)

    def state(self) -> dict[str, Tensor]:
        arrays = {name: torch.from_numpy(np.array(array)) for name, array in self._batch.state().items()}
        return {**arrays, "noise": self._noise.get_state()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._noise.set_state(state["noise"])
        self._batch.restore({name: tensor.numpy() for name, tensor in state.items() if name != "noise"})
