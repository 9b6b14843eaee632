"""The quick way to a server: MLflow's REST API asked with the standard library, over one connection.

Only where a URI, and a name and password or a token in the environment, are all that a request needs. A server that
wants more, or does not answer as expected at first, is left to MlflowClient.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from analysis.pages import OPEN, ORDER, PAGE, every
from analysis.store import Points, QueryError, RawRun, redacted

TIMEOUT = 120.0  # seconds, as MLflow's own
UNDERSTOOD = {f"MLFLOW_TRACKING_{word}" for word in ("URI", "USERNAME", "PASSWORD", "TOKEN", "DIR")}
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # certificates that MlflowClient trusts
CREDENTIALS = Path(".mlflow") / "credentials"  # in the user's folder: only MlflowClient reads it


class RestBackend:
    """Reads a tracking server at an http or https URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        parts = urlsplit(uri)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT)
        self._path = f"{parts.path.rstrip('/')}/api/2.0/mlflow"
        self._headers = {"Content-Type": "application/json"} | _login(uri)

    @classmethod
    def open(cls, uri: str) -> RestBackend | None:
        """The store at `uri`; None where only MlflowClient knows how to ask it."""
        if not uri.startswith(("http://", "https://")) or not _plain(uri, os.environ):
            return None
        try:
            backend = cls(uri)
            backend.experiments()
        except (QueryError, ValueError):
            return None
        return backend

    def experiments(self) -> dict[str, str]:
        found: list[Any] = []
        token = ""
        while not found or token:
            answer = self._ask("experiments/search", {"max_results": PAGE, "page_token": token})
            found += answer.get("experiments", [])
            token = answer.get("next_page_token", "")
            if not found:
                break
        return {experiment["name"]: experiment["experiment_id"] for experiment in found}

    def runs(self, experiment: str) -> list[RawRun]:
        return every(self, experiment)

    def page(
        self, experiment: str, filter: str = "", token: str = "", size: int = PAGE, deleted: bool = False
    ) -> tuple[list[RawRun], str]:
        asked = {
            "experiment_ids": [experiment],
            "filter": filter,
            "run_view_type": "DELETED_ONLY" if deleted else "ACTIVE_ONLY",
            "max_results": size,
            "order_by": ORDER,
            "page_token": token,
        }
        answer = self._ask("runs/search", asked)
        return [_raw(run) for run in answer.get("runs", [])], answer.get("next_page_token", "")

    def history(self, run_ids: Sequence[str], metric: str) -> dict[str, Points]:
        curves = {run: self._points(run, metric) for run in run_ids}
        return {run: points for run, points in curves.items() if points}

    def _points(self, run: str, metric: str) -> Points:
        found: list[Any] = []
        token: str | None = ""
        while token is not None:
            asked = {"run_id": run, "metric_key": metric} | ({"page_token": token} if token else {})
            answer = self._ask(f"metrics/get-history?{urlencode(asked)}")
            found += answer.get("metrics", [])
            token = answer.get("next_page_token") or None
        points = sorted(found, key=lambda point: (int(point.get("step", 0)), int(point["timestamp"])))
        return list({int(point.get("step", 0)): float(point["value"]) for point in points}.items())

    def download(self, run_id: str, artifact: str) -> Path | None:
        from analysis.store_mlflow import MlflowBackend

        return MlflowBackend(self.uri).download(run_id, artifact)

    def _ask(self, question: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the server answers, once more where it had closed the connection."""
        try:
            try:
                status, text = self._send(question, body)
            except (ConnectionError, HTTPException):
                self._connection.close()
                status, text = self._send(question, body)
            answer = json.loads(text)
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreadable(str(error) or type(error).__name__) from error
        if status != 200 or not isinstance(answer, dict):
            raise self._unreadable(str(answer.get("message", status) if isinstance(answer, dict) else status))
        return answer

    def _send(self, question: str, body: Mapping[str, Any] | None) -> tuple[int, bytes]:
        method, text = ("GET", None) if body is None else ("POST", json.dumps(body))
        self._connection.request(method, f"{self._path}/{question}", text, self._headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def _unreadable(self, why: str) -> QueryError:
        line = (why.strip().splitlines() or ["no answer"])[0][:300]
        return QueryError(f"the store at {redacted(self.uri)} cannot be read: {redacted(line)}")


def _plain(uri: str, environment: Mapping[str, str]) -> bool:
    """Whether nothing is set that changes how MLflow asks."""
    asked = {name for name in environment if name.startswith("MLFLOW_TRACKING_") and environment[name]}
    changing = ["MLFLOW_WORKSPACE", *PROXIES, *map(str.upper, PROXIES), *(BUNDLES if uri.startswith("https") else ())]
    others = any(environment.get(name) for name in changing)
    return asked <= UNDERSTOOD and not others and not (Path.home() / CREDENTIALS).exists()


def _login(uri: str) -> dict[str, str]:
    """The header that says who asks: of the environment, else of the URI."""
    parts = urlsplit(uri)
    name, password = (os.environ.get(f"MLFLOW_TRACKING_{word}") for word in ("USERNAME", "PASSWORD"))
    if not (name and password) and parts.username is not None:
        name, password = unquote(parts.username), unquote(parts.password or "")
    if name and password:
        return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _raw(run: Mapping[str, Any]) -> RawRun:
    info, data = run["info"], run.get("data", {})
    return RawRun(
        run_id=info["run_id"],
        started=int(info.get("start_time", 0)),
        ended=None if info.get("status") in OPEN else int(info.get("end_time", 0)),
        artifact_uri=info.get("artifact_uri", ""),
        tags={tag["key"]: tag["value"] for tag in data.get("tags", []) if tag["key"].startswith("ancre.")},
        metrics={metric["key"]: float(metric["value"]) for metric in data.get("metrics", [])},
    )
