"""How far a folder is: one line a commit, so that a run that was killed goes on after the last one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError, one_line
from orchestrator.prepare.settings import Settings
from orchestrator.record.jsonl import Tail, Writer
from orchestrator.shards import folder as shards

PROGRESS = "progress.jsonl"
Written = dict[str, list[shards.Shard]]  # by side


@dataclass(frozen=True)
class Position:
    """After the last document that is done: where reading goes on."""

    source: int = 0  # number of the source that is read
    part: int = 0
    document: int = 0  # documents of that part that are done
    documents: int = 0  # of that source that are done
    tokens: int = 0  # theirs


class Progress:
    """The commits of a folder so far. The first line of its file is what was asked for.

    Raises:
        InputError: something was committed, with other settings.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.position, self.read = Position(), ""  # read: fingerprint of the parts up to the position's
        self.shards: Written = {side: [] for side in shards.SIDES}
        self._folder, self._settings = folder, settings.model_dump(mode="json")
        self._begun: dict[str, Any] = {}  # the settings that are there
        self.resumed = len(Tail(folder / PROGRESS, self._take).read()) > 1
        if not self.resumed:
            (folder / PROGRESS).unlink(missing_ok=True)
        self._file = Writer(folder / PROGRESS, durable=True)
        if not self.resumed:
            self._file.append([{"settings": self._settings}])

    def commit(self, position: Position, written: Written, read: str) -> None:
        """From now on a run goes on at `position`, with these shards too."""
        lines = {side: [shard.model_dump(mode="json") for shard in new] for side, new in written.items()}
        self._file.append([{"position": asdict(position), "shards": lines, "read": read}])
        self._add(position, written, read)

    def close(self) -> None:
        self._file.close()

    def _take(self, line: dict[str, Any]) -> None:
        with committed(self._folder):
            if "settings" in line:
                self._begun = line["settings"]
                return
            refuse_other(self._folder, self._begun, self._settings)
            written = {side: [*map(shards.Shard.model_validate, line["shards"][side])] for side in shards.SIDES}
            self._refuse_gap(written)
            self._add(Position(**line["position"]), written, line["read"])

    def _refuse_gap(self, written: Written) -> None:
        """A line that is gone would be documents that are gone."""
        for side, new in written.items():
            for number, shard in enumerate(new, start=len(self.shards[side])):
                if shard.tokens_file.name != f"{side}/{number:05d}.tokens.npy":
                    raise ValueError(f"the line of shard {number} of {side} is missing")

    def _add(self, position: Position, written: Written, read: str) -> None:
        self.position, self.read = position, read
        for side, new in written.items():
            self.shards[side] += new


@contextmanager
def committed(folder: Path) -> Iterator[None]:
    """Reading a line of a folder's progress: one that is no commit is the user's to mend."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{folder / PROGRESS}: changed by hand ({one_line(error)}); restore it, or delete {folder} and make it anew"
        ) from error


def refuse_other(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise InputError where a folder was begun or finished with other settings."""
    for name, value in asked.items():
        if there.get(name) != value:
            raise InputError(
                f"{folder} was prepared with {name} {there.get(name)!r}, not {value!r}: "
                "give another --out, or delete that one"
            )
