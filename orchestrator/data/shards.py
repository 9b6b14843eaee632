"""Text that `ancre data prepare` has tokenized: a folder of shards, read as it is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field

from orchestrator.data.base import DataSpec, existing
from orchestrator.errors import InputError


class Spec(DataSpec):
    """Tokens made by `ancre data prepare`; text.tokenizer and text.val_fraction are settled there."""

    kind: Literal["shards"] = "shards"
    path: str = Field(min_length=1)  # relative to where the command is run

    def tokenized(self) -> Path:
        found = existing(self.path)
        if found is None:
            raise InputError(f"data.path: {self.path!r} does not exist (looked from {Path.cwd()})")
        return found

    def documents(self) -> Iterator[str]:
        """The training documents, as the tokenizer gives them back."""
        from tokenizers import Tokenizer

        from orchestrator.shards import folder as shards
        from orchestrator.shards.corpus import Corpus

        folder = self.tokenized()
        manifest = shards.read(folder)
        tokenizer = Tokenizer.from_file(str(folder / shards.TOKENIZER))
        corpus = Corpus(folder, manifest.train, manifest.end)
        for shard in range(len(manifest.train.shards)):
            tokens, starts = corpus.tokens(shard), corpus.starts(shard)
            for start, stop in pairwise(starts):
                yield tokenizer.decode(tokens[start : stop - 1].tolist(), skip_special_tokens=False)

    def fingerprint(self) -> str:
        from orchestrator.shards import folder as shards

        return shards.read(self.tokenized()).checksum
