"""The fast way: MLflow's tables in a local sqlite file, read with the standard library.

Only for layouts that were compared with MlflowClient; any other revision of MLflow's schema goes through the client.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.store import Points, QueryError, RawRun, sqlite_file

REVISIONS = {"dc11669786a5"}  # of MLflow's schema (table alembic_version): 3.17
BUSY_SECONDS = 20.0  # a writer may hold the file for seconds
CHUNK = 500  # ids in one statement

ACTIVE = "SELECT run_uuid FROM runs WHERE experiment_id = ? AND lifecycle_stage = 'active'"


class SqliteBackend:
    """Reads one sqlite file, which another process may be writing."""

    def __init__(self, uri: str, connection: sqlite3.Connection) -> None:
        self.uri = uri
        self._connection = connection

    @classmethod
    def open(cls, uri: str) -> SqliteBackend | None:
        """The store in a sqlite file; None where `uri` is no plain sqlite file of a known revision.

        Raises:
            QueryError: there is no such file, or it is no MLflow store.
        """
        path = sqlite_file(uri)
        if path is None:
            return None
        if not path.is_file():
            raise QueryError(f"no store at {path}: no study was recorded there yet")
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            revisions = {row[0] for row in connection.execute("SELECT version_num FROM alembic_version")}
        except sqlite3.DatabaseError as error:
            raise QueryError(f"{path} is no MLflow store: {error}") from error
        return cls(uri, connection) if revisions and revisions <= REVISIONS else None

    def experiments(self) -> dict[str, str]:
        """Active experiments of the default workspace, name -> id."""
        rows = self._connection.execute(
            "SELECT name, experiment_id FROM experiments WHERE lifecycle_stage = 'active' AND workspace = 'default'"
        )
        return {name: str(identity) for name, identity in rows}

    def runs(self, experiment: str) -> list[RawRun]:
        tags: defaultdict[str, dict[str, str]] = defaultdict(dict)
        select = f"SELECT run_uuid, key, value FROM tags WHERE run_uuid IN ({ACTIVE}) AND key LIKE 'ancre.%'"
        for run, key, value in self._connection.execute(select, (experiment,)):
            tags[run][key] = value
        metrics: defaultdict[str, dict[str, float]] = defaultdict(dict)
        select = f"SELECT run_uuid, key, value, is_nan FROM latest_metrics WHERE run_uuid IN ({ACTIVE})"
        for run, key, value, is_nan in self._connection.execute(select, (experiment,)):
            metrics[run][key] = float("nan") if is_nan else value
        select = (
            "SELECT run_uuid, start_time, CASE WHEN status IN ('RUNNING', 'SCHEDULED') THEN NULL"
            " ELSE coalesce(end_time, 0) END, artifact_uri FROM runs"
            " WHERE experiment_id = ? AND lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
        )
        return [
            RawRun(run, started or 0, ended, uri or "", tags[run], metrics[run])
            for run, started, ended, uri in self._connection.execute(select, (experiment,))
        ]

    def history(self, run_ids: Sequence[str], metric: str) -> dict[str, Points]:
        curves: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for ids in (run_ids[start : start + CHUNK] for start in range(0, len(run_ids), CHUNK)):
            marks = ", ".join("?" * len(ids))
            rows: Iterable[Any] = self._connection.execute(
                f"SELECT run_uuid, step, value, is_nan FROM metrics WHERE key = ? AND run_uuid IN ({marks})"
                " ORDER BY step, timestamp",
                (metric, *ids),
            )
            for run, step, value, is_nan in rows:
                curves[run][step] = float("nan") if is_nan else value
        return {run: list(points.items()) for run, points in curves.items()}

    def download(self, run_id: str, artifact: str) -> Path | None:
        from analysis.store_mlflow import MlflowBackend

        return MlflowBackend(self.uri).download(run_id, artifact)
