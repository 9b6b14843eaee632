"""The agent as RLlib's module: learners hold all of it, runners the actor alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from torch import Tensor

from envs.base import GoalEnvSpec
from models.resnet_spec import ResnetSpec
from orchestrator.crl.agent import Agent, Topologies
from orchestrator.crl.spec import AgentSpec, TrainSpec


@dataclass(frozen=True)
class Setup:
    """All that the processes of one run are built from."""

    env: GoalEnvSpec
    model: ResnetSpec
    topologies: Topologies
    agent: AgentSpec
    train: TrainSpec
    seed: int
    threads: int = 1  # of torch, in each process

    def new_agent(self) -> Agent:
        return Agent(self.agent, self.model, self.topologies, self.env.contract, self.seed)


class CRLModule(TorchRLModule, InferenceOnlyAPI):  # type: ignore[misc]
    """Observation (N, S+G) to action (N, A). Its weights come from the seed, so every learner starts with the same."""

    def setup(self) -> None:
        setup: Setup = self.model_config["setup"]
        self.agent = setup.new_agent()
        if self.inference_only:  # RLlib itself drops attributes of the module alone, not of its parts
            del self.agent.phi, self.agent.psi, self.agent.log_alpha

    def get_non_inference_attributes(self) -> list[str]:
        return ["agent.phi", "agent.psi", "agent.log_alpha"]

    def _forward(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        mean, _ = self.agent.actor(batch[Columns.OBS])
        return {Columns.ACTIONS: torch.tanh(mean)}

    def _forward_exploration(self, batch: dict[str, Tensor], **kwargs: Any) -> dict[str, Tensor]:
        mean, log_std = self.agent.actor(batch[Columns.OBS])
        return {Columns.ACTIONS: torch.tanh(mean + log_std.exp() * torch.randn_like(mean))}
