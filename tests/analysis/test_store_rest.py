"""A real tracking server, asked with the standard library: the records of the other ways; and what is kept of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis import names, pages, store_rest
from analysis.cache import CachedBackend
from analysis.store import QueryError, Store, open_store
from analysis.store_mlflow import MlflowBackend
from analysis.store_rest import RestBackend
from analysis.store_sqlite import SqliteBackend

SERVER = Path(__file__).parents[1] / "faults" / "flaky_server.py"
STUDIES = ["small", "mixed", "linear", "all-nan", "just-started", "no-parent", "hostile", "large-spec"]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("MLFLOW_") or name.lower() in store_rest.PROXIES]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def server(store: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URI; it serves a copy of the store."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(store.folder / "mlflow.db", folder / "server.db")
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout
    yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()
    process.stdout.close()


def comparable(study: Any) -> Any:
    """NaN is not equal to itself."""
    runs = [repr(sorted(run.metrics.items())) for run in study.runs]
    return runs, [{**vars(run), "metrics": None} for run in study.runs], {**vars(study), "runs": None}


def test_a_server_gives_what_its_store_holds(server: str, store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 5)
    there, here = RestBackend.open(server), SqliteBackend.open(store.uri)
    assert there is not None and here is not None
    assert there.experiments() == here.experiments()
    for name in STUDIES:
        assert comparable(Store(there).study(name)) == comparable(Store(here).study(name))
    runs = Store(here).study("small").runs
    assert Store(there).history(runs, names.VAL_PERPLEXITY) == Store(here).history(runs, names.VAL_PERPLEXITY)
    assert [run.ended is None for run in there.runs(there.experiments()["small"])] == [True] * 13


def test_what_is_kept_follows_the_server(server: str, tmp_path: Path) -> None:
    reader = open_store(server, tmp_path)
    backend = reader.backend
    assert isinstance(backend, CachedBackend) and isinstance(backend.source, RestBackend)
    client = MlflowBackend(server)._client

    def agree() -> int:
        kept, now = reader.study("small"), Store(MlflowBackend(server)).study("small")
        assert comparable(kept) == comparable(now)
        return len(kept.runs)

    first = agree()
    run = reader.study("small").runs[3]
    client.set_terminated(run.run_id)
    client.set_tag(reader.study("small").runs[5].run_id, names.CAUSE, "open runs are read again")
    assert agree() == first
    client.delete_run(run.run_id)
    assert agree() == first - 1
    client.restore_run(run.run_id)
    assert agree() == first
    (file,) = (tmp_path / "cache" / "queries").iterdir()
    file.write_bytes(b"damaged")
    assert agree() == first


def test_no_server_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert RestBackend.open("http://127.0.0.1:9") is None
    with pytest.raises(QueryError, match=r"the store at http://\*\*\*@127.0.0.1:9 cannot be read: .*") as said:
        open_store("http://me:secret@127.0.0.1:9", tmp_path).study("any")
    assert "secret" not in str(said.value) and "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("MLFLOW_TRACKING_AWS_SIGV4", True),
        ("MLFLOW_TRACKING_INSECURE_TLS", True),
        ("MLFLOW_WORKSPACE", True),
        ("HTTP_PROXY", True),
        ("REQUESTS_CA_BUNDLE", False),
        ("MLFLOW_TRACKING_TOKEN", False),
    ],
)
def test_what_needs_more_than_a_password_is_left_to_the_client(
    server: str, name: str, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert (RestBackend.open(server) is None) is left


def test_who_asks_is_said_as_mlflow_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert store_rest._login("http://host") == {}
    assert store_rest._login("http://me:p%40ss@host") == {"Authorization": "Basic bWU6cEBzcw=="}
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "abc")
    assert store_rest._login("http://host") == {"Authorization": "Bearer abc"}
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "a")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "b")
    assert store_rest._login("http://me:p@host") == {"Authorization": "Basic YTpi"}
