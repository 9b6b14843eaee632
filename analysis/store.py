"""What MLflow holds of a study, read into plain records: a study, its runs, their curves and artifacts.

Three ways lead to the same records, and tests compare them. A local `sqlite:///` store of a known layout and a server
that asks for no more than a password are read with the standard library, because importing mlflow alone takes longer
than the query (1 s); all else through MlflowClient. None writes. What is not a local file is kept in a cache.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from analysis import names

INFINITE = 1.797e308  # MLflow stores infinity as the largest float


class QueryError(ValueError):
    """A question that the store cannot answer. `str(error)` is one line for the user."""


@dataclass(frozen=True)
class RawRun:
    """One active MLflow run as both ways read it: its `ancre.*` tags and the last value of each metric."""

    run_id: str
    started: int  # milliseconds since the epoch
    ended: int | None  # the same; None while MLflow calls it running or scheduled
    artifact_uri: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]


Points = list[tuple[int, float]]  # (step, value), by step; of a step logged twice, the later value


class Backend(Protocol):
    """The four questions asked of a tracking store."""

    uri: str

    def experiments(self) -> dict[str, str]:
        """Active experiments, name -> id."""

    def runs(self, experiment: str) -> list[RawRun]:
        """All active runs of an experiment, oldest first."""

    def history(self, run_ids: Sequence[str], metric: str) -> dict[str, Points]:
        """The metric's curve of each run that logged it."""

    def download(self, run_id: str, artifact: str) -> Path | None:
        """A local copy of an artifact that is not on this machine; None where there is none."""


@dataclass(frozen=True)
class Run:
    """One trial as it was recorded."""

    id: str  # the trial: its cell and its seed
    run_id: str  # MLflow's
    cell: str
    arm: str
    seed: int
    state: str  # one of names.STATES
    cause: str | None
    workload: str
    axes: Mapping[str, Any]
    metrics: Mapping[str, float]  # the last value of each, NaN and infinity included
    steps: int | None  # the step of the last row of a trial that runs to its end
    spec_text: str | None  # JSON; None where only the artifact holds it
    artifact_uri: str
    started: int  # milliseconds since the epoch
    tags: Mapping[str, str] = field(repr=False)

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What changed on the way, as in names.CHANGES_FILE: then `axes` and the spec are what it began with."""
        return list(json.loads(self.tags.get(names.CHANGES, "[]")))

    def row(self) -> dict[str, Any]:
        """For a table or JSON: strict JSON values only."""
        metrics = {name: value if math.isfinite(value) else str(value) for name, value in self.metrics.items()}
        return {
            "trial": self.id,
            "run": self.run_id,
            "cell": self.cell,
            "arm": self.arm,
            "seed": self.seed,
            "state": self.state,
            "cause": self.cause,
            "axes": dict(self.axes),
            "changes": self.changes,
            "metrics": metrics,
        }


@dataclass(frozen=True)
class Study:
    """One study: what was planned, as far as it was recorded, and one record per trial, in the order they started."""

    name: str
    workload: str
    hypothesis: str | None
    metric: str | None
    mode: str
    seeds: tuple[int, ...]  # planned; where that is not recorded, the seeds seen
    arms: Mapping[str, Mapping[str, Any]]  # as names.ARMS; empty where not recorded
    published: str | None
    runs: tuple[Run, ...]
    read: int  # MLflow runs that were read
    run_id: str | None  # of the parent
    artifact_uri: str | None  # of the parent
    scheduler: Mapping[str, Any] = field(default_factory=dict)  # the study's table; empty where not recorded

    @property
    def races(self) -> bool:
        """Whether a configuration's other seeds run only once its first one has finished."""
        return bool(self.scheduler.get("race") == "first-seed")

    def lost_race(self, runs: Sequence[Run]) -> bool:
        """Of one configuration: its first seed ended early, so the others never run."""
        first = min(runs, key=lambda run: run.started)
        return self.races and first.state in (names.STOPPED, names.DIVERGED)


