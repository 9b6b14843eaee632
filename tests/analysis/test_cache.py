"""What is kept of a server's runs is what the server has, whatever happened to its runs, and to the file."""

from __future__ import annotations

import json
import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import cache, names
from analysis.cache import CachedBackend, read, write
from analysis.pages import PAGE
from analysis.store import Points, QueryError, RawRun


class Server:
    """A tracking server in memory: active and deleted runs, pages by offset, a count of the runs it sent."""

    def __init__(self) -> None:
        self.uri = "http://somewhere:5000"
        self.active: dict[str, RawRun] = {}
        self.deleted: dict[str, RawRun] = {}
        self.sent = 0
        self.old_tokens = True  # takes those that it gave before
        self._given: set[str] = set()

    def experiments(self) -> dict[str, str]:
        return {"study": "1"}

    def history(self, run_ids: Any, metric: str) -> dict[str, Points]:
        return {}

    def download(self, run_id: str, artifact: str) -> None:
        return None

    def runs(self, experiment: str) -> list[RawRun]:
        return sorted(self.active.values(), key=lambda run: (run.started, run.run_id))

    def page(
        self, experiment: str, filter: str = "", token: str = "", size: int = PAGE, deleted: bool = False
    ) -> tuple[list[RawRun], str]:
        if token and not self.old_tokens and token not in self._given:
            raise QueryError("unknown token")
        found = [run for run in (self.deleted if deleted else self.active).values() if holds(filter, run)]
        found.sort(key=lambda run: (run.started, run.run_id))
        start = int(token or 0)
        self.sent += len(found[start : start + size])
        after = str(start + size) if start + size < len(found) else ""
        self._given.add(after)
        return found[start : start + size], after

    def forget_tokens(self) -> None:
        self.old_tokens, self._given = False, set()


def holds(filter: str, run: RawRun) -> bool:
    """The three questions that are asked in MLflow's language."""
    if not filter:
        return True
    if filter.startswith("attributes.end_time > "):
        return run.ended is not None and run.ended > int(filter.removeprefix("attributes.end_time > "))
    if filter == "attributes.status = 'RUNNING'":
        return run.ended is None
    assert filter.startswith("attributes.run_id IN (")
    return f"'{run.run_id}'" in filter


def run(number: int, started: int, state: str = names.FINISHED, ended: int | None = None, value: float = 1.0) -> RawRun:
    tags = {names.ROLE: names.TRIAL, names.STATE: state, names.SPEC: json.dumps({"n": number})}
    over = None if state == names.RUNNING else ended if ended is not None else started + 1
    return RawRun(
        f"{number:04}", started, over, f"/artifacts/{number}", tags, {"loss": value, f"own/{number % 3}": 2.0}
    )


def same(one: list[RawRun], other: list[RawRun]) -> bool:
    def plain(run: RawRun) -> str:
        held = [sorted(run.tags.items()), sorted(run.metrics.items())]
        return repr([run.run_id, run.started, run.ended, run.artifact_uri, held])

    return list(map(plain, one)) == list(map(plain, other))


class World:
    """Does to a server what sweeps and people do to one."""

    def __init__(self, server: Server, choose: random.Random) -> None:
        self.server, self.choose, self.clock, self.count = server, choose, 0, 0

    def step(self) -> None:
        self.clock += 1
        getattr(self, self.choose.choice(["start", "start", "start_late", "end", "resume", "delete", "restore"]))()

    def start(self, ago: int = 0) -> None:
        self.count += 1
        started = max(self.clock - ago, 0)
        state = self.choose.choice([names.RUNNING, names.FINISHED, names.PAUSED, names.FAILED, names.DIVERGED])
        self._put(run(self.count, started, state, value=self.choose.choice([1.0, math.nan, math.inf])))

    def start_late(self) -> None:
        """An upload that an outage kept back."""
        self.start(ago=self.choose.randrange(20))

    def end(self) -> None:
        open_ = [one for one in self.server.active.values() if one.ended is None]
        if open_:
            one = self.choose.choice(open_)
            state = self.choose.choice([names.FINISHED, names.STOPPED, names.FAILED, names.PAUSED])
            ended = self.clock - self.choose.randrange(10)  # by another machine's clock
            self._put(
                replace(one, ended=ended, tags={**one.tags, names.STATE: state}, metrics={"loss": float(self.clock)})
            )

    def resume(self) -> None:
        left = [one for one in self.server.active.values() if one.tags[names.STATE] in (names.PAUSED, names.FAILED)]
        if left:
            one = self.choose.choice(left)
            state, ended = self.choose.choice([(names.RUNNING, None), (names.STOPPED, self.clock), (names.FAILED, 0)])
            self._put(
                replace(one, ended=ended, tags={**one.tags, names.STATE: state}, metrics={"loss": float(self.clock)})
            )

    def delete(self) -> None:
        if self.server.active:
            name = self.choose.choice(sorted(self.server.active))
            self.server.deleted[name] = self.server.active.pop(name)

    def restore(self) -> None:
        if self.server.deleted:
            name = self.choose.choice(sorted(self.server.deleted))
            self.server.active[name] = self.server.deleted.pop(name)

    def _change(self, one: RawRun, state: str, ended: int | None) -> None:
        tags = {**one.tags, names.STATE: state}
        self._put(replace(one, ended=ended, tags=tags, metrics={"loss": float(self.clock)}))

    def _put(self, one: RawRun) -> None:
        self.server.active[one.run_id] = one


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_it_has_what_the_server_has_whatever_happened(seed: int, page: int) -> None:
    choose = random.Random(seed)
    server = Server()
    world = World(server, choose)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "PAGE", page)
        for _ in range(12):
            for _ in range(choose.randrange(6)):
                world.step()
            assert same(CachedBackend(server, Path(folder)).runs("1"), server.runs("1"))


