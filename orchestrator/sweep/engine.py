"""Ray Tune as the engine: it starts trials, keeps their processes for the next ones, and notices lost ones.

What Tune would keep on disk, log and print is off: the ledger, the spools and our own display take its place. Its files
lie in a temporary folder that goes with the sweep. Import this file after `cluster.configure`, never from the top of
another: Ray takes a second.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from analysis.names import DIVERGED, PAUSED
from orchestrator.record import environment
from orchestrator.record.ledger import FAILURE, PREEMPTION, Record
from orchestrator.record.spool import ERROR_FILE
from orchestrator.record.turn import starts
from orchestrator.sweep.silence import stacks
from orchestrator.sweep.sweep import Sweep
from orchestrator.sweep.trainable import CAUSE, METRICS, OUTCOME, STEP, VALUE, Job, run_trial

Trial = Any  # Tune's


@dataclass
class Context:
    """What the four hooks that Tune calls share."""

    sweep: Sweep
    home: Path
    folder: Path  # of the study
    stop: Callable[[], bool]  # the sweep is to end early
    records: dict[str, Record] = field(default_factory=dict)  # Tune's trial id -> ours
    starts: dict[str, int] = field(default_factory=dict)  # trial -> how often it was started before this time
    stopped: set[str] = field(default_factory=set)  # Tune's ids of trials that the scheduler ended

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its hooks into its own folder, and nobody reads them there."""
        return {}

    def trial_folder(self, record: Record) -> Path:
        return self.folder / "trials" / record.id

    def clear(self, record: Record) -> None:
        """Before a trial starts, for it may be lost before its process says anything: why it ended the last time."""
        folder = self.trial_folder(record)
        (folder / ERROR_FILE).unlink(missing_ok=True)
        self.starts[record.id] = starts(folder)

    def job(self, record: Record) -> Job:
        study = self.sweep.study
        return Job(
            spec=record.spec,
            folder=str(self.trial_folder(record)),
            cache=str(self.home / "cache"),
            metric=study.metric,
            rungs=self.sweep.rungs(record),
            pause_at=self.sweep.pause_at(record),
            changes=record.changes,
            cpus=study.resources.cpus,
            gpus=study.resources.gpus,
            workers=study.resources.workers,
            min_workers=study.resources.min_workers,
            commit=environment.commit(),
            attempt=self.sweep.attempt,
            silence=60 * study.budget.silence_minutes,
        )


def run(context: Context, concurrent: int) -> None:
    """Run what is left of a sweep in the Ray that is initialised, `concurrent` trials at a time."""
    resources = context.sweep.study.resources
    logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # it lists trials that were tried again as failed
    with tempfile.TemporaryDirectory(prefix="ancre-") as storage:
        tune.Tuner(
            tune.with_resources(run_trial, _shares),
            tune_config=tune.TuneConfig(
                search_alg=Source(context),
                scheduler=Rungs(context),
                num_samples=-1,  # until `Source` has no more
                max_concurrent_trials=concurrent,
                reuse_actors=resources.workers == 1,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=storage,
                callbacks=[Recorder(context)],
                stop=Brake(context),
                failure_config=tune.FailureConfig(max_failures=0),  # `Source` gives a trial again
                verbose=0,
            ),
        ).fit()


def _shares(config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    """What a trial's process takes, and each process that it starts itself."""
    job = Job(**json.loads(config["job"]))
    if job.workers > 1:  # they have shares of their own; who waits for them asks for a byte, as Tune wants something
        return tune.PlacementGroupFactory([{"CPU": 0, "memory": 1}])
    return tune.PlacementGroupFactory([{"CPU": job.cpus, "GPU": job.gpus}] * (1 + job.trial.helpers))


def _name(trial: Trial) -> str:
    return str(trial.trial_id)


class Source(Searcher):  # type: ignore[misc]
    """Gives Tune the next trial whenever there is room for one."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def suggest(self, trial_id: str) -> Any:
        record = self._context.sweep.next()
        if record is None:
            return None if self._context.sweep.waits else Searcher.FINISHED  # None: ask again
        self._context.records[trial_id] = record
        self._context.clear(record)
        return {"job": self._context.job(record).text()}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """`Recorder` hears of it with more detail."""

    def save(self, checkpoint_path: str) -> None:
        """The ledger has it."""

    def restore(self, checkpoint_path: str) -> None:
        """`Sweep` is rebuilt from the ledger."""


class Rungs(TrialScheduler):  # type: ignore[misc]
    """Asks the sweep at each rung; starts trials in the order that `Source` gives them."""

    def __init__(self, context: Context) -> None:
        super().__init__()
        self._context = context

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        record = self._context.records[trial.trial_id]
        if VALUE not in result or self._context.sweep.goes_on(record, result[STEP], result[VALUE]):
            return str(TrialScheduler.CONTINUE)
        self._context.stopped.add(trial.trial_id)
        return str(TrialScheduler.STOP)

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """None: Tune starts pending trials in their order, without looking through all trials first."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None: ...

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None: ...

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None: ...

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None: ...

    def debug_string(self) -> str:
        return ""


class Recorder(tune.Callback):  # type: ignore[misc]
    """Tells the sweep what became of each trial."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        self._context.sweep.started(self._context.records[trial.trial_id])

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        self._context.sweep.heard(self._context.records[trial.trial_id], result[STEP], result[METRICS])

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        record, report = self._context.records[trial.trial_id], trial.last_result
        if trial.trial_id in self._context.stopped:
            self._context.sweep.stopped(record)
        elif report[OUTCOME] == PAUSED:
            self._context.sweep.reached(record, report[VALUE])
        elif report[OUTCOME] == DIVERGED:
            self._context.sweep.diverged(record, report[CAUSE])
        else:
            self._context.sweep.finished(record)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        record = self._context.records[trial.trial_id]
        self._context.sweep.fell(record, *self._cause(record, trial))

    def _cause(self, record: Record, trial: Trial) -> tuple[str, str]:
        """Why in one line, which `ERROR_FILE` begins with, and the kind of fault."""
        folder = self._context.trial_folder(record)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ERROR_FILE
        number = starts(folder)  # as before where the process was lost before it came to ours
        if number > self._context.starts[record.id] and (written := stacks(folder, number)):
            minutes = self._context.sweep.study.budget.silence_minutes
            silent = f"no row for {minutes:g} minutes; its stacks are in {', '.join(file.name for file in written[:4])}"
            path.write_text("\n\n".join([silent, *(file.read_text() for file in written)]))
            return silent, FAILURE
        if path.exists():
            return path.read_text().partition("\n")[0], FAILURE
        lost = "its process was lost (killed, or out of memory)"
        path.write_text(f"{lost}\n\n{trial.get_error()}\n")
        return lost, PREEMPTION


class Brake(tune.Stopper):  # type: ignore[misc]
    """Ends the whole sweep early."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._context.stop()
