"""The tokens of a trial: shards that `ancre data prepare` made, or made here from documents, once for all trials.

What is made here is named by the hash of what it was made from, and appears by one rename. So a cache needs no locks,
never goes stale, and two processes that make the same thing at once agree. It is for text that fits in memory.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.data.base import DataSpec, existing
from orchestrator.errors import InputError
from orchestrator.pretrain.spec import TextSpec
from orchestrator.shards import folder as shards
from orchestrator.shards.corpus import Corpus
from orchestrator.shards.encoder import Encoder, learn_bpe, place
from orchestrator.shards.writer import Writer

FORMAT = 2  # of the cached files: another number makes all of them anew


@dataclass(frozen=True)
class Split:
    """The two sides of a corpus. A document's side depends on its text alone, so equal documents are on one side."""

    train: Corpus
    held_out: Corpus
    key: str  # hash of all tokens and how they were made


def prepare(data: DataSpec, text: TextSpec, vocab_size: int, cache: Path) -> Split:
    """The tokens of `data`: its own shards, or those in `cache`, which are made where they are not there.

    Raises:
        InputError: the documents cannot be read or split, the tokenizer does not fit, or a shard is damaged.
    """
    folder = data.tokenized()
    made_here = folder is None
    if folder is None:
        folder = _made(data, text, vocab_size, cache)
    manifest = shards.read(folder)
    if not made_here:
        _check_choices(text, manifest, folder)
    if manifest.vocabulary > vocab_size:
        raise InputError(
            f"text.tokenizer: {manifest.tokenizer} has {manifest.vocabulary} tokens; "
            f"model.vocab_size must be at least that, it is {vocab_size}"
        )
    shards.check(folder, manifest, cache)
    train, held_out = (Corpus(folder, side, manifest.end) for side in (manifest.train, manifest.validation))
    return Split(train, held_out, manifest.checksum[:16])


def _check_choices(text: TextSpec, manifest: shards.Manifest, folder: Path) -> None:
    """That the trial asks for no other tokenizer or split than the shards were made with."""
    default = TextSpec()
    if text.val_fraction != default.val_fraction:
        raise InputError(f"text.val_fraction {text.val_fraction}: {folder} is split already; leave it out")
    if text.tokenizer not in (default.tokenizer, manifest.tokenizer):
        given = existing(text.tokenizer)
        if given is None or sha256(_content(given)).hexdigest() != manifest.tokenizer_sha256:
            raise InputError(
                f"text.tokenizer: {folder} was tokenized with {manifest.tokenizer!r}, not {text.tokenizer!r}; "
                "leave it out, or prepare other shards"
            )


def _made(data: DataSpec, text: TextSpec, vocab_size: int, cache: Path) -> Path:
    """The folder in the cache."""
    fingerprint = data.fingerprint()
    tokenizer = _tokenizer_file(data, text, vocab_size, fingerprint, cache)
    content = _content(tokenizer)
    source = {"documents": fingerprint, "val_fraction": text.val_fraction}
    folder = cache / "shards" / _key(*source.values(), sha256(content).hexdigest())
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix="."))
        try:
            _write(data, text, content, source, scratch)
            scratch.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was first, with the same content
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _content(tokenizer: Path) -> bytes:
    try:
        return tokenizer.read_bytes()
    except OSError as error:
        raise InputError(f"text.tokenizer: {str(tokenizer)!r} cannot be read: {error.strerror}") from error


def _tokenizer_file(data: DataSpec, text: TextSpec, vocab_size: int, fingerprint: str, cache: Path) -> Path:
    """The given tokenizer.json, or a byte-level BPE of `vocab_size` learned from the training documents."""
    if text.tokenizer != "bpe":
        given = existing(text.tokenizer)
        if given is None:
            raise InputError(f"text.tokenizer: {text.tokenizer!r} cannot be read: No such file")
        return given
    file = cache / "tokenizers" / f"{_key(fingerprint, text.val_fraction, str(vocab_size))}.json"
    if not file.exists():
        learned = learn_bpe((document for document, held in _split(data, text) if not held), vocab_size)
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            made = Path(scratch, file.name)
            made.write_bytes(learned)
            made.replace(file)
    return file


def _split(data: DataSpec, text: TextSpec) -> Iterator[tuple[str, bool]]:
    """Each document, and whether it is held out: the share of the lowest hashes, and at least the lowest of all."""
    lowest = 1.0
    for document in data.documents():
        lowest = min(lowest, place(document))
        if lowest < text.val_fraction:
            break
    for document in data.documents():
        at = place(document)
        yield document, at < text.val_fraction or at == lowest


def _write(data: DataSpec, text: TextSpec, tokenizer: bytes, source: dict[str, Any], folder: Path) -> None:
    """Write both sides to `folder`, held-out documents by hash: the first are a fair sample of all."""
    encoder = Encoder.load(tokenizer, f"text.tokenizer: {text.tokenizer}")
    train, validation = (Writer(folder, side) for side in shards.SIDES)
    held_out: list[tuple[float, NDArray[Any]]] = []
    documents = _split(data, text)
    while chunk := list(islice(documents, 1000)):
        tokens, lengths = encoder.encode([document for document, _ in chunk])
        held = np.array([held for _, held in chunk])
        train.add(tokens[np.repeat(~held, lengths)], lengths[~held])
        parts = np.split(tokens, np.cumsum(lengths)[:-1])
        held_out += [(place(document), ids) for (document, held), ids in zip(chunk, parts, strict=True) if held]
    held_out.sort(key=lambda pair: pair[0])
    for _, ids in held_out:
        validation.add(ids, np.array([ids.size]))
    sides = [shards.Side.of(writer.write()) for writer in (train, validation)]
    if not sides[0].documents:
        count = len(held_out)
        raise InputError(
            f"data: {count} document{'s' * (count != 1)} cannot be split into training and held-out "
            f"text; give more documents or a val_fraction below {text.val_fraction}"
        )
    manifest = shards.Manifest(
        tokenizer=text.tokenizer,
        tokenizer_sha256=sha256(tokenizer).hexdigest(),
        vocabulary=encoder.vocabulary,
        end=encoder.end,
        source=source,
        train=sides[0],
        validation=sides[1],
    )
    (folder / shards.TOKENIZER).write_bytes(tokenizer)
    shards.write(folder, manifest)


def _key(*parts: Any) -> str:
    return sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()[:16]
