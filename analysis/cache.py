"""What a tracking server said of an experiment's runs, kept in the home folder, so that only what may have changed is
asked again.

What is kept is a list of pages, each with the token that the server gave for it. As runs are listed by their start, new
ones come behind; so where the first run of a page is still the one that was kept, all before it are as they were, but
for those that can change in place. These are runs that have not ended for good, runs that MLflow calls running, and
runs that ended later than any that is kept. A deleted run moves those behind it: its page and all after are read
again. Where anything does not fit, everything is.

A file holds one experiment and is replaced whole, so that a reader sees one writer's or another's. Its digest comes
first; one that is damaged, or of another layout, is not read. It may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from analysis import names
from analysis.pages import PagedBackend, every
from analysis.store import Points, QueryError, RawRun, redacted

LAYOUT = b"ancre runs 1\n"
DIGEST = 16  # bytes
PAGE = 50  # runs: the last page is read again each time
FINAL = (names.FINISHED, names.STOPPED, names.DIVERGED)  # a trial in one of these is not run again
TAG, METRIC = "tag:", "metric:"  # in front of a column's name


@dataclass(frozen=True)
class Kept:
    """An experiment as it was read: `PAGE` runs behind each token, fewer behind the last."""

    tokens: list[str]
    runs: list[RawRun]

    def begins(self, page: int, runs: Sequence[RawRun]) -> bool:
        """Whether these begin with the run that a page began with."""
        return bool(runs) and runs[0].run_id == self.runs[page * PAGE].run_id


class CachedBackend:
    """Another backend, whose runs are asked for once."""

    def __init__(self, source: PagedBackend, folder: Path) -> None:
        self.uri = source.uri
        self.source = source
        self._folder = folder

    def experiments(self) -> dict[str, str]:
        return self.source.experiments()

    def history(self, run_ids: Sequence[str], metric: str) -> dict[str, Points]:
        return self.source.history(run_ids, metric)

    def download(self, run_id: str, artifact: str) -> Path | None:
        return self.source.download(run_id, artifact)

    def runs(self, experiment: str) -> list[RawRun]:
        file = self._folder / f"{_key(self.uri, experiment)}.runs"
        kept = read(file)
        now = None
        if kept and kept.runs:
            with suppress(QueryError):  # a token that the server no longer takes
                now = self._renewed(experiment, kept)
        if now is None:
            now = self._from(experiment, Kept([""], []), 0, self._page(experiment, ""))
        if kept is None or now.tokens != kept.tokens or not _same(now.runs, kept.runs):
            with suppress(OSError, ValueError):  # a full disk, a home of someone else's, text that is no UTF-8
                write(file, now)
        return sorted(now.runs, key=lambda run: (run.started, run.run_id))

    def _page(self, experiment: str, token: str, size: int | None = None) -> tuple[list[RawRun], str]:
        return self.source.page(experiment, token=token, size=size or PAGE)

    def _from(self, experiment: str, kept: Kept, page: int, there: tuple[list[RawRun], str]) -> Kept:
        """What is kept before a page, that page as it is now, and the server's runs behind it."""
        tokens, runs = kept.tokens[: page + 1], kept.runs[: page * PAGE]
        more, token = there
        runs += more
        while token:
            tokens.append(token)
            more, token = self._page(experiment, token)
            runs += more
        return Kept(tokens, runs)

    def _renewed(self, experiment: str, kept: Kept) -> Kept | None:
        """As the server has it now; None where that cannot be told without reading everything."""
        deleted = {run.run_id for run in every(self.source, experiment, deleted=True)}
        last = (len(kept.runs) - 1) // PAGE
        gone = (place // PAGE for place, run in enumerate(kept.runs) if run.run_id in deleted)
        page = min(next(gone, last), last)
        there = self._page(experiment, kept.tokens[page])
        if page and not kept.begins(page, there[0]):
            page = _last_before(lambda at: not self._begins(experiment, kept, at), page)
            there = self._page(experiment, kept.tokens[page])
        now = self._from(experiment, kept, page, there)
        early = now.runs[: page * PAGE]
        changed = self._changed(experiment, early, max(run.ended or 0 for run in kept.runs))
        if any(run.run_id not in changed and not _final(run) for run in early):
            return None
        return Kept(now.tokens, [changed.get(run.run_id, run) for run in early] + now.runs[page * PAGE :])

    def _begins(self, experiment: str, kept: Kept, page: int) -> bool:
        return kept.begins(page, self._page(experiment, kept.tokens[page], size=1)[0])

    def _changed(self, experiment: str, early: Sequence[RawRun], ended: int) -> dict[str, RawRun]:
        """The runs among these that may be other than they were when none had ended later, as they are now."""
        if not early:
            return {}
        later = every(self.source, experiment, f"attributes.end_time > {ended}")
        found = {run.run_id: run for run in every(self.source, experiment, "attributes.status = 'RUNNING'") + later}
        rest = [run.run_id for run in early if not _final(run) and run.run_id not in found]
        for some in (rest[start : start + PAGE] for start in range(0, len(rest), PAGE)):
            listed = ", ".join(f"'{run}'" for run in some)
            again = every(self.source, experiment, f"attributes.run_id IN ({listed})")
            found |= {run.run_id: run for run in again}
        return found


def _key(uri: str, experiment: str) -> str:
    return blake2b(json.dumps([redacted(uri), experiment]).encode(), digest_size=DIGEST).hexdigest()


def _final(run: RawRun) -> bool:
    ended = run.ended is not None and run.tags.get(names.ROLE) == names.TRIAL
    return ended and run.tags.get(names.STATE) in FINAL


def _last_before(moved: Callable[[int], bool], end: int) -> int:
    """The last page before `end` that has not moved. The first one begins the list and has not; behind one that has,
    all have."""
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if moved(middle) else (middle, high)
    return low


def _same(new: Sequence[RawRun], old: Sequence[RawRun]) -> bool:
    """In whatever order their tags and metrics come; NaN is the same as itself."""
    if len(new) != len(old):
        return False
    return all(one is other or _ordered(one) == _ordered(other) for one, other in zip(new, old, strict=True))


def _ordered(run: RawRun) -> str:
    return repr(replace(run, tags=dict(sorted(run.tags.items())), metrics=dict(sorted(run.metrics.items()))))


def read(file: Path) -> Kept | None:
    """What a file holds; None where there is none, or it is not as it was written."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    head, rest = content[: len(LAYOUT) + DIGEST], content[len(LAYOUT) + DIGEST :]
    if head != LAYOUT + blake2b(rest, digest_size=DIGEST).digest():
        return None
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(pa.BufferReader(rest))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    places = zip(*(columns[name] for name in ("run", "started", "ended", "uri")), strict=True)
    tags, metrics = (_rows(columns, prefix, table.num_rows) for prefix in (TAG, METRIC))
    runs = [RawRun(*place, *held) for place, *held in zip(places, tags, metrics, strict=True)]
    return Kept(json.loads(table.schema.metadata[b"tokens"]), runs)


def _rows(columns: Mapping[str, list[Any]], prefix: str, count: int) -> list[dict[str, Any]]:
    """A dict for each row, of the columns with a prefix that have something there."""
    keys = [name.removeprefix(prefix) for name in columns if name.startswith(prefix)]
    if not keys:
        return [{} for _ in range(count)]
    held = zip(*(columns[prefix + key] for key in keys), strict=True)
    return [{key: one for key, one in zip(keys, row, strict=True) if one is not None} for row in held]


def write(file: Path, kept: Kept) -> None:
    """Replace a file. Of two who do so at once, one's is left, whole."""
    import pyarrow as pa
    from pyarrow import parquet

    runs = kept.runs
    columns: dict[str, Any] = {
        "run": pa.array([run.run_id for run in runs], pa.string()),
        "started": pa.array([run.started for run in runs], pa.int64()),
        "ended": pa.array([run.ended for run in runs], pa.int64()),
        "uri": pa.array([run.artifact_uri for run in runs], pa.string()),
    }
    for tag in sorted({tag for run in runs for tag in run.tags}):
        columns[TAG + tag] = pa.array([run.tags.get(tag) for run in runs], pa.string())
    for metric in sorted({metric for run in runs for metric in run.metrics}):
        columns[METRIC + metric] = pa.array([run.metrics.get(metric) for run in runs], pa.float64(), from_pandas=False)
    sink = pa.BufferOutputStream()
    table = pa.table(columns).replace_schema_metadata({"tokens": json.dumps(kept.tokens)})
    parquet.write_table(table, sink, compression="zstd")
    rest = sink.getvalue().to_pybytes()
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(LAYOUT + blake2b(rest, digest_size=DIGEST).digest() + rest)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
