"""The words of `ancre data prepare` as settings, and what is there in the end as a line."""

from __future__ import annotations

import argparse
import os
from typing import TypeVar

from pydantic import ValidationError

from models.spec import Spec
from orchestrator.errors import InputError
from orchestrator.prepare.pictures import Pictures, prepare_pictures
from orchestrator.prepare.run import prepare
from orchestrator.prepare.settings import Settings

Asked = TypeVar("Asked", bound=Spec)


def command(arguments: argparse.Namespace) -> str:
    """Prepare what the command line asks for; returns what to tell the user.

    Raises:
        InputError: as `prepare` and `prepare_pictures`; a value is out of its range, or of the other kind of data.
    """
    workers = arguments.workers or os.cpu_count() or 1
    return _pictures(arguments, workers) if arguments.vae or arguments.images else _text(arguments, workers)


def _text(arguments: argparse.Namespace, workers: int) -> str:
    if arguments.tokenizer is None:
        raise InputError("give --tokenizer T for text, or --vae PATH for pictures")
    manifest = prepare(_settings(Settings, Pictures, arguments), arguments.out, workers)
    train, held_out = (
        f"{s.documents:,} documents ({s.tokens:,} tokens)" for s in (manifest.train, manifest.validation)
    )
    return (
        f'{train} to train on, {held_out} held out.\nIn a study: data = {{ kind = "shards", path = "{arguments.out}" }}'
    )


def _pictures(arguments: argparse.Namespace, workers: int) -> str:
    if arguments.vae is None:
        raise InputError(
            "--images: give --vae PATH too; a model of pixels needs no preparation: "
            f'images = {{ kind = "folder", path = "{arguments.images}" }}'
        )
    manifest = prepare_pictures(_settings(Pictures, Settings, arguments), arguments.out, workers)
    mirrored = ", and as many mirror images" if manifest.flips else ""
    return (
        f"{manifest.images:,} images of {manifest.num_classes:,} classes as latents of "
        f"{' x '.join(map(str, manifest.shape))}{mirrored}; {len(manifest.skipped):,} skipped.\n"
        f'In a study: images = {{ kind = "latents", path = "{arguments.out}" }}'
    )


def _settings(wanted: type[Asked], other: type[Spec], arguments: argparse.Namespace) -> Asked:
    """The words that are of this kind of data; those of the other are refused."""
    strange = [
        name for name in set(other.model_fields) - set(wanted.model_fields) if getattr(arguments, name) is not None
    ]
    if strange:
        raise InputError(f"{_option(min(strange))}: is not of {'pictures' if wanted is Pictures else 'text'}")
    given = {name: getattr(arguments, name) for name in wanted.model_fields}
    try:
        return wanted(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        option = "".join(f"{_option(str(name))} {fault['input']}: " for name in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
        raise InputError(f"{option}{message}") from error


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
