"""Where documents come from: parts in a fixed order, each of which can be read by itself, so that a resumed run begins
with the part that it was at."""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from orchestrator.data.base import existing, files_fingerprint
from orchestrator.data.files import read, readable
from orchestrator.errors import InputError, one_line
from orchestrator.prepare.settings import Settings

BOTH = "both"  # the source of which a fraction is held out
C4 = "allenai/c4"
C4_FILES = "en/c4-{}.*.json.gz"  # in https://huggingface.co/datasets/allenai/c4


class Source(Protocol):
    """Documents, in parts."""

    @property
    def num_parts(self) -> int: ...

    def documents(self, part: int) -> Iterator[str]:
        """Those of one part. Raises InputError where it cannot be read."""

    def fingerprint(self, parts: int) -> str:
        """A hash of what is known of the first parts without reading them: another one means that they changed."""


@dataclass(frozen=True)
class Files:
    """Files of this machine, each a part."""

    files: tuple[Path, ...]
    column: str

    @property
    def num_parts(self) -> int:
        return len(self.files)

    def documents(self, part: int) -> Iterator[str]:
        return read(self.files[part], self.column)

    def fingerprint(self, parts: int) -> str:
        return files_fingerprint((file, file) for file in self.files[:parts])


@dataclass(frozen=True)
class Hub:
    """A split of a dataset on the Hugging Face hub, streamed; its files are the parts."""

    name: str
    config: str | None
    split: str
    column: str

    @property
    def num_parts(self) -> int:
        count: int = self._stream.num_shards
        return count

    def documents(self, part: int) -> Iterator[str]:
        try:
            rows = self._stream.shard(num_shards=self.num_parts, index=part).with_format("arrow")
            for batch in rows.iter(batch_size=1000):
                if self.column not in batch.column_names:
                    raise InputError(f"{self}: no column {self.column!r} (there are: {', '.join(batch.column_names)})")
                for text in batch.column(self.column).to_pylist():
                    if not isinstance(text, str):
                        raise InputError(f"{self}: {self.column!r} is {str(text)[:40]!r}, not text")
                    if text.strip():
                        yield text
        except InputError:
            raise
        except Exception as error:  # whatever the network and the file formats raise
            raise InputError(
                f"{self}: cannot be read on ({one_line(error)}); the same command again goes on from here"
            ) from error

    def fingerprint(self, parts: int) -> str:
        return f"{self} in {self.num_parts} parts"

    @cached_property
    def _stream(self) -> Any:
        import datasets

        for library in ("huggingface_hub", "datasets"):  # a line for every retry
            logging.getLogger(library).setLevel(logging.ERROR)
        try:
            return datasets.load_dataset(self.name, self.config, split=self.split, streaming=True)
        except datasets.exceptions.DatasetNotFoundError as error:
            raise InputError(f"{self.name}: no such dataset on the Hugging Face hub, and no such path here") from error
        except ConnectionError as error:
            where = f"{self.name}:" if self.name == C4 else f"{self.name}: no such path here, and"
            raise InputError(f"{where} the Hugging Face hub cannot be reached; {self._instead}") from error
        except Exception as error:  # unknown configurations and splits, among much else
            raise InputError(f"{self}: {one_line(error)}") from error

    @property
    def _instead(self) -> str:
        if self.name != C4:
            return "give its files instead: `ancre data prepare FOLDER ..`, of .parquet, .jsonl, .jsonl.gz or .txt"
        files = [f"'c4/{C4_FILES.format(split)}'" for split in ("train", "validation")]
        return (
            f"give its files instead, from the folder en/ of https://huggingface.co/datasets/{C4}: "
            f"`ancre data prepare {files[0]} --val {files[1]} ..`"
        )

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.config, self.split)))


def sources(settings: Settings) -> dict[str, Source]:
    """Held-out and training text; under BOTH where the one is a fraction of the other.

    Raises:
        InputError: a path or dataset is not there, or cannot be read.
    """
    if settings.local:
        return _files(settings)
    c4 = settings.source == "c4"
    name, config = (C4, settings.config or "en") if c4 else (settings.source, settings.config)
    train = Hub(name, config, settings.split or "train", settings.column)
    val = settings.val or ("validation" if c4 else None)
    if val is None:
        return {BOTH: train}
    return {"validation": Hub(name, config, val, settings.column), "train": train}


def _files(settings: Settings) -> dict[str, Source]:
    train = _matching(settings.source, "SOURCE")
    if settings.val is None:
        return {BOTH: Files(tuple(train), settings.column)}
    val = _matching(settings.val, "--val")
    left = [file for file in train if file not in set(val)]
    if not left:
        raise InputError(f"--val {settings.val}: holds every file of {settings.source}, so none is left to train on")
    return {"validation": Files(tuple(val), settings.column), "train": Files(tuple(left), settings.column)}


def _matching(path: str, where: str) -> list[Path]:
    """The readable files of a path or pattern, sorted."""
    found = existing(path)
    # Path.glob takes no absolute pattern.
    roots = [found] if found else [Path(match) for match in sorted(glob.glob(path, recursive=True))]  # noqa: PTH207
    if not roots:
        raise InputError(f"{where}: {path!r} does not exist (looked from {Path.cwd()})")
    return [file for root in roots for file in readable(root, where)]
