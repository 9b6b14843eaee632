"""Text from the user's own files: .txt is one document, .jsonl (.jsonl.gz, .json.gz) one a line, .parquet one a row.

Every fault in them is named with its file, and its line where there is one: a bad record deep in a corpus is found
before training, not skipped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from orchestrator.data.base import DataSpec, existing
from orchestrator.errors import InputError, did_you_mean


class Spec(DataSpec):
    """Your own text: a file or folder of .txt, .jsonl, .jsonl.gz, .json.gz (JSON lines) and .parquet."""

    kind: Literal["files"] = "files"
    path: str = Field(min_length=1)  # relative to where the command is run
    column: str = "text"  # where .jsonl and .parquet keep the text

    def documents(self) -> Iterator[str]:
        for file in self._files():
            yield from read(file, self.column)

    def fingerprint(self) -> str:
        digest = sha256(self.column.encode())
        for file in self._files():
            stat = file.stat()
            digest.update(_suffix(file).encode() + _file_hash(file, stat.st_size, stat.st_mtime_ns))
        return digest.hexdigest()

    def _files(self) -> list[Path]:
        """The readable files, a folder's sorted by path."""
        root = existing(self.path)
        if root is None:
            raise InputError(f"data.path: {self.path!r} does not exist (looked from {Path.cwd()})")
        return readable(root, "data.path")


def readable(root: Path, where: str) -> list[Path]:
    """A file, or those of a folder that can be read, sorted by path.

    Raises:
        InputError: none can; it begins with `where`, the name of the user's choice.
    """
    inside = [file for file in (sorted(root.rglob("*")) if root.is_dir() else [root]) if file.is_file()]
    files = [file for file in inside if _suffix(file)]
    if not files:
        found = f"; it holds e.g. {inside[0].name}" if inside and root.is_dir() else ""
        raise InputError(f"{where}: {root}: nothing to read; wanted {', '.join(READERS)}{found}")
    return files


def read(file: Path, column: str) -> Iterator[str]:
    """The documents of one file, blank ones left out.

    Raises:
        InputError: a record is no text, or no record has any.
    """
    found = False
    for where, text in READERS[_suffix(file)](file, column):
        if not isinstance(text, str):
            raise InputError(f"{where}: {column!r} is {_shown(text)}, not text")
        if not _is_unicode(text):
            raise InputError(f"{where}: {column!r} holds half of a surrogate pair, which is no character")
        if text.strip():
            found = True
            yield text
    if not found:
        raise InputError(f"{file}: no text in it")


def _suffix(file: Path) -> str:
    """The known ending of a file's name, or nothing."""
    return next((suffix for suffix in READERS if file.name.lower().endswith(suffix)), "")


def _read_txt(file: Path, column: str) -> Iterator[tuple[str, Any]]:
    yield str(file), _decoded(_bytes(file), str(file))


def _read_jsonl(file: Path, column: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(_lines(file), start=1):
        where = f"{file}:{number}"
        if not line.strip():
            continue
        try:
            record = json.loads(_decoded(line, where))
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: not JSON: {error.msg} at column {error.colno}") from error
        except RecursionError as error:
            raise InputError(f"{where}: JSON nested too deep") from error
        except ValueError as error:  # int() refuses so many digits
            raise InputError(f"{where}: not JSON that can be read: a number of thousands of digits") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: {_shown(record)}, not an object with a column {column!r}")
        if column not in record:
            raise InputError(f"{where}: no column {column!r}{did_you_mean(column, record)}")
        yield where, record[column]


def _read_parquet(file: Path, column: str) -> Iterator[tuple[str, Any]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as table:
            names = table.schema_arrow.names
            if column not in names:
                raise InputError(f"{file}: no column {column!r}{did_you_mean(column, names)}")
            for batch in table.iter_batches(columns=[column]):
                yield from ((str(file), value) for value in batch.column(0).to_pylist() if value is not None)
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as parquet: {str(error).splitlines()[0]}") from error


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8: byte 0x{line[error.start]:02x} at offset {error.start}") from error


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@cache
def _file_hash(file: Path, size: int, modified: int) -> bytes:
    """SHA-256 of the file's bytes; size and time of change (ns) are there so that a changed file is read again."""
    try:
        with file.open("rb") as stream:
            return file_digest(stream, "sha256").digest()
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error


READERS = {
    ".txt": _read_txt,
    **dict.fromkeys((".jsonl", ".jsonl.gz", ".json.gz"), _read_jsonl),
    ".parquet": _read_parquet,
}
