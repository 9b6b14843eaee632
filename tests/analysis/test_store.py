"""Both ways of reading a store give the same records; what cannot be read is said in one line."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis import names, pages, store_sqlite
from analysis.cache import CachedBackend
from analysis.store import QueryError, Store, default_uri, local_folder, near, open_store, redacted, sqlite_file
from analysis.store_mlflow import MlflowBackend
from analysis.store_sqlite import SqliteBackend

STUDIES = ["small", "mixed", "linear", "all-nan", "just-started", "no-parent", "hostile", "large-spec"]


@pytest.fixture(scope="module")
def ways(store: Any) -> tuple[Store, Store]:
    fast = SqliteBackend.open(store.uri)
    assert fast is not None
    return Store(fast), Store(MlflowBackend(store.uri))


def comparable(study: Any) -> Any:
    """NaN is not equal to itself."""
    runs = [repr(sorted(run.metrics.items())) for run in study.runs]
    return runs, [{**vars(run), "metrics": None} for run in study.runs], {**vars(study), "runs": None}


@pytest.mark.parametrize("name", STUDIES)
def test_sqlite_and_client_read_the_same(ways: tuple[Store, Store], name: str) -> None:
    fast, slow = (way.study(name) for way in ways)
    assert comparable(fast) == comparable(slow)


def test_both_ways_read_the_same_curves_specs_and_topologies(ways: tuple[Store, Store]) -> None:
    fast, slow = ways
    assert fast.names() == slow.names()
    for name in ("small", "large-spec"):
        runs = fast.study(name).runs
        assert fast.history(runs, names.VAL_PERPLEXITY) == slow.history(runs, names.VAL_PERPLEXITY)
        assert [fast.spec(run) for run in runs] == [slow.spec(run) for run in runs]
        assert [fast.topology(run) for run in runs] == [slow.topology(run) for run in runs]


def test_the_client_reads_every_page(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 5)
    study = Store(MlflowBackend(store.uri)).study("small")
    assert (study.read, len(study.runs)) == (13, 12)  # and the study's own run


def test_curves_of_more_runs_than_one_statement_takes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_sqlite, "CHUNK", 5)
    reader = open_store(store.uri)
    assert len(reader.history(reader.study("small").runs, names.VAL_PERPLEXITY)) == 12


def test_this_mlflow_writes_a_layout_that_we_know(store: Any) -> None:
    with sqlite3.connect(store.uri.removeprefix("sqlite:///")) as connection:
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert revision in store_sqlite.REVISIONS
    assert isinstance(open_store(store.uri).backend, SqliteBackend)


def test_another_layout_goes_through_the_client(store: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(store_sqlite, "REVISIONS", {"of another time"})
    backend = open_store(store.uri, tmp_path).backend
    assert isinstance(backend, CachedBackend) and isinstance(backend.source, MlflowBackend)


def test_infinity_is_read_back_and_a_curve_has_its_steps(store: Any) -> None:
    reader = open_store(store.uri)
    study = reader.study("mixed")
    ends = {(run.arm, run.seed): run.metrics.get(names.VAL_PERPLEXITY) for run in study.runs}
    assert ends["infinite", 0] == math.inf
    assert math.isnan(ends["not-a-number", 1])
    assert ends["diverged", 2] is None
    run = next(run for run in study.runs if run.state == names.RUNNING)
    assert [step for step, _ in reader.history([run], names.VAL_PERPLEXITY)[run.run_id]] == [0, 8, 16, 24, 32, 40]


def test_only_active_runs_count_and_a_trial_counts_once(store: Any, ways: tuple[Store, Store], make: Any) -> None:
    trials = [make.Trial("a", 0, 9.0, state=names.RUNNING), make.Trial("a", 0, 5.0), make.Trial("a", 1, 7.0)]
    experiment = store.study("twice", trials)
    deleted = [run for run in store.client.search_runs([experiment]) if run.data.tags.get(names.SEED) == "1"]
    store.client.delete_run(deleted[0].info.run_id)
    for way in ways:
        (run,) = way.study("twice").runs
        assert (run.state, run.metrics[names.VAL_PERPLEXITY]) == (names.FINISHED, 5.0)


def test_an_unknown_study_names_the_near_one(store: Any) -> None:
    with pytest.raises(QueryError, match=r"no study 'smal'.*did you mean 'small'\?"):
        open_store(store.uri).study("smal")


def test_a_study_without_runs_is_said(store: Any) -> None:
    with pytest.raises(QueryError, match="'no-run' has no recorded run yet"):
        open_store(store.uri).study("no-run")
    assert open_store(store.uri).study("just-started").runs == ()


def test_stores_that_are_none(store: Any, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no study was recorded there yet"):
        open_store(f"sqlite:///{tmp_path}/absent.db")
    (tmp_path / "text.db").write_text("not a database, and long enough to be seen as none" * 100)
    with pytest.raises(QueryError, match="is no MLflow store"):
        open_store(f"sqlite:///{tmp_path}/text.db")
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(QueryError, match="is no MLflow store: no such table"):
        open_store(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(QueryError, match="cannot be read"):
        open_store("nonsense://user:secret@host/place")
    with pytest.raises(QueryError, match="holds no study yet"):
        open_store(f"sqlite:///{store.blank}").study("any")


def test_a_run_with_broken_tags_is_named(store: Any) -> None:
    experiment = store.study("broken", [])
    run = store.client.create_run(experiment, tags={names.ROLE: names.TRIAL, names.TRIAL_ID: "x"}).info.run_id
    with pytest.raises(QueryError, match=f"run {run} is no trial that can be read: KeyError"):
        open_store(store.uri).study("broken")


def test_a_damaged_topology_is_named(store: Any, make: Any) -> None:
    store.study("damaged", [make.Trial("a", 0, 1.0, p=[[0, 1], [0, 0]])], seeds=[0])
    reader = open_store(store.uri)
    (run,) = reader.study("damaged").runs
    (Path(run.artifact_uri) / names.TOPOLOGY_FILE).write_text('{"version": 1, "netw')
    with pytest.raises(QueryError, match=r"topology.json of trial .*-s0 cannot be read"):
        reader.topology(run)


def test_where_the_store_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:5000")
    assert default_uri() == "http://tracking:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("ANCRE_HOME", str(tmp_path))
    assert default_uri() == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://***@host/db"),
        ("http://user:p@ss@h", "http://***@h"),
        ("https://secret@h/", "https://***@h/"),
        ("http://u:se/cret@h", "http://***@h"),
        ("http://user:p@ss:w/rd@127.0.0.1:9", "http://***@127.0.0.1:9"),
        ("postgresql://h/x?user=u&password=secret&a=b", "postgresql://h/x?user=u&password=***&a=b"),
        ("http://h/x?api_key=secret&TOKEN=secret", "http://h/x?api_key=***&TOKEN=***"),
        ("no answer from http://u:se cret@h: timed out", "no answer from http://***@h: timed out"),
        ("sqlite:////tmp/me@home/a.db", "sqlite:////tmp/me@home/a.db"),
        ("http://h:5000", "http://h:5000"),
    ],
)
def test_no_secret_is_shown(uri: str, shown: str) -> None:
    assert redacted(uri) == shown


@pytest.mark.parametrize("name", ["a?b", "a%41", "50%"])
def test_a_home_that_a_sqlite_uri_cannot_name_is_refused(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(QueryError, match="rename the folder, choose another home, or set MLFLOW_TRACKING_URI"):
        default_uri(tmp_path / name)


@pytest.mark.parametrize("name", ["a#b", "a&b", "a b", "a@b:c", "ü", "a'b\"c", "a+b;c"])
def test_sqlalchemy_opens_the_file_that_we_open(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    from sqlalchemy.engine import make_url

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    uri = default_uri(tmp_path / name)
    assert make_url(uri).database == str(sqlite_file(uri)) == str(tmp_path / name / "mlflow.db")


def test_artifact_folders() -> None:
    assert local_folder("/a/b") == Path("/a/b")
    assert local_folder("file:///a/b%20c") == Path("/a/b c")
    assert local_folder("mlflow-artifacts:/1/2") is None
    assert local_folder("s3://bucket/x") is None


def test_near_names() -> None:
    assert near("x", []) == ""
    assert near("lose", ["loss", "lr"]) == "; did you mean 'loss'? (there are: loss, lr)"
    assert near("zzz", [f"n{k:02}" for k in range(12)]).endswith("n09, ..)")


@pytest.mark.parametrize(
    ("states", "lost"),
    [
        ((names.STOPPED,), True),
        ((names.DIVERGED,), True),
        ((names.FINISHED, names.DIVERGED), False),  # a survivor's second seed
        ((names.RUNNING,), False),
        ((names.FAILED,), False),  # it is run again
    ],
)
def test_a_race_is_lost_by_the_first_seed_alone(ways: tuple[Store, Store], states: tuple[str, ...], lost: bool) -> None:
    study = ways[0].study("small")
    runs = [replace(study.runs[0], state=state, started=number) for number, state in enumerate(states)]
    assert replace(study, scheduler={"race": "first-seed"}).lost_race(runs[::-1]) is lost
    assert not study.lost_race(runs)
