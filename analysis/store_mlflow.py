"""The general way: any tracking server, through MlflowClient, page by page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.pages import OPEN, ORDER, PAGE, every
from analysis.store import Points, QueryError, RawRun, redacted


class MlflowBackend:
    """Reads any tracking URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # else a dead server is asked for four minutes
        from mlflow.tracking import MlflowClient

        try:
            self._client = MlflowClient(uri)
        except Exception as error:
            raise self._unreadable(error) from error

    def experiments(self) -> dict[str, str]:
        try:
            found = list(_pages(self._client.search_experiments))
        except Exception as error:
            raise self._unreadable(error) from error
        return {experiment.name: experiment.experiment_id for experiment in found}

    def runs(self, experiment: str) -> list[RawRun]:
        return every(self, experiment)

    def page(
        self, experiment: str, filter: str = "", token: str = "", size: int = PAGE, deleted: bool = False
    ) -> tuple[list[RawRun], str]:
        from mlflow.entities import ViewType

        view = ViewType.DELETED_ONLY if deleted else ViewType.ACTIVE_ONLY
        try:
            found = self._client.search_runs([experiment], filter, view, size, ORDER, token or None)
        except Exception as error:
            raise self._unreadable(error) from error
        return [_raw(run) for run in found], found.token or ""

    def history(self, run_ids: Sequence[str], metric: str) -> dict[str, Points]:
        curves = {}
        for run in run_ids:
            points = sorted(
                self._client.get_metric_history(run, metric), key=lambda point: (point.step, point.timestamp)
            )
            if points:
                curves[run] = list({point.step: point.value for point in points}.items())
        return curves

    def download(self, run_id: str, artifact: str) -> Path | None:
        if artifact not in {item.path for item in self._client.list_artifacts(run_id)}:
            return None
        return Path(self._client.download_artifacts(run_id, artifact))

    def _unreadable(self, error: Exception) -> QueryError:
        line = str(error).strip().splitlines() or [type(error).__name__]
        return QueryError(f"the store at {redacted(self.uri)} cannot be read: {redacted(line[0])}")


def _raw(run: Any) -> RawRun:
    return RawRun(
        run_id=run.info.run_id,
        started=run.info.start_time or 0,
        ended=None if run.info.status in OPEN else run.info.end_time or 0,
        artifact_uri=run.info.artifact_uri or "",
        tags={key: value for key, value in run.data.tags.items() if key.startswith("ancre.")},
        metrics=run.data.metrics,
    )


def _pages(search: Any, **asked: Any) -> Iterator[Any]:
    """Every item of a paged MLflow search."""
    token = None
    while True:
        page = search(**asked, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
