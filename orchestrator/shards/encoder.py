"""Which tokenizer it is, which of its tokens ends a document, and how text becomes token numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BPE_END = "<eos>"
# What tokenizers in use call the end of a document.
ENDS = (BPE_END, "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<eot>", "[EOS]", "[SEP]")


@dataclass(frozen=True)
class Encoder:
    """A tokenizer. What a document spells like a special token is text, not that token."""

    tokenizer: Tokenizer
    end: int
    vocabulary: int  # every number that text can give is below it; unused special tokens may lie above
    where: str  # the name of the user's choice, for messages

    @classmethod
    def load(cls, content: bytes, where: str) -> Encoder:
        """The tokenizer of a tokenizer.json.

        Raises:
            InputError: it is none, or has no token that ends a document.
        """
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{where} is no tokenizer.json: {str(error).splitlines()[0]}") from error
        tokenizer.encode_special_tokens = True
        tokenizer.no_truncation()  # as some published ones are set
        tokenizer.no_padding()
        vocabulary = tokenizer.get_vocab()
        end = next((vocabulary[name] for name in ENDS if name in vocabulary), None)
        if end is None:
            raise InputError(f"{where}: no token that ends a document; looked for {', '.join(ENDS)}")
        model = json.loads(tokenizer.to_str())["model"]
        unknown = vocabulary.get(model.get("unk_token"), model.get("unk_id") or 0)
        special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        return cls(tokenizer, end, 1 + max(end, unknown, *(set(vocabulary.values()) - special)), where)

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        return np.uint16 if self.vocabulary <= 2**16 else np.uint32

    def encode(self, documents: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Tokens of the documents, end to end, each with the end token; and their lengths."""
        try:
            encodings = self.tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"{self.where} cannot encode the documents: {error}") from error
        ids = [[*encoding.ids, self.end] for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum())), lengths


def learn_bpe(documents: Iterable[str], vocab_size: int) -> bytes:
    """The tokenizer.json of a byte-level BPE learned from documents."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BPE_END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(documents, trainer)
    content: str = tokenizer.to_str()
    return content.encode()


def place(document: str) -> float:
    """A document's fixed place in [0, 1), from its hash: those of the lowest places are held out."""
    return int.from_bytes(sha256(document.encode()).digest()[:6]) / 2**48
