"""Corpora of distinct tokens, written as shards: each document's text can be told from any other's."""

import atexit
import shutil
import tempfile
from itertools import accumulate, chain
from pathlib import Path

import numpy as np

from orchestrator.shards.corpus import Corpus
from orchestrator.shards.folder import Side
from orchestrator.shards.writer import Writer

END = 0
ROOT = Path(tempfile.mkdtemp(prefix="shards-"))
atexit.register(shutil.rmtree, ROOT, ignore_errors=True)


def documents(*lengths: int) -> list[list[int]]:
    """Documents of distinct tokens, each ended by END."""
    begins = accumulate(lengths, initial=1)
    return [[*range(begin, begin + length), END] for begin, length in zip(begins, lengths, strict=False)]


def corpus(*lengths: int, shards: int = 1, block: int = 2**20) -> Corpus:
    """These documents in so many shards, or one a document, with blocks of so many tokens."""
    folder = Path(tempfile.mkdtemp(dir=ROOT))
    writer, written = Writer(folder, "train", block=block), []
    texts = documents(*lengths)
    shards = min(shards, len(texts))
    for number in range(shards):
        part = texts[number * len(texts) // shards : (number + 1) * len(texts) // shards]
        writer.add(np.array([*chain(*part)], np.uint16), np.array([*map(len, part)]))
        written += writer.write()
    return Corpus(folder, Side.of(written), END)