@dataclass(frozen=True)
class Store:
    """Reads studies out of one tracking store."""

    backend: Backend

    def names(self) -> list[str]:
        return sorted(set(self.backend.experiments()) - {"Default"})

    def study(self, name: str) -> Study:
        """All that the store holds of a study.

        Raises:
            QueryError: the store is empty, or has no such study, or not one run of it.
        """
        experiments = self.backend.experiments()
        if name not in experiments:
            place = f"the store at {redacted(self.backend.uri)}"
            if not self.names():
                raise QueryError(f"{place} holds no study yet")
            raise QueryError(f"no study {name!r} in {place}{near(name, self.names())}")
        raw = self.backend.runs(experiments[name])
        parents = [run for run in raw if run.tags.get(names.ROLE) == names.STUDY]
        parent = parents[-1] if parents else None
        runs = _once_each(_run(run) for run in raw if run.tags.get(names.ROLE) == names.TRIAL)
        if parent is None and not runs:
            raise QueryError(f"study {name!r} has no recorded run yet")
        return self._study(name, parent, runs, len(raw))

    def _study(self, name: str, parent: RawRun | None, runs: tuple[Run, ...], read: int) -> Study:
        tags = parent.tags if parent else {}
        seen = sorted({run.seed for run in runs})
        arms = tags.get(names.ARMS)
        if parent and arms is None:
            arms = self._text(parent.run_id, parent.artifact_uri, names.ARMS_FILE)
        return Study(
            name=name,
            workload=tags.get(names.WORKLOAD) or (runs[0].workload if runs else ""),
            hypothesis=tags.get(names.HYPOTHESIS),
            metric=tags.get(names.METRIC),
            mode=tags.get(names.MODE, "min"),
            seeds=tuple(json.loads(tags[names.PLANNED_SEEDS])) if names.PLANNED_SEEDS in tags else tuple(seen),
            arms=json.loads(arms) if arms else {},
            published=tags.get(names.PUBLISHED) or None,
            runs=runs,
            read=read,
            run_id=parent.run_id if parent else None,
            artifact_uri=parent.artifact_uri if parent else None,
            scheduler=json.loads(tags.get(names.SCHEDULER, "{}")),
        )

    def spec(self, run: Run) -> dict[str, Any]:
        """The whole trial spec of a run; empty where it was never recorded."""
        text = run.spec_text or self._text(run.run_id, run.artifact_uri, names.SPEC_FILE)
        spec: dict[str, Any] = json.loads(text) if text else {}
        return spec

    def topology(self, run: Run) -> dict[str, dict[str, Any]]:
        """The networks of a run's topology.json, name -> snapshot; empty where there is none.

        Raises:
            QueryError: the file is damaged.
        """
        text = self._text(run.run_id, run.artifact_uri, names.TOPOLOGY_FILE)
        try:
            networks: dict[str, dict[str, Any]] = json.loads(text)["networks"] if text else {}
        except (ValueError, KeyError, TypeError) as error:
            raise QueryError(f"{names.TOPOLOGY_FILE} of trial {run.id} cannot be read: {error!r}") from error
        return networks

    def samples(self, run: Run) -> bytes | None:
        """The PNG of images that a run drew last; None where there is none."""
        path = self._path(run.run_id, run.artifact_uri, names.SAMPLES_FILE)
        return path.read_bytes() if path else None

    def depths(self, run: Run) -> dict[str, Any]:
        """What a run saw at each depth when it last looked: "step", and a list for each of names.DEPTHS.

        Empty where it never looked.

        Raises:
            QueryError: the file is damaged.
        """
        text = self._text(run.run_id, run.artifact_uri, names.DEPTHS_FILE)
        try:
            looks = [json.loads(line) for line in (text or "").splitlines()]
            if not looks:
                return {}
            last = max(looks, key=lambda look: int(look["step"]))
            plain = {name: [math.nan if one is None else float(one) for one in last[name]] for name in names.DEPTHS}
            return {"step": int(last["step"]), **plain}
        except (ValueError, KeyError, TypeError) as error:
            raise QueryError(f"{names.DEPTHS_FILE} of trial {run.id} cannot be read: {error!r}") from error

    def study_file(self, study: Study) -> str | None:
        """The text of study.toml as it was started."""
        if study.run_id is None or study.artifact_uri is None:
            return None
        return self._text(study.run_id, study.artifact_uri, names.STUDY_FILE)

    def history(self, runs: Iterable[Run], metric: str) -> dict[str, Points]:
        """The metric's curve of each run, by MLflow run id."""
        curves = self.backend.history([run.run_id for run in runs], metric)
        return {run: [(step, _unclipped(value)) for step, value in points] for run, points in curves.items()}

    def _text(self, run_id: str, uri: str, artifact: str) -> str | None:
        path = self._path(run_id, uri, artifact)
        return path.read_text(encoding="utf-8") if path else None

    def _path(self, run_id: str, uri: str, artifact: str) -> Path | None:
        folder = local_folder(uri)
        path = folder / artifact if folder else self.backend.download(run_id, artifact)
        return path if path and path.is_file() else None


