"""Contrastive RL as an algorithm of RLlib: who collects, who learns, and in which order.

A training step is one unroll of all environments under one policy, then `gradient_steps` updates, then the new weights
go to the runners. Before the first one the untrained policy fills the ring.
"""

from __future__ import annotations

import logging
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import Tensor

from analysis import names
from orchestrator.crl.learner import SECONDS, CRLLearner
from orchestrator.crl.module import CRLModule, Setup
from orchestrator.crl.rollout import summary
from orchestrator.crl.runner import CRLRunner, Sample, spaces

T = TypeVar("T")
STEPS = "steps"  # training steps that went into the sums of losses
COUNTERS = ("env_steps", "training_steps", "broken")


class CRLConfig(AlgorithmConfig):  # type: ignore[misc]
    """RLlib's configuration of a run; what decides results is all in `plan`."""

    def __init__(self, algo_class: type[Algorithm] | None = None) -> None:
        super().__init__(algo_class=algo_class or CRL)
        self.plan: Setup | None = None

    def of(self, plan: Setup, gpus: float = 0.0) -> CRLConfig:
        """Set up for a run. `gpus`: the share of each remote process; a local learner takes what it sees."""
        logging.getLogger("ray.rllib").setLevel(logging.ERROR)  # it announces its own API at each start
        self.plan = plan
        observation, action = spaces(plan.env.contract)
        train, alone = plan.train, plan.train.learners == 0
        self.environment(observation_space=observation, action_space=action)
        self.framework("torch")
        self.env_runners(
            env_runner_cls=CRLRunner,
            num_env_runners=train.env_runners,
            create_local_env_runner=train.env_runners == 0,
            num_cpus_per_env_runner=plan.threads,
            num_gpus_per_env_runner=gpus,
        )
        self.learners(
            num_learners=train.learners,
            num_cpus_per_learner=plan.threads,
            num_gpus_per_learner=float(torch.cuda.is_available()) if alone else gpus,
        )
        self.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=0)
        self.fault_tolerance(restart_failed_env_runners=False)  # the trial starts again from its checkpoint
        self.debugging(log_level="ERROR")
        self._dont_auto_sync_env_runner_states = True  # runners have no state that another needs
        return self

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        return RLModuleSpec(module_class=CRLModule, model_config={"setup": self.plan})

    def get_default_learner_class(self) -> type[CRLLearner]:
        return CRLLearner


