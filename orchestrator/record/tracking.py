"""How a trial looks in MLflow: one run under the study's run, found by its tag before it is made, written in batches.

Nothing here runs in the sweep's own processes: `orchestrator.record.uploader` calls it, from the ledger and the spools,
as often as it takes. Sending twice leaves one copy: runs are looked up by tag, rows by step, and every point has its
row's own time.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from analysis import names
from analysis.store import QueryError, default_uri, redacted, sqlite_file
from orchestrator.errors import InputError
from orchestrator.record.ledger import Record

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

PARENT = "mlflow.parentRunId"
LONGEST_NAME = 250  # characters of a metric's or param's name
LONGEST_PARAM = 6000  # characters of a param's value
LARGEST_REQUEST = 1000  # metrics, params and tags together
LARGEST_PARAMS = 100  # params of one request
BATCH = 800  # values of rows in one request
PAGE = 5000  # runs of one search request

# MLflow knows four ends; the tag ancre.state says which of ours it was.
STATUS = {
    names.RUNNING: "RUNNING",
    names.FINISHED: "FINISHED",
    names.STOPPED: "KILLED",
    names.PAUSED: "KILLED",
    names.DIVERGED: "FAILED",
    names.FAILED: "FAILED",
}


def uri_of(home: Path) -> str:
    """MLFLOW_TRACKING_URI, or the sqlite file in the home folder.

    Raises:
        InputError: no sqlite file can be there, or a server's URI has no port that is a number.
    """
    try:
        uri = default_uri(home)
    except QueryError as error:
        raise InputError(str(error)) from error
    file = sqlite_file(uri)
    if file is not None and file.is_dir():  # MLflow would try to open it for minutes
        raise InputError(f"{file} is a folder where MLflow's database should be: move it away")
    if uri.startswith(("http://", "https://")):
        _check_port(uri)
    return uri


def _check_port(uri: str) -> None:
    """A password that is not escaped looks like a port, and whoever tries to connect would show it."""
    try:
        _ = urlsplit(uri).port
    except ValueError:
        raise InputError(
            f"MLFLOW_TRACKING_URI {redacted(uri)}: its port is no number; in a password, write / as %2F and @ as %40"
        ) from None


def safe_name(name: str) -> str:
    """The nearest name that MLflow takes: letters, digits and _-.:/ and space, no path that leads elsewhere."""
    name = re.sub(r"[^\w\-./: ]", "_", name)[:LONGEST_NAME].strip() or "_"
    plain = normpath(name).strip("./")
    return plain if plain else "_"


def points(rows: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """The finite values of rows as MLflow's metrics; MLflow would store infinity as 1.8e308."""
    from mlflow.entities import Metric

    for row in rows:
        for name, value in row["metrics"].items():
            if not isinstance(value, str):
                yield Metric(safe_name(name), value, round(row["time"] * 1000), row["step"])


def params(record: Record) -> dict[str, str]:
    """The leaves of a trial's spec, by their dotted path."""
    return {safe_name(path): _text(value)[:LONGEST_PARAM] for path, value in _leaves(record.spec)}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def trial_tags(study: str, record: Record) -> dict[str, str]:
    """What makes a run findable, known before its trial starts."""
    tags = {
        names.ROLE: names.TRIAL,
        names.STUDY_NAME: study,
        names.WORKLOAD: record.spec["workload"],
        names.TRIAL_ID: record.id,
        names.CELL: record.cell,
        names.ARM: record.arm,
        names.SEED: str(record.seed),
        names.STEPS: str(record.steps),
        names.AXES: json.dumps(record.axes),
        names.SPEC: json.dumps(record.spec),
    }
    return {tag: value for tag, value in tags.items() if len(value) <= names.SPEC_LIMIT}


def axis_points(record: Record) -> list[Metric]:
    """Numeric axes, so that MLflow can compare them: its params are text."""
    from mlflow.entities import Metric

    numeric = {axis: value for axis, value in record.axes.items() if type(value) in (int, float)}
    started = round(record.started * 1000)
    return [Metric(safe_name(names.AXIS_METRIC + axis), value, started, 0) for axis, value in numeric.items()]


@dataclass
class Run:
    """What MLflow has of one run."""

    id: str
    status: str = "RUNNING"
    tags: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    metrics: set[str] = field(default_factory=set)


