"""Pictures in parquet files: a column of bytes, or of {bytes, path} as on the Hugging Face hub, and one of classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.data.base import files_fingerprint
from orchestrator.errors import InputError, did_you_mean, one_line
from orchestrator.image_shards.sources import Record, class_number

ROWS = 64  # read at once


class Parquet:
    """Rows of files, file by file."""

    def __init__(self, files: list[Path], where: str, image: str, label: str) -> None:
        self.files, self.where, self.image, self.label = files, where, image, label

    @cached_property
    def num_classes(self) -> int | None:
        """As many as the file names, where it names them (metadata of `datasets`)."""
        with _opened(self.files[0]) as table:
            metadata = (table.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
        try:
            names = json.loads(metadata)["info"]["features"][self.label]["names"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return len(names) if isinstance(names, list) else None

    def fingerprint(self) -> str:
        return files_fingerprint((file.name, file) for file in self.files)

    def records(self, first: int = 0) -> Iterator[Record]:
        for file in self.files:
            with _opened(file) as table:
                rows = table.metadata.num_rows
                if first < rows:
                    yield from self._rows(table, file, first)
                first = max(0, first - rows)

    def _rows(self, table: Any, file: Path, first: int) -> Iterator[Record]:
        from pyarrow import ArrowException

        names = table.schema_arrow.names
        for column in (self.image, self.label):
            if column not in names:
                raise InputError(f"{file}: no column {column!r}{did_you_mean(column, names)}")
            if names.count(column) > 1:
                raise InputError(f"{file}: {names.count(column)} columns are named {column!r}; give each its own name")
        group, row = 0, 0  # whole groups before `first` are not read
        while row + table.metadata.row_group(group).num_rows <= first:
            row += table.metadata.row_group(group).num_rows
            group += 1
        groups = range(group, table.num_row_groups)
        try:
            for batch in table.iter_batches(ROWS, groups, columns=[self.image, self.label]):
                for image, label in zip(*(batch[name].to_pylist() for name in (self.image, self.label)), strict=True):
                    if row >= first:
                        yield record(f"{file}, row {row}", image, label, self.image, self.label)
                    row += 1
        except (ArrowException, OSError, UnicodeError) as error:
            raise InputError(f"{file}: cannot be read as parquet: {one_line(error)}") from error


def record(where: str, image: Any, label: Any, image_column: str, label_column: str) -> Record:
    """A row with its name, where it has one. Raises InputError where its columns hold something else."""
    name, content = (image.get("path"), image.get("bytes")) if isinstance(image, dict) else (None, image)
    if not isinstance(content, bytes | None):
        raise InputError(f"{where}: {image_column!r} is {type(content).__name__}, not the bytes of a picture")
    try:
        return Record(f"{where} ({name})" if name else where, content or b"", class_number(label))
    except ValueError as error:
        raise InputError(f"{where}: {label_column!r} is {label!r:.40}, {error}") from error


def _opened(file: Path) -> Any:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(file)
    except (ArrowException, OSError, UnicodeError) as error:
        raise InputError(f"{file}: cannot be read as parquet: {one_line(error)}") from error
