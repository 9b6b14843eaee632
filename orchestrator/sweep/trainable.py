"""What runs in a trial's process: the workload's rows go to the spool first, then, when it matters, to Ray Tune.

Tune hears of a trial when its scheduler has to decide (a rung), about once a second (progress), and at the end.
Everything else is on disk already, so that a small trial does not wait for the driver at each row.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.names import DEPTHS_FILE, DIVERGED, ENVIRONMENT_FILE, FINISHED, SPEC_FILE, TOPOLOGY_FILE, TRAIN_LOSS
from models import snapshot
from orchestrator import kinds
from orchestrator.errors import Diverged, one_line
from orchestrator.record import environment, jsonl, log, spool
from orchestrator.record.spool import ERROR_FILE, ROWS_FILE
from orchestrator.workloads.base import Place, Row, TrialSpec

REPORT_EVERY = 1.0  # seconds
LOSSES = 8  # of workers or machines, after which an elastic trial is started again as a whole
TRAIN_FOLDER = "ray-train"  # Ray Train's own files, while it runs

# What a report to Tune holds.
STEP = "step"
VALUE = "value"  # the study's metric at a rung; absent otherwise
METRICS = "metrics"  # the last value of each
OUTCOME = "outcome"  # in the last report: FINISHED or DIVERGED
CAUSE = "cause"


@dataclass(frozen=True)
class Job:
    """One trial as it is sent to its process: plain text, so that Tune neither resolves nor flattens anything in it."""

    spec: dict[str, Any]
    folder: str
    cache: str
    metric: str  # of the study
    rungs: list[int]  # steps at which the scheduler decides
    cpus: int  # of one worker
    gpus: float
    workers: int
    min_workers: int  # with which it goes on where machines are lost; 0: all
    commit: str

    def text(self) -> str:
        return json.dumps(asdict(self))

    @property
    def trial(self) -> TrialSpec:
        spec: type[TrialSpec] = kinds.find("workload", self.spec["workload"])  # type: ignore[assignment]
        return spec.model_validate(self.spec)

    @property
    def place(self) -> Place:
        return Place(Path(self.folder), Path(self.cache), self.cpus, self.gpus)


def run_trial(config: dict[str, Any]) -> None:
    """The one function that Tune runs."""
    from ray import tune

    job = Job(**json.loads(config["job"]))
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ERROR_FILE).unlink(missing_ok=True)
    jsonl.replace(folder / SPEC_FILE, json.dumps(job.spec).encode())
    try:
        with log.caught(folder / log.TRIAL_FILE):
            report = _run_spread(job) if job.workers > 1 else _run_here(job)
    except Exception as error:
        if not (folder / ERROR_FILE).exists():  # a worker may have said it better
            _tell(folder, error)
        raise
    tune.report(report | {"done": True})


def _tell(folder: Path, error: Exception) -> None:
    """Leave the cause in one line, and the traceback under it."""
    (folder / ERROR_FILE).write_text(f"{one_line(error)}\n\n{traceback.format_exc()}")


def _run_here(job: Job) -> dict[str, Any]:
    from ray import tune

    run = Run(job)
    for row in run.rows():
        due = run.due(row)
        if due is not None:
            tune.report(due)
    return run.last_report()


class Run:
    """A trial in the process that writes its files."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._folder = Path(job.folder)
        self._trial = job.trial
        self._rungs = list(job.rungs)
        self._before = spool.rows(self._folder)  # of an earlier start
        self._step = 0
        self._metrics: dict[str, float] = {}
        self._topology: Mapping[str, Any] | None = None  # not on disk yet
        self._outcome: dict[str, Any] = {OUTCOME: FINISHED}
        self._reported = time.monotonic()

    def rows(self) -> Iterator[Row]:
        """The trial's rows, each on disk before it is yielded. Ends early where the trial diverges."""
        use_threads(self._job.cpus)
        written, depths = spool.Spool(self._folder / ROWS_FILE), spool.Spool(self._folder / DEPTHS_FILE)
        first = True
        try:
            for row in self._trial.rows(self._job.place):
                if first:
                    self._begin(row.step)
                    first = False
                written.append(row.step, spool.row(row.time, row.metrics))
                if row.depths:
                    depths.append(row.step, {name: [*map(_plain, values)] for name, values in row.depths.items()})
                for name, content in (row.files or {}).items():
                    jsonl.replace(self._folder / name, content)
                self._step = row.step
                self._metrics |= row.metrics
                self._topology = row.topology or self._topology
                check_finite(row, self._job.metric)
                yield row
            if first:  # it was killed after its last step, and before anyone heard of it
                self._take_up(math.inf)
        except Diverged as diverged:
            self._step = diverged.step
            self._outcome = {OUTCOME: DIVERGED, CAUSE: str(diverged)}
        finally:
            written.close()
            depths.close()
            self._write_topology()

    def _begin(self, step: int) -> None:
        """Before the first row is written. By now the workload has loaded what it uses."""
        described = environment.describe(self._job.commit)
        jsonl.replace(self._folder / ENVIRONMENT_FILE, json.dumps(described, indent=1).encode())
        self._take_up(step)

    def _take_up(self, step: float) -> None:
        """What an earlier start did before the step from which this one goes on."""
        for row in self._before:
            if row["step"] < step:
                self._step = row["step"]
                self._metrics |= jsonl.numbers(row["metrics"])

    def _write_topology(self) -> None:
        if self._topology is not None:
            jsonl.replace(self._folder / TOPOLOGY_FILE, snapshot.dump(self._topology))
            self._topology = None

    def due(self, row: Row) -> dict[str, Any] | None:
        """What Tune has to hear now, if anything. The last row goes with `last_report`."""
        if row.step >= self._trial.total_steps:
            return None
        at_rung = self._rungs and row.step >= self._rungs[0] and self._job.metric in row.metrics
        if not at_rung and time.monotonic() < self._reported + REPORT_EVERY:
            return None
        self._reported = time.monotonic()
        self._write_topology()
        report = {STEP: row.step, METRICS: dict(self._metrics)}
        if at_rung:
            self._rungs = [rung for rung in self._rungs if rung > row.step]
            report[VALUE] = row.metrics[self._job.metric]
        return report

    def last_report(self) -> dict[str, Any]:
        return {STEP: self._step, METRICS: dict(self._metrics), **self._outcome}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def check_finite(row: Row, metric: str) -> None:
    """A loss or a ranking value that is not finite ends the trial. Raises Diverged."""
    for name in (TRAIN_LOSS, metric):
        if not math.isfinite(row.metrics.get(name, 0.0)):
            raise Diverged(row.step, name)