def filled(server: Server, count: int) -> None:
    for k in range(count):
        server.active[f"{k:04}"] = run(k, k)


def test_where_nothing_changed_the_last_page_is_read(tmp_path: Path) -> None:
    server = Server()
    filled(server, 1050)
    kept = CachedBackend(server, tmp_path)
    kept.runs("1")
    assert server.sent == 1050
    server.sent = 0
    (file,) = tmp_path.iterdir()
    written = file.stat().st_mtime_ns
    assert same(kept.runs("1"), server.runs("1"))
    assert server.sent <= cache.PAGE
    assert file.stat().st_mtime_ns == written


def test_only_what_changed_is_read(tmp_path: Path) -> None:
    server = Server()
    filled(server, 1050)
    for k in (3, 500):
        server.active[f"{k:04}"] = run(k, k, names.RUNNING)
    kept = CachedBackend(server, tmp_path)
    kept.runs("1")
    server.sent = 0
    server.active["0003"] = run(3, 3, ended=4)  # before others that are kept ended
    server.active["2000"] = run(2000, 5000)
    assert same(kept.runs("1"), server.runs("1"))
    assert server.sent <= cache.PAGE + 10


def test_late_and_deleted_runs_are_found(tmp_path: Path) -> None:
    server = Server()
    filled(server, 1050)
    kept = CachedBackend(server, tmp_path)
    kept.runs("1")
    server.active["9999"] = run(9999, 700)
    assert same(kept.runs("1"), server.runs("1"))
    server.deleted["0420"] = server.active.pop("0420")
    server.sent = 0
    assert same(kept.runs("1"), server.runs("1"))
    assert server.sent < 800  # from its page on
    del server.deleted["0420"]
    del server.active["0840"]  # deleted and purged between two looks
    assert same(kept.runs("1"), server.runs("1"))
    server.active.clear()
    assert kept.runs("1") == []


def test_a_server_that_forgot_its_tokens_is_read_anew(tmp_path: Path) -> None:
    server = Server()
    filled(server, 250)
    kept = CachedBackend(server, tmp_path)
    kept.runs("1")
    server.forget_tokens()
    assert same(kept.runs("1"), server.runs("1"))


def test_another_experiment_or_server_is_kept_apart(tmp_path: Path) -> None:
    one, two = Server(), Server()
    two.uri = "http://elsewhere"
    filled(one, 3)
    filled(two, 2)
    assert len(CachedBackend(one, tmp_path).runs("1")) == 3
    assert len(CachedBackend(two, tmp_path).runs("1")) == 2
    assert len(CachedBackend(one, tmp_path).runs("2")) == 3
    assert len(list(tmp_path.iterdir())) == 3
    one.uri = "http://me:secret@somewhere:5000"
    CachedBackend(one, tmp_path).runs("1")
    assert not any(b"secret" in path.name.encode() + path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_is_written_anew(tmp_path: Path, seed: int) -> None:
    server = Server()
    filled(server, 250)
    kept = CachedBackend(server, tmp_path)
    kept.runs("1")
    (file,) = tmp_path.iterdir()
    content, choose = bytearray(file.read_bytes()), random.Random(seed)
    if seed % 3 == 0:
        del content[choose.randrange(len(content)) :]
    elif seed % 3 == 1:
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    else:
        content = bytearray(choose.randbytes(choose.randrange(3000)))
    file.write_bytes(content)
    assert read(file) is None
    assert same(kept.runs("1"), server.runs("1"))
    assert read(file) is not None


def test_it_is_safe_to_delete_and_needs_no_place_to_write(tmp_path: Path) -> None:
    server = Server()
    filled(server, 5)
    kept = CachedBackend(server, tmp_path / "a")
    kept.runs("1")
    next((tmp_path / "a").iterdir()).unlink()
    assert same(kept.runs("1"), server.runs("1"))
    (tmp_path / "file").write_text("")
    assert same(CachedBackend(server, tmp_path / "file" / "b").runs("1"), server.runs("1"))


def test_a_file_has_what_was_written(tmp_path: Path) -> None:
    odd = {"nan": math.nan, "infinite": math.inf, "a b/c": -0.0, "\N{SNOWMAN}": 1e308}
    runs = [
        RawRun("a", 1, None, "", {}, odd),
        RawRun("b", 2, 3, "s3://x", {"ancre.note": "line\nline \x00 '\"", "ancre.empty": ""}, {}),
    ]
    write(tmp_path / "x", cache.Kept(["", "token"], runs))
    kept = read(tmp_path / "x")
    assert kept is not None and kept.tokens == ["", "token"] and same(kept.runs, runs)
    write(tmp_path / "x", cache.Kept([""], []))
    assert read(tmp_path / "x") == cache.Kept([""], [])


def test_readers_and_writers_at_once_are_all_right(tmp_path: Path) -> None:
    server = Server()
    filled(server, 350)

    def ask(number: int) -> bool:
        if number % 4 == 0:
            server.active[f"{1000 + number}"] = run(1000 + number, 1000 + number)
        found = {one.run_id for one in CachedBackend(server, tmp_path).runs("1")}
        return {f"{k:04}" for k in range(350)} <= found

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(60)))
    assert same(CachedBackend(server, tmp_path).runs("1"), server.runs("1"))
    assert len(list(tmp_path.iterdir())) == 1  # no temporary file is left
