"""Which tokens are in which sequence. A batch follows from its step alone, so a resumed run needs no saved position."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from orchestrator.pretrain.tokens import Corpus

PAD = -1  # in a window, after the end of the text: never predicted

Packing = Literal["concat", "none"]
Numbers = NDArray[np.int64]


class Pass:
    """One pass over a corpus, as windows of length + 1 tokens: each token but the first is predicted from those before.

    `concat` cuts the documents, laid end to end, every `length` tokens. Windows overlap by one and the first begins
    with an end-of-document token, so that every token is predicted exactly once. `none` has one window a document: its
    first length + 1 tokens.

    Args:
        order: the documents' numbers, in the order of this pass; by default as in the corpus.
    """

    def __init__(self, corpus: Corpus, length: int, packing: Packing, order: Numbers | None = None) -> None:
        order = np.arange(corpus.lengths.size) if order is None else order
        lengths = corpus.lengths[order]
        self.corpus, self.length, self.packing = corpus, length, packing
        self.starts = corpus.starts[order]  # of each document in corpus.tokens
        self.ends = np.cumsum(lengths)  # of each document in the text of this pass
        self.shift = self.starts - (self.ends - lengths)  # from the text of this pass to corpus.tokens
        self.predictions = np.minimum(lengths - 1, length)  # of each document, unpacked

    def __len__(self) -> int:
        """Windows in the pass."""
        return -(-self.corpus.tokens.size // self.length) if self.packing == "concat" else self.starts.size

    def windows(self, numbers: Numbers) -> Numbers:
        """The windows of these numbers, (len(numbers), length + 1), filled up with PAD."""
        offsets = np.arange(self.length + 1)
        if self.packing == "none":
            places = self.starts[numbers, None] + offsets
            inside = offsets <= self.predictions[numbers, None]
        else:
            text = numbers[:, None] * self.length + offsets - 1  # places in the text of this pass
            document = np.searchsorted(self.ends, text, side="right")
            inside = text < self.ends[-1]
            places = text + self.shift[np.where(inside, document, 0)]
        tokens = self.corpus.tokens[np.where(inside, places, 0)].astype(np.int64)
        windows = np.where(inside, tokens, PAD)
        if self.packing == "concat":
            windows[text < 0] = self.corpus.end
        return windows

    def first(self, tokens: int | None) -> int:
        """How many windows from the start hold at least this many predictions; all where tokens is None."""
        predictions = np.full(len(self), self.length) if self.packing == "concat" else self.predictions
        return len(self) if tokens is None else min(len(self), int(np.searchsorted(predictions.cumsum(), tokens)) + 1)


class Stream:
    """Endless training windows: pass after pass, each with its documents and its windows shuffled anew by `seed`."""

    def __init__(self, corpus: Corpus, length: int, packing: Packing, seed: int) -> None:
        self.corpus, self.length, self.packing, self.seed = corpus, length, packing, seed
        self.epoch = -1
        self._shuffle(0)

    def windows(self, first: int, count: int) -> Numbers:
        """Windows first .. first + count - 1 of the stream, (count, length + 1)."""
        epochs, places = np.divmod(np.arange(first, first + count), len(self.text))
        return np.concatenate(
            [self._pick(epoch, places[epochs == epoch]) for epoch in range(epochs[0], epochs[-1] + 1)]
        )

    def _pick(self, epoch: int, places: Numbers) -> Numbers:
        if epoch != self.epoch:
            self._shuffle(epoch)
        return self.text.windows(self.order[places])

    def _shuffle(self, epoch: int) -> None:
        random = np.random.default_rng((self.seed, epoch))
        documents = random.permutation(self.corpus.lengths.size)
        self.text = Pass(self.corpus, self.length, self.packing, documents)
        self.order = random.permutation(len(self.text))
        self.epoch = epoch
