"""Documents to arrays of token numbers, once for all trials that share them.

Everything made here is named by the hash of what it was made from, and appears by one rename. So a cache needs no
locks, never goes stale, and two processes that make the same thing at once agree.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.base import DataSpec, existing
from orchestrator.errors import InputError
from orchestrator.pretrain.spec import TextSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1  # of the cached files: another number makes all of them anew
BPE_END = "<eos>"
# What tokenizers in use call the end of a document.
ENDS = (BPE_END, "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<eot>", "[EOS]", "[SEP]")


@dataclass(frozen=True)
class Corpus:
    """Documents as one array of token numbers; every document ends with the token `end`."""

    tokens: NDArray[Any]  # (N,) of uint16 or uint32, mapped from disk
    starts: NDArray[np.int64]  # (documents + 1,): document d is tokens[starts[d]:starts[d + 1]]
    end: int

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)


@dataclass(frozen=True)
class Split:
    """The two sides of a corpus. A document's side depends on its text alone, so equal documents are on one side."""

    train: Corpus
    held_out: Corpus
    key: str  # hash of the text, the tokenizer and the split


def prepare(data: DataSpec, text: TextSpec, vocab_size: int, cache: Path) -> Split:
    """The tokens of `data`, from `cache` where they are there, else made and kept there.

    Raises:
        InputError: the documents cannot be read or split, or the tokenizer does not fit.
    """
    fingerprint = data.fingerprint()
    tokenizer_file = _tokenizer_file(data, text, vocab_size, fingerprint, cache)
    try:
        content = tokenizer_file.read_bytes()
    except OSError as error:
        raise InputError(f"text.tokenizer: {str(tokenizer_file)!r} cannot be read: {error.strerror}") from error
    key = _key(fingerprint, text.val_fraction, sha256(content).hexdigest())
    folder = cache / "tokens" / key
    if not folder.exists():
        _encode(data, text, _load_tokenizer(tokenizer_file, content), folder)
    return _open(folder, vocab_size, text, key)


def _tokenizer_file(data: DataSpec, text: TextSpec, vocab_size: int, fingerprint: str, cache: Path) -> Path:
    """The given tokenizer.json, or a byte-level BPE of `vocab_size` learned from the training documents."""
    if text.tokenizer != "bpe":
        given = existing(text.tokenizer)
        if given is None:
            raise InputError(f"text.tokenizer: {text.tokenizer!r} cannot be read: No such file")
        return given
    file = cache / "tokenizers" / f"{_key(fingerprint, text.val_fraction, str(vocab_size))}.json"
    if not file.exists():
        learned = _learn_bpe((document for document, held in _split(data, text) if not held), vocab_size)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            made = Path(scratch, file.name)
            made.write_text(learned.to_str(), encoding="utf-8")
            made.replace(file)
    return file


def _learn_bpe(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BPE_END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def _load_tokenizer(file: Path, content: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"text.tokenizer: {file} is no tokenizer.json: {str(error).splitlines()[0]}") from error


def _split(data: DataSpec, text: TextSpec) -> Iterator[tuple[str, bool]]:
    """Each document, and whether it is held out: the share of the lowest hashes, and at least the lowest of all."""
    lowest = 1.0
    for document in data.documents():
        lowest = min(lowest, _place(document))
        if lowest < text.val_fraction:
            break
    for document in data.documents():
        place = _place(document)
        yield document, place < text.val_fraction or place == lowest


def _place(document: str) -> float:
    """A document's fixed place in [0, 1), from its hash."""
    return int.from_bytes(sha256(document.encode()).digest()[:6]) / 2**48


def _encode(data: DataSpec, text: TextSpec, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokens of both sides to `folder`, held-out documents by hash: the first are a fair sample of all."""
    vocabulary = tokenizer.get_vocab()
    end = next((vocabulary[name] for name in ENDS if name in vocabulary), None)
    if end is None:
        raise InputError(f"text.tokenizer: no token that ends a document; looked for {', '.join(ENDS)}")
    dtype = np.uint16 if max(vocabulary.values()) < 2**16 else np.uint32
    train: list[NDArray[Any]] = []
    held_out: list[tuple[float, NDArray[Any]]] = []
    documents = _split(data, text)
    while chunk := list(islice(documents, 1000)):
        try:
            encodings = tokenizer.encode_batch_fast([document for document, _ in chunk], add_special_tokens=False)
        except Exception as error:  # the library raises nothing narrower
            raise InputError(f"text.tokenizer: {text.tokenizer} cannot encode the documents: {error}") from error
        for (document, held), encoding in zip(chunk, encodings, strict=True):
            ids = np.array([*encoding.ids, end], dtype)
            if held:
                held_out.append((_place(document), ids))
            else:
                train.append(ids)
    if not train:
        raise InputError(
            f"data: {len(held_out)} document{'s' * (len(held_out) != 1)} cannot be split into training and held-out "
            f"text; give more documents or a val_fraction below {text.val_fraction}"
        )
    sides = {"train": train, "held_out": [ids for _, ids in sorted(held_out, key=lambda pair: pair[0])]}
    _write(sides, {"end": end, "vocabulary": max(vocabulary.values()) + 1}, folder)


def _write(sides: dict[str, list[NDArray[Any]]], about: dict[str, int], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix="."))
    for side, documents in sides.items():
        np.save(scratch / f"{side}.tokens.npy", np.concatenate(documents))
        np.save(scratch / f"{side}.starts.npy", np.cumsum([0, *map(len, documents)], dtype=np.int64))
    (scratch / "about.json").write_text(json.dumps(about))
    try:
        scratch.rename(folder)
    except OSError:
        shutil.rmtree(scratch)
        if not folder.exists():  # else another process was first, with the same content
            raise


def _open(folder: Path, vocab_size: int, text: TextSpec, key: str) -> Split:
    try:
        about = json.loads((folder / "about.json").read_text())
        if about["vocabulary"] > vocab_size:
            raise InputError(
                f"text.tokenizer: {text.tokenizer} has {about['vocabulary']} tokens; "
                f"model.vocab_size must be at least that, it is {vocab_size}"
            )
        train, held_out = (
            Corpus(
                np.asarray(np.load(folder / f"{side}.tokens.npy", mmap_mode="r")),
                np.load(folder / f"{side}.starts.npy"),
                about["end"],
            )
            for side in ("train", "held_out")
        )
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{folder}: damaged ({error}); delete this folder and it is made anew") from error
    return Split(train, held_out, key)


def _key(*parts: str | float) -> str:
    return sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()[:16]