class CRL(Algorithm):  # type: ignore[misc]
    """A run in progress.

    Attributes:
        env_steps: taken by all environments so far, those of the first filling included.
        broken: environments put back so far since their state was not finite.
        seconds: spent in rollouts and on gradients since they were last taken.
        losses: sums of the metrics of training steps since they were last taken.
    """

    @classmethod
    def get_default_config(cls) -> CRLConfig:
        return CRLConfig()

    def setup(self, config: CRLConfig) -> None:
        super().setup(config)
        self.plan: Setup = self.config.plan
        self.env_steps = self.training_steps = self.broken = 0
        self.filled = False
        self.seconds: dict[str, float] = defaultdict(float)
        self.losses: dict[str, float] = {}

    def _setup_logdir(self) -> None:
        """A folder that goes with the algorithm: RLlib's own is in the user's home and stays."""
        self._folder = tempfile.TemporaryDirectory(prefix="ancre-rllib-")
        self._logdir = self._folder.name

    def cleanup(self) -> None:
        super().cleanup()
        self._folder.cleanup()

    def begin(self) -> None:
        """Fill the ring with the untrained policy: these steps count."""
        self.fill()
        self.env_steps += self.plan.train.prefill_steps

    def fill(self) -> None:
        """Fill the ring with the policy as it is."""
        for _ in range(self.plan.train.prefill_unrolls):
            self._add(self._collect())
        self.filled = True

    def training_step(self) -> None:
        if not self.filled:
            self.begin()
        self._add(self._collect())
        self._learn()
        self._send_weights()
        self.env_steps += self.plan.train.training_step
        self.training_steps += 1

    def evaluate(self, parallel_train_future: Any = None) -> dict[str, float]:
        """The metrics of one episode in each of `eval_envs` fresh environments, with the mean action."""
        return summary(self.env_runner_group.foreach_env_runner(partial(CRLRunner.evaluate, step=self.training_steps)))

    def take_losses(self) -> dict[str, float]:
        """The mean of each training metric since this was called last."""
        sums, self.losses = self.losses, {}
        steps = sums.pop(STEPS, 1)
        return {name: total / steps for name, total in sums.items()}

    def take_seconds(self) -> dict[str, float]:
        """Spent in rollouts and on gradients since this was called last."""
        spent, self.seconds = self.seconds, defaultdict(float)
        return spent

    def topologies(self) -> dict[str, Any]:
        """Snapshots by network, as in topology.json."""
        return self._learners(CRLLearner.snapshots)[0]

    def _collect(self) -> Tensor:
        """Rows (T, N, F) of all runners."""
        samples: list[Sample] = self.env_runner_group.foreach_env_runner(CRLRunner.sample)
        self.broken += sum(sample.broken for sample in samples)
        self.seconds[names.TIME_ROLLOUT] += max(sample.seconds for sample in samples)
        return samples[0].rows if len(samples) == 1 else torch.cat([sample.rows for sample in samples], 1)

    def _add(self, rows: Tensor) -> None:
        if self.plan.train.learners == 0:
            self._learners(CRLLearner.add, rows=rows)
        else:
            self._learners(_add_stored, rows=ray.put(rows.cpu().numpy()))

    def _learn(self) -> None:
        found = self._learners(CRLLearner.learn)
        self.seconds[names.TIME_LEARN] += max(metrics.pop(SECONDS) for metrics in found)
        for name in found[0]:
            self.losses[name] = self.losses.get(name, 0.0) + fmean(metrics[name] for metrics in found)
        self.losses[STEPS] = self.losses.get(STEPS, 0) + 1

    def _learners(self, function: Callable[..., T], **kwargs: Any) -> list[T]:
        """What a function of a learner returns for each, by rank."""
        return [result.get() for result in self._checked(self.learner_group.foreach_learner(function, **kwargs))]

    def _checked(self, results: Any) -> list[Any]:
        for result in results:
            if not result.ok:
                raise result.get()
        return list(results)

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on, in tensors and numbers; the ring where `save_buffer` says so."""
        learners = self._learners(CRLLearner.run_state, buffer=self.plan.train.save_buffer)
        return {
            "agent": learners[0].pop("agent"),
            "learners": learners,
            "runners": self.env_runner_group.foreach_env_runner(CRLRunner.run_state),
            "losses": self.losses,
            **{name: getattr(self, name) for name in COUNTERS},
        }

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken. Without a saved ring, the next training step fills it first."""
        self._learners(_restore_learner, agent=state["agent"], learners=state["learners"])
        self.env_runner_group.foreach_env_runner(partial(_restore_runner, states=state["runners"]))
        self.losses = dict(state["losses"])
        for name in COUNTERS:
            setattr(self, name, state[name])
        self.filled = self.plan.train.save_buffer
        self._send_weights()

    def _send_weights(self) -> None:
        """The actor's, from learner 0 to every runner."""
        self.env_runner_group.sync_weights(
            from_worker_or_learner_group=self.learner_group,
            policies=[DEFAULT_MODULE_ID],
            timeout_seconds=None,
            inference_only=True,
        )


def _add_stored(learner: CRLLearner, rows: ray.ObjectRef) -> None:
    learner.add(torch.from_numpy(ray.get(rows)))


def _restore_learner(learner: CRLLearner, agent: Mapping[str, Any], learners: Sequence[Mapping[str, Any]]) -> None:
    learner.go_on(agent, learners[learner.index])


def _restore_runner(runner: CRLRunner, states: Sequence[Mapping[str, Tensor]]) -> None:
    runner.env.restore(states[runner.index])
