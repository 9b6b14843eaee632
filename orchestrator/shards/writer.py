"""How a shard is written: its files appear whole or not at all, and the same documents give the same bytes."""

from __future__ import annotations

import os
from hashlib import file_digest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0
from numpy.typing import NDArray

from orchestrator.shards.folder import File, Shard

BLOCK = 2**20  # tokens: a block ends with the first document that fills it


class Writer:
    """Collects documents of one side of a folder, and writes them a shard at a time.

    Args:
        number: of the next shard.
        block: tokens of a block.
    """

    def __init__(self, folder: Path, side: str, number: int = 0, block: int = BLOCK) -> None:
        self.folder, self.side, self.number, self.block = folder, side, number, block
        self.tokens: list[NDArray[Any]] = []  # of the shard that is collected
        self.lengths: list[NDArray[np.int64]] = []  # of its documents
        self.size = 0  # its tokens
        (folder / side).mkdir(parents=True, exist_ok=True)

    def add(self, tokens: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """Documents, end to end, and their lengths, each with its end token."""
        if lengths.size:
            self.tokens.append(tokens)
            self.lengths.append(lengths)
            self.size += tokens.size

    def write(self) -> list[Shard]:
        """Write what was collected, as one shard; as none where there is nothing."""
        if not self.lengths:
            return []
        starts = np.concatenate([[0], np.cumsum(np.concatenate(self.lengths))]).astype(np.int64)
        name = f"{self.side}/{self.number:05d}"
        shard = Shard(
            tokens_file=save(self.folder, f"{name}.tokens.npy", np.concatenate(self.tokens)),
            starts_file=save(self.folder, f"{name}.starts.npy", starts),
            documents=starts.size - 1,
            tokens=int(starts[-1]),
            blocks=tuple(self._blocks(starts)),
        )
        self.tokens, self.lengths, self.size, self.number = [], [], 0, self.number + 1
        return [shard]

    def _blocks(self, starts: NDArray[np.int64]) -> list[tuple[int, int]]:
        blocks, first = [], 0
        while first < starts.size - 1:
            last = min(int(np.searchsorted(starts, starts[first] + self.block)), starts.size - 1)
            blocks.append((last - first, int(starts[last] - starts[first])))
            first = last
        return blocks


def save(folder: Path, name: str, array: NDArray[Any]) -> File:
    """Write one file of a folder of shards."""
    path = folder / name
    scratch = path.with_name(f".{path.name}")
    with scratch.open("wb") as file:
        # np.save hands the file to C, whose last buffer a full disk cuts off without an error.
        write_array_header_1_0(file, header_data_from_array_1_0(array))
        file.write(np.ascontiguousarray(array).data)
        file.flush()
        os.fsync(file.fileno())
    with scratch.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    scratch.rename(path)
    return File(name=name, bytes=path.stat().st_size, sha256=digest)
