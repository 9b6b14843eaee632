"""Where gradients come from: a learner keeps the ring, samples it, and runs all gradient steps of a training step.

Several learners share the work: each keeps the rows of its share of environments and takes its share of the batch, and
their gradients are averaged before each update, so all keep the same weights. InfoNCE contrasts the pairs of a batch
with each other, so with L learners each pair meets batch / L goals, not batch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from torch import Tensor

from orchestrator.crl.agent import Agent
from orchestrator.crl.module import Setup
from orchestrator.crl.replay import Replay
from orchestrator.crl.seeds import Stream, seed_of

SECONDS = "seconds"


class CRLLearner(TorchLearner):  # type: ignore[misc]
    """One of max(1, train.learners)."""

    def build(self) -> None:
        self.plan: Setup = self.config.plan
        torch.set_num_threads(self.plan.threads)
        super().build()
        plan, rank = self.plan, self._learner_index
        self.count = max(1, plan.train.learners)
        own = plan.train.model_copy(update={"num_envs": plan.train.num_envs // self.count})
        self.replay = Replay(own, plan.env.contract, plan.agent.gamma, self._device)
        self.generator = torch.Generator(self._device).manual_seed(seed_of(plan.seed, Stream.REPLAY, rank))

    @property
    def agent(self) -> Agent:
        agent: Agent = self._module[DEFAULT_MODULE_ID].agent
        return agent

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        agent: Agent = self._module[module_id].agent
        agent.start(self._device)
        agent.generator.manual_seed(seed_of(self.plan.seed, Stream.NOISE, self._learner_index))
        for name, optimizer in agent.optimizers.items():
            params = [param for group in optimizer.param_groups for param in group["params"]]
            self.register_optimizer(module_id=module_id, optimizer_name=name, optimizer=optimizer, params=params)

    def _make_modules_ddp_if_necessary(self) -> None:
        """None is wrapped: `average` does what the wrapper would, for losses that share no single forward."""

    def compute_loss_for_module(self, **kwargs: Any) -> Tensor:
        """RLlib's own update takes one loss of one minibatch; `learn` has three of many."""
        raise NotImplementedError("a CRLLearner learns by `learn`, not by `update`")

    def add(self, rows: Tensor) -> None:
        """Take this learner's environments of rows (T, N, F)."""
        share = rows.shape[1] // self.count
        self.replay.add(rows[:, self._learner_index * share : (self._learner_index + 1) * share])

    def learn(self) -> dict[str, float]:
        """All gradient steps of a training step; the mean of their metrics, and the seconds that they took."""
        started, train = time.perf_counter(), self.plan.train
        share = average if self.count > 1 else None
        batches = self.replay.sample_many(train.gradient_steps, train.batch // self.count, self.generator)
        totals = self.agent.gradient_step(next(batches), share)
        sums = [*totals.values()]
        for batch in batches:
            torch._foreach_add_(sums, [*self.agent.gradient_step(batch, share).values()])
        means = (torch.stack(sums) / train.gradient_steps).tolist()  # waits for the device
        return {**dict(zip(totals, means, strict=True)), SECONDS: time.perf_counter() - started}

    def run_state(self, buffer: bool) -> dict[str, Any]:
        """All that decides the next training step: the agent's from learner 0, which speaks for all."""
        state: dict[str, Any] = {"sampling": self.generator.get_state(), "noise": self.agent.generator.get_state()}
        if self._learner_index == 0:
            state["agent"] = self.agent.state()
        if buffer:
            state["replay"] = self.replay.state()
        return state

    def go_on(self, agent: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Go on from learner 0's `agent` and this learner's own state."""
        self.agent.restore(agent)
        self.agent.generator.set_state(own["noise"])
        self.generator.set_state(own["sampling"])
        if "replay" in own:
            self.replay.restore(own["replay"])

    def weights(self) -> dict[str, Tensor]:
        return dict(self.agent.state_dict())

    def snapshots(self) -> dict[str, Any]:
        """Of the topologies, by network."""
        return {name: topology.snapshot() for name, topology in self.agent.topologies().items()}

    @property
    def index(self) -> int:
        return int(self._learner_index)


def average(gradients: list[Tensor]) -> None:
    """The mean of gradients over learners, in place and in one message."""
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    torch._foreach_copy_(gradients, [part.view_as(own) for part, own in zip(parts, gradients, strict=True)])
