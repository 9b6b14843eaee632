"""The general way: any tracking server, through MlflowClient, page by page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analysis.store import Points, QueryError, RawRun, redacted

PAGE = 1000  # search_runs returns no more than this unless asked, and does not say that there is more


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
        found = _pages(self._client.search_runs, experiment_ids=[experiment])
        runs = [
            RawRun(
                run_id=run.info.run_id,
                started=run.info.start_time or 0,
                artifact_uri=run.info.artifact_uri or "",
                tags={key: value for key, value in run.data.tags.items() if key.startswith("ancre.")},
                metrics=run.data.metrics,
            )
            for run in found
        ]
        return sorted(runs, key=lambda run: (run.started, run.run_id))

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


def _pages(search: Any, **asked: Any) -> Iterator[Any]:
    """Every item of a paged MLflow search."""
    token = None
    while True:
        page = search(**asked, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