def use_threads(count: int) -> None:
    """Torch's thread pool as large as the trial's share of the machine: a larger one slows every neighbour down."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(count)


# --- more than one worker: the loop runs in Ray Train's workers, this process waits for them ------------------------


def _run_spread(job: Job) -> dict[str, Any]:
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    storage = Path(job.folder) / TRAIN_FOLDER
    shutil.rmtree(storage, ignore_errors=True)  # or Ray Train would take up the run of a killed trial
    share = {"CPU": job.cpus} | ({"GPU": job.gpus} if job.gpus else {})
    trainer = TorchTrainer(
        _train,
        train_loop_config={"job": job.text()},
        torch_config=TorchConfig(backend="nccl" if job.gpus else "gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=(job.min_workers, job.workers) if job.min_workers else job.workers,
            use_gpu=job.gpus > 0,
            resources_per_worker=share,
        ),
        # A lost worker fails the run, and Tune starts the trial again from its newest checkpoint; unless it is to go on
        # with the workers that are left, which Ray Train sees to.
        run_config=ray.train.RunConfig(
            name="run",
            storage_path=str(storage),
            callbacks=[TuneReportCallback()],
            failure_config=ray.train.FailureConfig(max_failures=LOSSES if job.min_workers else 0),
        ),
    )
    try:
        report: dict[str, Any] = trainer.fit().return_value
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    return report


def _train(config: dict[str, Any]) -> dict[str, Any]:
    """One of Ray Train's workers. All iterate; the first one writes, and what it reports reaches Tune."""
    import ray.train

    job = Job(**json.loads(config["job"]))
    rank = ray.train.get_context().get_world_rank()
    try:
        with log.caught(Path(job.folder) / log.WORKER_FILE.format(rank)):
            return _follow(job) if rank > 0 else _lead(job)
    except Exception as error:
        _tell(Path(job.folder), error)
        raise


def _lead(job: Job) -> dict[str, Any]:
    run = Run(job)
    for row in run.rows():
        _report(run.due(row))
    return run.last_report()


def _follow(job: Job) -> dict[str, Any]:
    use_threads(job.cpus)
    try:
        for row in job.trial.rows(job.place):
            check_finite(row, job.metric)
            _report(None)
    except Diverged:
        pass
    return {}


def _report(due: dict[str, Any] | None) -> None:
    """Tell Tune what worker 0 has to tell: Ray Train takes few reports a second, and of all workers at once."""
    import ray.train

    from orchestrator.pretrain.parallel import Workers

    (report, *_) = Workers.here().all(due)
    if report is not None:
        ray.train.report(report)
