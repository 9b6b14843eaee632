"""How a goal-reaching agent learns: the tables `agent` and `train` of a trial. No torch, no jax.

Defaults are those of the paper's runs (appendix E.4, Table 9): 512 environments, 100M steps, 100 evaluations.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from models.spec import Spec

Energy = Literal["norm", "l2", "dot", "cosine"]
Contrast = Literal["forward", "backward", "symmetric"]


class AgentSpec(Spec):
    """What is minimised, and at what rates."""

    energy: Energy = "norm"
    loss: Contrast = "forward"  # InfoNCE: each state-action pair picks its goal, each goal its pair, or both
    penalty: float = Field(default=0.1, ge=0)  # of the squared logsumexp
    gamma: float = Field(default=0.99, gt=0, lt=1)  # of the hindsight's geometric distribution
    repr_dim: int = Field(default=64, ge=1)
    entropy_param: float = Field(default=0.5, ge=0)  # the policy's entropy is led to -entropy_param for each action
    lr_actor: float = Field(default=3e-4, gt=0)
    lr_critic: float = Field(default=3e-4, gt=0)
    lr_alpha: float = Field(default=3e-4, gt=0)


class TrainSpec(Spec):
    """How many steps, in what portions, from what memory.

    A training step is an unroll of all environments, then `gradient_steps` minibatches from the buffer. Before the
    first one the untrained policy fills the buffer; these steps count.
    """

    env_steps: int = Field(default=100_000_000, ge=1)  # over all environments, at most
    num_envs: int = Field(default=512, ge=1)
    unroll: int = Field(default=62, ge=1)  # steps of each environment in one training step
    gradient_steps: int = Field(default=800, ge=1)  # in one training step
    batch: int = Field(default=512, ge=2)  # InfoNCE needs a second pair to tell the first from
    slots: int = Field(default=10_000, ge=1)  # buffer rows of each environment
    prefill: int = Field(default=1000, ge=1)  # rows of each environment before the first gradient, in whole unrolls
    window: int = Field(default=1000, ge=2)  # consecutive rows from which a pair and its future goal are drawn
    eval_envs: int = Field(default=128, ge=1)
    eval_every: int = Field(default=1_000_000, ge=1)  # env steps; the last training step is evaluated too
    checkpoint_every: int = Field(default=0, ge=0)  # env steps; 0: never
    # In checkpoints: num_envs * slots rows of 4 (S + A + 2) bytes, 0.8 GB of the ant's at the defaults. Without it a
    # resumed run fills the buffer again before it goes on, with steps that are not counted.
    save_buffer: bool = False
    env_runners: int = Field(default=0, ge=0)  # remote ones; 0: in the trial's own process
    # Remote learners; 0: one in the trial's own process. Each contrasts the pairs of its own share of the batch alone:
    # more learners mean fewer negatives, which decides results.
    learners: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> Self:
        rows = self.prefill_unrolls * self.unroll
        if self.slots <= self.window:
            raise ValueError(f"slots {self.slots} hold no window of {self.window} rows; slots must be above window")
        if rows > self.slots:
            raise ValueError(
                f"prefill {self.prefill} in unrolls of {self.unroll} gives {rows} rows, which do not fit into "
                f"{self.slots} slots"
            )
        if rows <= self.window:
            raise ValueError(
                f"prefill {self.prefill} in unrolls of {self.unroll} gives {rows} rows, in which no window of "
                f"{self.window} can be placed; prefill must be above {self.window}"
            )
        if self.batch > rows * self.num_envs:
            raise ValueError(
                f"batch {self.batch} is larger than the buffer's content after prefill, {rows} rows of "
                f"{self.num_envs} environments = {rows * self.num_envs}"
            )
        possible = (self.env_steps - self.prefill_steps) // self.training_step
        if possible < 1:
            raise ValueError(
                f"env_steps {self.env_steps} end before the first training step, which prefill and unroll put at "
                f"{self.prefill_steps + self.training_step}"
            )
        if self.evaluations > possible:
            raise ValueError(
                f"eval_every {self.eval_every} asks for {self.evaluations} evaluations in {possible} training steps of "
                f"{self.training_step}; the least that fits is {self.env_steps // (possible + 1) + 1}"
            )
        return self

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        for part, shared in (("env_runners", "num_envs"), ("learners", "num_envs"), ("learners", "batch")):
            count, total = getattr(self, part), getattr(self, shared)
            if count and total % count:
                raise ValueError(f"{part} {count} do not divide {shared} {total}, of which each takes an equal share")
        if self.env_runners > self.eval_envs:
            raise ValueError(f"eval_envs {self.eval_envs} do not go round {self.env_runners} env_runners")
        if self.learners and self.batch // self.learners < 2:
            raise ValueError(f"batch {self.batch} leaves a learner of {self.learners} no second pair to contrast with")
        return self

    def check_episode(self, length: int) -> None:
        """Raise ValueError, in one line, where episodes of `length` steps do not fit."""
        if length < 2:
            raise ValueError(f"env.episode_length {length}: an episode needs 2 steps, a state and one that follows it")
        if length > self.slots:
            raise ValueError(f"env.episode_length {length} does not fit into train.slots {self.slots}")

    @property
    def training_step(self) -> int:
        """Env steps of one training step."""
        return self.num_envs * self.unroll

    @property
    def prefill_unrolls(self) -> int:
        return -(-self.prefill // self.unroll)

    @property
    def prefill_steps(self) -> int:
        """Env steps before the first gradient."""
        return self.prefill_unrolls * self.training_step

    @property
    def evaluations(self) -> int:
        return max(1, self.env_steps // self.eval_every)

    @property
    def steps_per_evaluation(self) -> int:
        """Training steps from one evaluation to the next."""
        return (self.env_steps - self.prefill_steps) // (self.evaluations * self.training_step)

    @property
    def training_steps(self) -> int:
        return self.evaluations * self.steps_per_evaluation

    @property
    def total_env_steps(self) -> int:
        """Env steps when all is done: at most `env_steps`, since training steps and evaluations are whole."""
        return self.prefill_steps + self.training_steps * self.training_step
