"""Which tokenizer.json a choice means: a file, one on the Hugging Face hub, or one that is learned here."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from orchestrator.data.base import existing
from orchestrator.errors import InputError
from orchestrator.prepare.settings import HUB_NAME, Settings
from orchestrator.prepare.sources import Source
from orchestrator.shards.encoder import learn_bpe, place

BPE_TEXT = 2**28  # characters from which `bpe` learns: the first ones


def tokenizer_json(settings: Settings, sources: dict[str, Source]) -> bytes:
    """The content of the tokenizer.json.

    Raises:
        InputError: it cannot be read or fetched.
    """
    choice = settings.tokenizer
    if choice == "bpe":
        assert settings.vocab_size is not None  # as Settings checked
        return learn_bpe(_training_text(settings, sources), settings.vocab_size)
    found = tokenizer_file(settings)
    if found is None and HUB_NAME.fullmatch(choice) and not choice.endswith(".json"):
        return _from_hub(choice)
    try:
        return (found or Path(choice)).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"--tokenizer: {choice!r} cannot be read: {getattr(error, 'strerror', error)}") from error


def tokenizer_file(settings: Settings) -> Path | None:
    """The user's own file, where the choice is one, or the one in a model's folder."""
    found = None if settings.tokenizer == "bpe" else existing(settings.tokenizer)
    return found / "tokenizer.json" if found and found.is_dir() else found


def _from_hub(name: str) -> bytes:
    from huggingface_hub import errors, hf_hub_download

    # A line for every retry. The import above has set the level, so it comes first.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        return Path(hf_hub_download(name, "tokenizer.json")).read_bytes()
    except (errors.RepositoryNotFoundError, errors.RemoteEntryNotFoundError) as error:
        raise InputError(
            f"--tokenizer {name}: no file of this name here, and no tokenizer.json under it on the Hugging Face hub"
        ) from error
    except (OSError, errors.HfHubHTTPError) as error:
        raise InputError(
            f"--tokenizer {name}: the Hugging Face hub cannot be reached; give the file instead: "
            f"--tokenizer tokenizer.json, from https://huggingface.co/{name}/resolve/main/tokenizer.json"
        ) from error


def _training_text(settings: Settings, sources: dict[str, Source]) -> Iterator[str]:
    name, source = next((name, source) for name, source in sources.items() if name != "validation")
    parts = (source.documents(part) for part in range(source.num_parts))
    characters = 0
    for taken, document in enumerate(chain.from_iterable(parts)):
        if characters >= BPE_TEXT or taken == settings.limit:
            return
        characters += len(document)
        if name == "train" or place(document) >= settings.val_fraction:
            yield document
