"""Which tokens are in which sequence. A batch follows from its step alone, so a resumed run needs no saved position.

Training windows are shuffled in two stages, so that a start costs the same for 365 million documents as for a thousand.
A pass permutes the blocks of the corpus (runs of documents of about 2^20 tokens; a million blocks are permuted in
30 ms), and takes them 256 at a time. Of these it permutes the documents in each block, and then the windows of all.
So a batch is a sample of 256 random places of the corpus, 2^28 tokens (2,000 steps of 512 x 256), and documents that
lay side by side are met within the same 2,000 steps, hardly ever in one batch. A corpus of up to 256 blocks is
permuted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.shards.corpus import Corpus
from orchestrator.shards.corpus import Numbers as Numbers

PAD = -1  # in a window, after the end of the text: never predicted
MIXED = 256  # blocks that are shuffled together, and the most files that are open at once

Packing = Literal["concat", "none"]


def window_counts(corpus: Corpus, length: int, packing: Packing) -> Numbers:
    """How many windows each block gives, (blocks,)."""
    blocks = corpus.blocks
    return -(-blocks.tokens // length) if packing == "concat" else blocks.documents


class Pass:
    """One pass over blocks, as windows of length + 1 tokens: each token but the first is predicted from those before.

    `concat` cuts the documents of a block, laid end to end, every `length` tokens. Windows overlap by one and the first
    begins with an end-of-document token, so that every token is predicted exactly once. `none` has one window a
    document: its first length + 1 tokens.

    Args:
        blocks: their numbers, in the order of this pass; by default all, in an order that is the same in every run, so
            that the first windows are a sample of the whole corpus.
        random: shuffles the documents in each block; None: as they lie.
    """

    def __init__(
        self,
        corpus: Corpus,
        length: int,
        packing: Packing,
        blocks: Numbers | None = None,
        random: np.random.Generator | None = None,
    ) -> None:
        blocks = np.random.default_rng(0).permutation(corpus.blocks.shard.size) if blocks is None else blocks
        counts = window_counts(corpus, length, packing)[blocks]
        self.corpus, self.length, self.packing = corpus, length, packing
        self.size = int(counts.sum())
        # The text of this pass: blocks end to end, each filled up to whole windows. Block b is begins[b] .. ends[b].
        self.begins = (np.cumsum(counts) - counts) * length
        self.ends = self.begins + corpus.blocks.tokens[blocks]
        self.shard = corpus.blocks.shard[blocks]
        self._lay_out(blocks, random)
        self._tokens = lru_cache(MIXED)(corpus.tokens)

    def _lay_out(self, blocks: Numbers, random: np.random.Generator | None) -> None:
        """Each document's block in this pass, place in its shard, length, and place in the text: (documents,) each."""
        corpus, counts = self.corpus, self.corpus.blocks.documents[blocks]
        places, lengths = [], []
        for block, count in zip(blocks, counts, strict=True):
            first = corpus.blocks.first[block]
            starts = np.array(corpus.starts(corpus.blocks.shard[block])[first : first + count + 1])
            order = np.arange(count) if random is None else random.permutation(count)
            places.append(starts[order])
            lengths.append(np.diff(starts)[order])
        self.block = np.repeat(np.arange(blocks.size, dtype=np.int32), counts)
        self.places, self.lengths = np.concatenate(places), np.concatenate(lengths)
        stops = np.cumsum(self.lengths)  # without the filling
        shift = self.begins - (np.cumsum(corpus.blocks.tokens[blocks]) - corpus.blocks.tokens[blocks])
        self.starts = stops - self.lengths + shift[self.block]

    def __len__(self) -> int:
        """Windows in the pass."""
        return self.size

    def windows(self, numbers: Numbers) -> Numbers:
        """The windows of these numbers, (len(numbers), length + 1), filled up with PAD."""
        windows = np.full((len(numbers), self.length + 1), PAD, np.int64)
        for row, column, shard, place, count in self._pieces(numbers):
            windows[row, column : column + count] = self._tokens(shard)[place : place + count]
        if self.packing == "concat":
            windows[np.isin(numbers * self.length, self.begins), 0] = self.corpus.end
        return windows

    def predictions(self, numbers: Numbers) -> Numbers:
        """How many tokens each of these windows predicts, (len(numbers),), without reading any."""
        if self.packing == "none":
            there = self.lengths[numbers] - 1
        else:
            there = self.ends[self._block_at(numbers * self.length)] - numbers * self.length
        return there.clip(max=self.length)

    def first(self, tokens: int | None) -> int:
        """How many windows from the start hold at least this many predictions; all where tokens is None."""
        if tokens is None:
            return len(self)
        predictions = self.predictions(np.arange(len(self)))
        return min(len(self), int(np.searchsorted(predictions.cumsum(), tokens)) + 1)

    def _block_at(self, text: Numbers) -> NDArray[np.intp]:
        return np.searchsorted(self.begins, text, side="right") - 1

    def _pieces(self, numbers: Numbers) -> Iterator[tuple[int, ...]]:
        """Runs of tokens that make up windows: (row, column, shard, place in the shard, tokens) of each."""
        if self.packing == "none":
            rows, columns, documents = np.arange(len(numbers)), np.zeros(len(numbers), np.int64), numbers
            places, counts = self.places[numbers], np.minimum(self.lengths[numbers], self.length + 1)
        else:
            corner = numbers * self.length - 1  # place in the text of column 0
            block = self._block_at(corner + 1)
            begins, ends = (
                np.maximum(corner, self.begins[block]),
                np.minimum(corner + self.length + 1, self.ends[block]),
            )
            first = np.searchsorted(self.starts, begins, side="right") - 1
            pieces = np.searchsorted(self.starts, ends) - first  # documents in each window
            rows = np.repeat(np.arange(len(numbers)), pieces)
            documents = np.arange(rows.size) - np.repeat(np.cumsum(pieces) - pieces - first, pieces)
            begins = np.maximum(begins[rows], self.starts[documents])
            columns = begins - corner[rows]
            counts = np.minimum(ends[rows], self.starts[documents] + self.lengths[documents]) - begins
            places = self.places[documents] + begins - self.starts[documents]
        shards = self.shard[self.block[documents]]
        return zip(*(numbers.tolist() for numbers in (rows, columns, shards, places, counts)), strict=True)


