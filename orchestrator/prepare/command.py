"""The words of `ancre data prepare` as settings, and what is there in the end as a line."""

from __future__ import annotations

import argparse
import os

from pydantic import ValidationError

from orchestrator.errors import InputError
from orchestrator.prepare.run import prepare
from orchestrator.prepare.settings import Settings


def command(arguments: argparse.Namespace) -> str:
    """Prepare what the command line asks for; returns what to tell the user.

    Raises:
        InputError: as `prepare`; a value is out of its range.
    """
    given = {name: getattr(arguments, name) for name in Settings.model_fields}
    try:
        settings = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        option = "".join(f"--{str(name).replace('_', '-')} {fault['input']}: " for name in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ").replace("Input should", "should")
        raise InputError(f"{option}{message}") from error
    manifest = prepare(settings, arguments.out, arguments.workers or os.cpu_count() or 1)
    train, held_out = (
        f"{s.documents:,} documents ({s.tokens:,} tokens)" for s in (manifest.train, manifest.validation)
    )
    return (
        f'{train} to train on, {held_out} held out.\nIn a study: data = {{ kind = "shards", path = "{arguments.out}" }}'
    )