class Runs:
    """One study's runs in one tracking store. Every method may raise what MLflow and the network raise.

    Only what a run lacks is written, so whatever was cut short goes on where it stopped when it is done again.
    """

    def __init__(self, uri: str, study: str, tags: Mapping[str, str], artifacts: Path) -> None:
        from mlflow.tracking import MlflowClient

        self._study = study
        self._client: MlflowClient = MlflowClient(uri)
        self._experiment = self._find_experiment(uri, artifacts)
        parent = self._search({names.ROLE: names.STUDY})
        self.new = not parent  # whether the study had no run before
        self.parent = parent[0] if parent else self._create(tags, study, time.time())
        self.write(self.parent, [], {}, tags)
        self.set_status(self.parent, "RUNNING")

    def _find_experiment(self, uri: str, artifacts: Path) -> str:
        found = self._client.get_experiment_by_name(self._study)
        if found is not None:
            return str(found.experiment_id)
        local = uri.startswith("sqlite:")
        location = (artifacts / self._study).absolute().as_uri() if local else None
        return str(self._client.create_experiment(self._study, artifact_location=location))

    def _search(self, tags: Mapping[str, str]) -> list[Run]:
        wanted = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in tags.items())
        found: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs([self._experiment], wanted, max_results=PAGE, page_token=token)
            for run in page:
                data = run.data
                found.append(Run(run.info.run_id, run.info.status, data.tags, set(data.params), set(data.metrics)))
            token = page.token
            if not token:
                return found

    def _create(self, tags: Mapping[str, str], name: str, started: float) -> Run:
        run = self._client.create_run(self._experiment, round(started * 1000), dict(tags), run_name=name)
        return Run(run.info.run_id, tags=dict(tags))

    def find_all(self) -> dict[str, Run]:
        """The runs of all trials that have one, by the trial's id."""
        found = [] if self.new else self._search({names.ROLE: names.TRIAL})
        return {run.tags[names.TRIAL_ID]: run for run in reversed(found)}  # of two, the later

    def find(self, trial: str) -> Run | None:
        """The run of a trial, if it has one."""
        found = self._search({names.ROLE: names.TRIAL, names.TRIAL_ID: trial})
        return found[0] if found else None

    def create(self, record: Record, tags: Mapping[str, str]) -> Run:
        name = f"{record.arm} s{record.seed} {record.cell}"
        return self._create({**tags, PARENT: self.parent.id}, name, record.started)

    def last_step(self, run: Run) -> int:
        """The last step that a run has points of; -1 where it has none."""
        rows = [name for name in run.metrics if not name.startswith(names.AXIS_METRIC)]
        return max((point.step for name in rows for point in self._client.get_metric_history(run.id, name)), default=-1)

    def write(self, run: Run, metrics: Sequence[Metric], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Add to a run, in as few requests as MLflow's limits allow."""
        from mlflow.entities import Param, RunTag

        listed = [Param(name, value) for name, value in params.items() if name not in run.params]
        labels = [RunTag(name, value) for name, value in tags.items() if run.tags.get(name) != value]
        while metrics or listed or labels:
            part = listed[:LARGEST_PARAMS]
            room = LARGEST_REQUEST - len(part) - len(labels)
            self._client.log_batch(run.id, metrics[:room], part, labels)
            run.params.update(param.key for param in part)
            run.tags.update({label.key: label.value for label in labels})
            run.metrics.update(metric.key for metric in metrics[:room])
            metrics, listed, labels = metrics[room:], listed[LARGEST_PARAMS:], []

    def attach(self, run: Run, files: Sequence[Path]) -> None:
        for file in files:
            self._client.log_artifact(run.id, str(file))

    def set_status(self, run: Run, status: str, ended: float = 0.0) -> None:
        if run.status == status:
            return
        if status == "RUNNING":
            self._client.update_run(run.id, status)
        else:
            self._client.set_terminated(run.id, status, round(ended * 1000))
        run.status = status


def non_finite(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Metric -> how many of its values are not finite, and the step of the first."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        for name, value in row["metrics"].items():
            if isinstance(value, str) or not math.isfinite(value):
                found.setdefault(name, {"count": 0, "first": row["step"]})["count"] += 1
    return found