class Stream:
    """Endless training windows: pass after pass, each shuffled anew by `seed`, as this file's beginning says."""

    def __init__(self, corpus: Corpus, length: int, packing: Packing, seed: int) -> None:
        self.corpus, self.length, self.packing, self.seed = corpus, length, packing, seed
        self.counts = window_counts(corpus, length, packing)
        self.size = int(self.counts.sum())  # windows in a pass
        self.epoch, self.group = -1, -1  # those at hand

    def windows(self, first: int, count: int) -> Numbers:
        """Windows first .. first + count - 1 of the stream, (count, length + 1)."""
        return np.concatenate([text.windows(numbers) for text, numbers in self._spans(first, count)])

    def predictions(self, first: int, count: int) -> int:
        """How many tokens these windows predict in all, without reading any."""
        return sum(int(text.predictions(numbers).sum()) for text, numbers in self._spans(first, count))

    def _spans(self, first: int, count: int) -> Iterator[tuple[Pass, Numbers]]:
        """These windows as runs within one group of blocks each: the group, and the windows' numbers in it."""
        stop = first + count
        while first < stop:
            epoch, place = divmod(first, self.size)
            self._shuffle(epoch)
            group = int(np.searchsorted(self.begins, place, side="right")) - 1
            self._open(group)
            place -= int(self.begins[group])
            numbers = self.order[place : place + stop - first]
            yield self.text, numbers
            first += numbers.size

    def _shuffle(self, epoch: int) -> None:
        if epoch == self.epoch:
            return
        self.blocks = np.random.default_rng((self.seed, epoch, 0, 1)).permutation(self.counts.size)
        groups = np.arange(0, self.counts.size, MIXED)
        sizes = np.add.reduceat(self.counts[self.blocks], groups)
        self.begins = np.cumsum(sizes) - sizes  # of each group, in windows
        self.epoch, self.group = epoch, -1

    def _open(self, group: int) -> None:
        if group == self.group:
            return
        random = np.random.default_rng((self.seed, self.epoch, group))
        blocks = self.blocks[group * MIXED : (group + 1) * MIXED]
        self.text = Pass(self.corpus, self.length, self.packing, blocks, random)
        self.order = random.permutation(len(self.text))
        self.group = group
