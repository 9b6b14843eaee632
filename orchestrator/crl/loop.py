"""A run of contrastive RL from its first environment step to its last: when it evaluates, saves and reports.

Each evaluation gives a row; the first is of the untrained policy. A checkpoint is saved before the report of its step,
and a resumed run begins with that report: none is ever lost, one may come twice.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterator

import ray

from analysis import names
from orchestrator.crl.algorithm import CRL, CRLConfig
from orchestrator.crl.module import Setup
from orchestrator.errors import Diverged, InputError
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.workloads.base import Row

log = logging.getLogger(__name__)


def rows(plan: Setup, checkpoints: Checkpoints, gpus: float) -> Iterator[Row]:
    """Train to the last step in the Ray that is initialised.

    Args:
        gpus: the share of each remote process.

    Raises:
        Diverged: a loss became non-finite.
        InputError: the checkpoint belongs to another trial, the disk takes no new one, or Ray has too few CPUs.
    """
    newest = checkpoints.newest()
    _check_room(plan)
    algorithm = CRLConfig().of(plan, gpus).build_algo()
    try:
        run = Run(plan, algorithm, checkpoints)
        run.begin(newest)
        yield from run.rows()
    finally:
        algorithm.stop()


def _check_room(plan: Setup) -> None:
    """In a sweep the places of all processes are reserved; elsewhere Ray would wait for them for ever."""
    runners, learners = plan.train.env_runners, plan.train.learners
    needed, there = (runners + learners) * plan.threads, ray.cluster_resources().get("CPU", 0)
    if needed > there:
        raise InputError(
            f"train.env_runners {runners} and train.learners {learners} take {needed} CPUs, and Ray has {there:g}"
        )


class Run:
    """A run in the process that writes its rows."""

    def __init__(self, plan: Setup, algorithm: CRL, checkpoints: Checkpoints) -> None:
        self._train, self._algorithm, self._checkpoints = plan.train, algorithm, checkpoints
        self._seconds: dict[str, float] = defaultdict(float)  # since the last row
        self._reported = {"env": 0, "training": 0}  # steps at the last row

    def begin(self, step: int | None) -> None:
        """Fill the ring with the untrained policy, or go on from the checkpoint of env step `step`."""
        algorithm, started = self._algorithm, time.perf_counter()
        if step is None:
            algorithm.begin()
        else:
            state = self._checkpoints.load(step)
            algorithm.go_on(state["algorithm"])
            self._seconds = defaultdict(float, state["seconds"])
            self._reported = dict(state["reported"])
            if not algorithm.filled and not self._done:
                log.warning(
                    "the buffer was not saved with step %d (train.save_buffer): the policy fills it again with %d env "
                    "steps, which are not counted",
                    step,
                    self._train.prefill_steps,
                )
                algorithm.fill()
        self._note_training(started)

    def rows(self) -> Iterator[Row]:
        if self._due:
            yield self._report()
        while not self._done:
            started = time.perf_counter()
            self._algorithm.train()
            self._note_training(started)
            self._check_finite()
            self._save()
            if self._due:
                yield self._report()

    @property
    def _done(self) -> bool:
        return self._algorithm.training_steps == self._train.training_steps

    @property
    def _due(self) -> bool:
        """Whether a report is."""
        return self._algorithm.training_steps % self._train.steps_per_evaluation == 0

    def _note_training(self, started: float) -> None:
        """Split the time since then: what was neither rollout nor gradients is synchronisation."""
        spent = self._algorithm.take_seconds()
        for name, seconds in spent.items():
            self._seconds[name] += seconds
        self._seconds[names.TIME_SYNC] += time.perf_counter() - started - sum(spent.values())

    def _check_finite(self) -> None:
        for name, value in self._algorithm.losses.items():
            if not math.isfinite(value):
                raise Diverged(self._algorithm.env_steps, name)

    def _save(self) -> None:
        step, every = self._algorithm.env_steps, self._train.checkpoint_every
        if every and (self._done or step // every > (step - self._train.training_step) // every):
            state = {"algorithm": self._algorithm.state(), "seconds": dict(self._seconds), "reported": self._reported}
            self._checkpoints.save(step, state)

    def _report(self) -> Row:
        algorithm, started = self._algorithm, time.perf_counter()
        metrics = algorithm.evaluate() | algorithm.take_losses()
        before, self._reported = self._reported, {"env": algorithm.env_steps, "training": algorithm.training_steps}
        steps = {name: count - before[name] for name, count in self._reported.items()}
        spent, self._seconds = self._seconds, defaultdict(float)
        seconds = sum(spent.values())
        metrics |= {
            names.ENV_STEPS_PER_S: steps["env"] / seconds,
            names.GRAD_STEPS_PER_S: steps["training"] * self._train.gradient_steps / seconds,
            names.NAN_RESETS: float(algorithm.broken),
            names.TIME_EVALUATE: time.perf_counter() - started,
            **{name: spent[name] for name in (names.TIME_ROLLOUT, names.TIME_LEARN, names.TIME_SYNC)},
        }
        return Row(algorithm.env_steps, metrics, algorithm.topologies())
