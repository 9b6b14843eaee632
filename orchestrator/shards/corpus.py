"""One side of a folder of shards as arrays, mapped from disk: nothing is read before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.shards.folder import Side

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Blocks:
    """The blocks of a corpus, (blocks,) each: runs of whole documents within a shard."""

    shard: Numbers  # where it lies
    first: Numbers  # the number of its first document in that shard
    documents: Numbers
    tokens: Numbers


@dataclass(frozen=True)
class Corpus:
    """Documents of token numbers; every document ends with the token `end`."""

    folder: Path
    side: Side
    end: int

    @cached_property
    def blocks(self) -> Blocks:
        shards = self.side.shards
        counts = np.array([block for shard in shards for block in shard.blocks], np.int64).reshape(-1, 2)
        shard = np.repeat(np.arange(len(shards)), [len(shard.blocks) for shard in shards])
        before = np.cumsum([0, *(shard.documents for shard in shards)])[shard]  # documents in the shards before
        first = np.cumsum(counts[:, 0]) - counts[:, 0] - before
        return Blocks(shard, first, counts[:, 0], counts[:, 1])

    def tokens(self, shard: int) -> NDArray[Any]:
        """(tokens,) of uint16 or uint32. It keeps a file open as long as it lives."""
        return self._mapped(self.side.shards[shard].tokens_file.name)

    def starts(self, shard: int) -> Numbers:
        """(documents + 1,): document d of the shard is tokens[starts[d]:starts[d + 1]]."""
        return self._mapped(self.side.shards[shard].starts_file.name)

    def _mapped(self, name: str) -> NDArray[Any]:
        return np.asarray(np.load(self.folder / name, mmap_mode="r"))  # slices of a memmap itself are slow
