"""Pictures of a dataset on the Hugging Face hub, which `datasets` downloads once and keeps."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError, did_you_mean, one_line
from orchestrator.image_shards.parquet import record
from orchestrator.image_shards.sources import Record

IMAGENET = "ILSVRC/imagenet-1k"
INSTEAD = "a folder of a folder a class, .parquet files or WebDataset tars"


class Hub:
    """A split of a dataset.

    Args:
        instead: what the user would write to give files, for messages.
    """

    def __init__(self, name: str, config: str | None, split: str, image: str, label: str, instead: str) -> None:
        self.name, self.config, self.split = name, config, split
        self.image, self.label, self.instead = image, label, instead
        self.where = f"{name} {split}"

    @property
    def num_classes(self) -> int | None:
        """As many as the dataset names, where it names them."""
        count: int | None = getattr(self._rows.features[self.label], "num_classes", None)
        return count

    def fingerprint(self) -> str:
        return f"{self.name} {self.config} {self.split} {len(self._rows)} {self._rows.features}"

    def records(self, first: int = 0) -> Iterator[Record]:
        for number in range(first, len(self._rows)):
            row = self._rows[number]
            where = f"{self.where}, row {number}"
            yield record(where, _read(row[self.image], where), row[self.label], self.image, self.label)

    @cached_property
    def _rows(self) -> Any:
        import datasets

        for library in ("huggingface_hub", "datasets"):  # a line for every retry
            logging.getLogger(library).setLevel(logging.ERROR)
        try:
            rows = datasets.load_dataset(self.name, self.config, split=self.split)
        except datasets.exceptions.DatasetNotFoundError as error:
            raise InputError(
                f"{self.name}: no such dataset on the Hugging Face hub, or one that asks for a login "
                f"(`hf auth login`); or give {self.instead}: {INSTEAD}"
            ) from error
        except ConnectionError as error:
            raise InputError(
                f"{self.name}: the Hugging Face hub cannot be reached; give {self.instead} instead: {INSTEAD}"
            ) from error
        except Exception as error:  # unknown configurations and splits, among much else
            raise InputError(f"{self.where}: {one_line(error)}") from error
        for column in (self.image, self.label):
            if column not in rows.column_names:
                raise InputError(f"{self.name}: no column {column!r}{did_you_mean(column, rows.column_names)}")
        return rows.cast_column(self.image, datasets.Image(decode=False))


def _read(image: Any, where: str) -> Any:
    """The image with its bytes; a dataset of picture files has only their paths."""
    if not isinstance(image, dict) or image["bytes"] is not None:
        return image
    try:
        return image | {"bytes": Path(image["path"]).read_bytes()}
    except OSError as error:
        raise InputError(f"{where}: {image['path']}: cannot be read: {error.strerror}") from error
