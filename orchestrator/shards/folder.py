"""What a folder of shards is, and whether it is whole: documents as token numbers, tokenized once for all trials.

    manifest.json             the tokenizer, what was prepared and how, every shard's counts, every file's size and hash
    tokenizer.json
    train/00000.tokens.npy    (tokens,) of uint16 or uint32: documents, end to end, each with the end token
    train/00000.starts.npy    (documents + 1,) of int64: document d is tokens[starts[d]:starts[d + 1]]
    validation/..

The manifest is written last: a folder without one is not finished.
"""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from models.spec import Spec
from orchestrator.errors import InputError
from orchestrator.record.jsonl import replace

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
SIDES = ("train", "validation")
# Of a file that was being written, by `jsonl.replace` and `writer.save`.
SCRATCH = re.compile(r"\.((manifest|tokenizer)\.json\.[0-9]+|[0-9]{5,}\.(tokens|starts|arrays|labels)\.npy)")


class File(Spec):
    """One file of the folder. The pattern keeps a stranger's manifest from naming files outside of it."""

    name: str = Field(pattern=r"^(train|validation|images)/[0-9]{5,}\.(tokens|starts|arrays|labels)\.npy$")
    bytes: int
    sha256: str


class Shard(Spec):
    """Documents in two files, as runs of whole documents: a block is what is shuffled as one."""

    tokens_file: File
    starts_file: File
    documents: int
    tokens: int
    blocks: tuple[tuple[int, int], ...]  # (documents, tokens) of each, in order

    @property
    def files(self) -> tuple[File, File]:
        return self.tokens_file, self.starts_file

    @model_validator(mode="after")
    def _check_counts(self) -> Shard:
        if (self.documents, self.tokens) != tuple(map(sum, zip(*self.blocks, strict=True))):
            raise ValueError("the blocks of a shard are not its documents and tokens")
        return self


class Side(Spec):
    """The documents that are trained on, or those that are held out."""

    documents: int
    tokens: int
    shards: tuple[Shard, ...]

    @classmethod
    def of(cls, shards: list[Shard]) -> Side:
        totals = sum(shard.documents for shard in shards), sum(shard.tokens for shard in shards)
        return cls(documents=totals[0], tokens=totals[1], shards=tuple(shards))


class Contents(Spec):
    """What any folder of shards says of itself; `format` is the default of its own."""

    format: Any

    @property
    def checksum(self) -> str:
        return sha256(self.model_dump_json().encode()).hexdigest()

    @property
    @abstractmethod
    def files(self) -> list[File]:
        """All files but the manifest that were written by whole shards."""


class Manifest(Contents):
    """What a folder of text holds."""

    format: Literal[1] = 1
    tokenizer: str  # as it was given
    tokenizer_sha256: str
    vocabulary: int  # every token number is below it
    end: int  # the token that ends each document
    source: dict[str, Any]  # what the documents are, by whoever prepared them
    train: Side
    validation: Side

    @property
    def files(self) -> list[File]:
        return [file for side in (self.train, self.validation) for shard in side.shards for file in shard.files]


AnyContents = TypeVar("AnyContents", bound=Contents)


def write(folder: Path, manifest: Contents) -> None:
    content = {"checksum": manifest.checksum} | manifest.model_dump(mode="json")
    replace(folder / MANIFEST, json.dumps(content).encode() + b"\n")


def read(folder: Path) -> Manifest:
    """What a folder of text holds. Raises InputError as `read_as`."""
    return read_as(Manifest, folder)


def read_as(form: type[AnyContents], folder: Path) -> AnyContents:
    """What a folder holds, by its manifest.

    Raises:
        InputError: no manifest, one of something else, or one that is not as it was written.
    """
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        written = content.pop("checksum")
        if (found := content.get("format")) != (wanted := form.model_fields["format"].default):
            raise InputError(f"{path}: of the format {found!r}; wanted is {wanted!r}: {folder} holds something else")
        manifest = form.model_validate(content)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: no {MANIFEST} in it: not a folder of shards, or one that `ancre data prepare` has not finished"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise InputError(
            f"{path}: damaged ({'.'.join(map(str, fault['loc']))}: {fault['msg']}); {_mend(folder)}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: damaged (not the JSON of a manifest); {_mend(folder)}") from None
    if written != manifest.checksum:
        raise InputError(f"{path}: damaged or changed by hand (its checksum differs); {_mend(folder)}")
    return manifest


def remove_scratch(folder: Path) -> None:
    """Delete what killed writers left; nothing else."""
    for file in (*folder.glob(".*"), *folder.glob("[!.]*/.*")):
        if SCRATCH.fullmatch(file.name):
            file.unlink()


def check(folder: Path, manifest: Contents, cache: Path) -> None:
    """That every file is as it was written: its size always; its hash once, and again where it was touched.

    Args:
        cache: remembers size and time of change of the files whose hash was right.

    Raises:
        InputError: a file is missing, truncated or changed; it is named.
    """
    stats = check_sizes(folder, manifest.files)
    name = sha256(os.fsencode(f"{folder.resolve()} {manifest.checksum}")).hexdigest()[:16]
    record = cache / "checked" / f"{name}.json"
    try:
        known = json.loads(record.read_bytes())
    except (OSError, ValueError):
        known = {}
    new = [file for file in manifest.files if not isinstance(known, dict) or known.get(file.name) != stats[file.name]]
    if not new:
        return
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing lets other threads run
        for _ in pool.map(partial(_check_hash, folder), new):
            pass
    record.parent.mkdir(parents=True, exist_ok=True)
    replace(record, json.dumps(stats).encode())


def check_sizes(folder: Path, files: Iterable[File]) -> dict[str, list[int]]:
    """Size in bytes and time of change in ns of each. Raises InputError as `check`."""
    return {file.name: _stat(folder, file) for file in files}


def _stat(folder: Path, file: File) -> list[int]:
    path = folder / file.name
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; {_mend(folder)}") from error
    if found.st_size != file.bytes:
        word = "truncated" if found.st_size < file.bytes else "changed"
        raise InputError(f"{path}: {word}: {found.st_size} bytes of {file.bytes}; {_mend(folder)}")
    return [found.st_size, found.st_mtime_ns]


def _check_hash(folder: Path, file: File) -> None:
    path = folder / file.name
    try:
        with path.open("rb") as stream:
            found = file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; {_mend(folder)}") from error
    if found != file.sha256:
        raise InputError(f"{path}: changed since it was written (its SHA-256 differs); {_mend(folder)}")


def _mend(folder: Path) -> str:
    return f"restore it, or delete {folder} and make it anew"