def open_store(uri: str | None = None, home: Path | None = None) -> Store:
    """The tracking store at `uri`, or where the environment says (`default_uri`).

    Args:
        uri: of the store.
        home: has the cache of what a server said; default: `default_home`.

    Raises:
        QueryError: there is no store, or it cannot be read.
    """
    from analysis.store_sqlite import SqliteBackend

    uri = uri or default_uri(home)
    if local := SqliteBackend.open(uri):
        return Store(local)
    from analysis.cache import CachedBackend
    from analysis.store_mlflow import MlflowBackend
    from analysis.store_rest import RestBackend

    source = RestBackend.open(uri) or MlflowBackend(uri)
    return Store(CachedBackend(source, (home or default_home()) / "cache" / "queries"))


def default_home() -> Path:
    """The home folder: ANCRE_HOME, else ./ancre-home."""
    return Path(os.environ.get("ANCRE_HOME") or "ancre-home")


def default_uri(home: Path | None = None) -> str:
    """MLFLOW_TRACKING_URI, else the sqlite file in the home folder (`default_home`).

    Raises:
        QueryError: a sqlite URI cannot say where that file is.
    """
    if given := os.environ.get("MLFLOW_TRACKING_URI"):
        return given
    path = (home or default_home()).absolute() / "mlflow.db"
    if not _PLAIN_SQLITE.fullmatch(uri := f"sqlite:///{path}"):
        raise QueryError(
            f"MLflow's store cannot be at {str(path)!r}: ? and % mean something else in its URI; "
            "rename the folder, choose another home, or set MLFLOW_TRACKING_URI"
        )
    return uri


_PLAIN_SQLITE = re.compile(r"sqlite:///([^?%]+)", re.DOTALL)
_LOGIN = re.compile(r"(?<!sqlite)://.*@", re.DOTALL)  # up to the last @: a password may hold any of / : @
_SECRET = re.compile(r"([\w-]*(?:password|passwd|pwd|token|secret|key)[\w-]*=)[^&\s'\"]+", re.IGNORECASE)


def sqlite_file(uri: str) -> Path | None:
    """The file of a sqlite URI; None for a server, and where only SQLAlchemy knows which file is meant."""
    found = _PLAIN_SQLITE.fullmatch(uri)
    return Path(found[1]) if found else None


def redacted(text: str) -> str:
    """A URI, or a text with URIs in it, without logins and secrets. Of a text, too much may go."""
    return _SECRET.sub(r"\1***", _LOGIN.sub("://***@", text))


def near(word: str, known: Iterable[str]) -> str:
    """The end of an error line: the nearest of `known`, then the first ten of them."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    rest = ", .." if len(known) > 10 else ""
    return f"{hint} (there are: {', '.join(known[:10])}{rest})" if known else hint


def local_folder(uri: str) -> Path | None:
    """The folder of an artifact URI on this machine, None for a remote one."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(uri)


def _run(raw: RawRun) -> Run:
    tags = raw.tags
    try:
        return Run(
            id=tags[names.TRIAL_ID],
            run_id=raw.run_id,
            cell=tags[names.CELL],
            arm=tags[names.ARM],
            seed=int(tags[names.SEED]),
            state=tags.get(names.STATE, names.RUNNING),
            cause=tags.get(names.CAUSE) or None,
            workload=tags.get(names.WORKLOAD, ""),
            axes=json.loads(tags.get(names.AXES, "{}")),
            metrics={key: _unclipped(value) for key, value in raw.metrics.items()},
            steps=int(tags[names.STEPS]) if names.STEPS in tags else None,
            spec_text=tags.get(names.SPEC),
            artifact_uri=raw.artifact_uri,
            started=raw.started,
            tags=tags,
        )
    except (KeyError, ValueError) as error:
        raise QueryError(f"MLflow run {raw.run_id} is no trial that can be read: {error!r} in its tags") from error


def _unclipped(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= INFINITE else value


def _once_each(runs: Iterable[Run]) -> tuple[Run, ...]:
    """One run per trial: after a killed driver two may carry its id; the further one, then the later one, counts."""
    kept: dict[str, Run] = {}
    for run in runs:
        other = kept.get(run.id)
        if other is None or _further(run) >= _further(other):
            kept[run.id] = run
    return tuple(kept.values())


def _further(run: Run) -> int:
    return {names.FINISHED: 2, names.RUNNING: 0, names.PAUSED: 0}.get(run.state, 1)
