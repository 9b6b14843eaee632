"""How far a folder of images is: one line a commit, so that a run that was killed goes on after the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.image_shards.folder import Shard, Skipped
from orchestrator.prepare.progress import PROGRESS as PROGRESS
from orchestrator.prepare.progress import committed, refuse_other
from orchestrator.record.jsonl import Tail, Writer, expect


class Progress:
    """The commits of a folder so far. The first line of its file is what was asked for.

    Raises:
        InputError: something was committed, with other settings.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.records = self.classes = 0  # records that are done; 1 + the highest class
        self.shards: list[Shard] = []
        self.skipped: list[Skipped] = []
        self._folder, self._settings, self._begun = folder, settings, dict[str, Any]()
        resumed = len(Tail(folder / PROGRESS, self._take).read()) > 1
        if not resumed:
            (folder / PROGRESS).unlink(missing_ok=True)
        self._file = Writer(folder / PROGRESS, durable=True)
        if not resumed:
            self._file.append([{"settings": settings}])

    def commit(self, records: int, shard: Shard | None, skipped: list[Skipped], classes: int) -> None:
        """From now on a run goes on after so many records, with this shard too."""
        line = {
            "records": records,
            "shard": shard and shard.model_dump(mode="json"),
            "skipped": [picture.model_dump() for picture in skipped],
            "classes": classes,
        }
        self._file.append([line])
        self._add(line)

    def close(self) -> None:
        self._file.close()

    def _take(self, line: dict[str, Any]) -> None:
        with committed(self._folder):
            if "settings" in line:
                self._begun = line["settings"]
                return
            refuse_other(self._folder, self._begun, self._settings)
            expect(line, {"records": int, "shard": (dict, type(None)), "skipped": list, "classes": int})
            if line["shard"] and line["shard"]["arrays_file"]["name"] != f"images/{len(self.shards):05d}.arrays.npy":
                raise ValueError(f"the line of shard {len(self.shards)} is missing")
            self._add(line)

    def _add(self, line: dict[str, Any]) -> None:
        self.records, self.classes = line["records"], max(self.classes, line["classes"])
        self.shards += [Shard.model_validate(line["shard"])] if line["shard"] else []
        self.skipped += [Skipped.model_validate(picture) for picture in line["skipped"]]
