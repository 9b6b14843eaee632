"""Contrastive RL: an agent learns to reach goals, with networks of 4 to 1024 layers (paper, section 5.3, E.4)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import ClassVar, Literal

from pydantic import model_validator

from analysis import names
from envs.base import Contract, GoalEnvSpec
from models.resnet_spec import ResnetSpec
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded
from models.wiring import WiredSpec
from orchestrator.crl.spec import AgentSpec, TrainSpec
from orchestrator.errors import one_line
from orchestrator.kinds import AnyEnv, AnyTopology
from orchestrator.workloads.base import Estimate, Place, Row, TrialSpec

NUMBER = 4  # bytes of a float32
CHECKPOINTS = 2  # that stay
PROBED_STEPS = 8  # training steps


def _check_contract(env: GoalEnvSpec) -> None:
    """Raise ValueError, in one line, where an environment of one's own does not say what it is."""
    try:
        contract = env.contract
    except Exception as error:  # a stranger's code
        raise ValueError(f"env: contract of {env.kind!r}: {one_line(error)}") from error
    if not isinstance(contract, Contract):
        raise ValueError(f"env: contract of {env.kind!r} should be an envs.base.Contract, got {contract!r}")


class Spec(TrialSpec):
    """Contrastive RL on a goal-reaching environment; ranked by the steps that the policy spends at its goal.

    A row's step counts environment steps. Several learners contrast each pair with the goals of their own share of the
    batch alone, so `train.learners` decides results.
    """

    workload: Literal["crl"] = "crl"
    env: AnyEnv
    model: ResnetSpec = ResnetSpec()
    topology: AnyTopology = Cascaded()  # of the actor and of both encoders, where they have none of their own
    actor_topology: AnyTopology | None = None
    phi_topology: AnyTopology | None = None  # of the encoder of states and actions
    psi_topology: AnyTopology | None = None  # of the encoder of goals
    agent: AgentSpec = AgentSpec()
    train: TrainSpec = TrainSpec()

    default_metric: ClassVar[str] = names.EVAL_TIME_AT_GOAL
    default_mode: ClassVar[Literal["min", "max"]] = "max"
    metrics: ClassVar[tuple[str, ...]] = (
        names.EVAL_TIME_AT_GOAL,
        names.EVAL_SUCCESS_ANY,
        names.EVAL_SUCCESS_EASY,
        names.EVAL_SUCCESS_HARD,
        names.EVAL_FINAL_DISTANCE,
        names.ENV_STEPS_PER_S,
        names.GRAD_STEPS_PER_S,
        names.CRITIC_LOSS,
        names.ACTOR_LOSS,
        names.ALPHA_LOSS,
        names.ALPHA,
        names.ENTROPY,
        names.LOGITS_ACCURACY,
        names.NAN_RESETS,
        *names.TIMES,
    )

    @model_validator(mode="after")
    def _check(self) -> Spec:
        _check_contract(self.env)
        for topology in self.topologies:
            topology.check(self.model.num_blocks)
        actor = self.topologies[0]
        if not isinstance(actor, WiredSpec) and not self.env.host_only:
            raise ValueError(
                f"actor_topology: env {self.env.kind} runs in jax, where a policy's states are weighted sums of "
                f"earlier ones; those of {actor.kind!r} are not. Give the actor another, such as 'cascaded'"
            )
        self.train.check_episode(self.env.episode_length)
        return self

    @property
    def topologies(self) -> tuple[TopologySpec, TopologySpec, TopologySpec]:
        """Of the actor, the state-action encoder phi and the goal encoder psi."""
        actor, phi, psi = (own or self.topology for own in (self.actor_topology, self.phi_topology, self.psi_topology))
        return actor, phi, psi

    @property
    def total_steps(self) -> int:
        return self.train.total_env_steps

    @property
    def helpers(self) -> int:
        return self.train.env_runners + self.train.learners

    def estimate(self) -> Estimate:
        """Parameters are exact; FLOPs are those of gradients and of the policy, without physics."""
        rule, train, model = self.env.contract, self.train, self.model
        S, G, A, R = rule.state_size, rule.goal_size, rule.action_size, self.agent.repr_dim
        actor, phi, psi = (S + G, 2 * A), (S + A, R), (G, R)
        params = sum(model.num_params(*sizes) for sizes in (actor, phi, psi)) + 1  # log_alpha
        mixing = sum(topology.num_coefficients(model.num_blocks, model.width) for topology in self.topologies)
        # Forward and backward of each network are 3 forwards; phi is run once more for the actor's loss, and back
        # through to the action, which is 2.
        sample = 3 * model.flops(*actor) + 5 * model.flops(*phi) + 3 * model.flops(*psi)
        gradients = train.training_steps * train.gradient_steps * train.batch * (sample + 2 * 3 * train.batch * R)
        looks = (train.evaluations + 1) * train.eval_envs * self.env.episode_length
        policy = (self.total_steps + looks) * model.flops(*actor)
        state = 3 * (params + mixing) * NUMBER  # weights and Adam's two moments
        row = (S + A + 2) * NUMBER
        buffer = train.num_envs * train.slots * (row + 8)  # and where episodes end, int64
        layers = 3 * 4 * (model.depth + 1)  # of each network: Dense, norm and activation; phi counts twice
        activations = train.batch * (model.width * layers + 4 * train.batch) * NUMBER
        saved = state + train.save_buffer * train.num_envs * train.slots * row
        return Estimate(
            params=params,
            topology_params=mixing,
            flops=gradients + policy,
            memory=state + (params + mixing) * NUMBER + buffer + activations + 2 * train.training_step * row,
            disk=CHECKPOINTS * saved if train.checkpoint_every else 0,
        )

    def check_workers(self, workers: int) -> None:
        if workers > 1:
            raise ValueError(f"crl spreads by train.env_runners and train.learners; workers should be 1, got {workers}")

    def short(self, workers: int) -> Spec:
        """A few training steps, each of them evaluated."""
        few = min(self.train.prefill_steps + PROBED_STEPS * self.train.training_step, self.train.env_steps)
        often = {"env_steps": few, "eval_every": math.ceil(few / PROBED_STEPS), "checkpoint_every": 0}
        return self.model_copy(update={"train": self.train.model_copy(update=often)})

    def seconds(self, rows: Sequence[Row]) -> float:
        """With all evaluations, and without filling the buffer."""
        spent = {name: median(row.metrics[name] for row in rows[1:]) for name in names.TIMES}
        evaluating = spent.pop(names.TIME_EVALUATE) * self.train.evaluations
        return evaluating + math.fsum(spent.values()) * self.train.training_steps

    def rows(self, place: Place) -> Iterator[Row]:
        import torch

        from orchestrator.crl.agent import Topologies
        from orchestrator.crl.loop import rows
        from orchestrator.crl.module import Setup
        from orchestrator.pretrain.checkpoint import Checkpoints
        from orchestrator.sweep.cluster import connected

        torch.set_num_threads(place.threads)
        plan = Setup(
            self.env, self.model, Topologies(*self.topologies), self.agent, self.train, self.seed, place.threads
        )
        with connected(None):
            checkpoints = Checkpoints(place.folder / "checkpoints", self.model_dump(mode="json"), place.check)
            yield from rows(plan, checkpoints, place.gpus)
