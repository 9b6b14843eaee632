"""What is wrong with a study, in one line: where, what would be right, and what was found.

Pydantic checks the data; this file says what it found in the file's own terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator import kinds
from orchestrator.errors import InputError, did_you_mean

Loc: TypeAlias = tuple[str, ...]
LONGEST = 80  # characters of a value that are shown
RIGHT = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    **dict.fromkeys(("dict_type", "model_type"), "should be a table"),
    **dict.fromkeys(("tuple_type", "list_type"), "should be a list"),
    "string_type": "should be text",
}


def complaint(
    error: ValidationError, locate: Callable[[Loc], str], known: Callable[[Loc], Iterable[str]] = lambda loc: ()
) -> str:
    """The first fault, and how many more there are.

    Args:
        locate: the path in the file of a place in the data.
        known: the keys that a table may have, to suggest one for a key that it may not.
    """
    # An unknown key first: it often is why another one is missing.
    faults = sorted(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
    fault, more = faults[0], len(faults) - 1
    # "[key]" is pydantic's word for the key itself, which a stranger's file may spell in any way.
    loc = tuple(shown_key(str(part)) for part in fault["loc"] if part != "[key]")
    if fault["type"] == "extra_forbidden":
        keys = [key for key in known(loc[:-1]) if key]
        line = f"{locate(loc)}: no such key{did_you_mean(loc[-1], keys)}, got {shown(fault['input'])}"
    elif fault["type"] == "missing":
        line = f"{locate(loc)}: is required"
    else:
        line = f"{locate(loc)}: {_message(fault)}"
    return line + (f" (and {more} more)" if more else "")


def _message(fault: ErrorDetails) -> str:
    """What would be right, and what was found. Our own checks say both already, unless they saw a part only."""
    value, message = fault["input"], RIGHT.get(fault["type"], fault["msg"])
    message = " ".join(message.removeprefix("Value error, ").replace("Input should", "should", 1).split())
    ours = fault["type"] == "value_error" and (", got " in message or str(value) in message)
    return message if ours or isinstance(value, Mapping | BaseModel) else f"{message}, got {shown(value)}"


def shown_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= LONGEST else shown(key)


def shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def keys(spec: type[BaseModel], table: Any, loc: Loc) -> list[str]:
    """The keys that the table at `loc` of a trial's table may have."""
    for depth, part in enumerate(loc):
        table = table.get(part) if isinstance(table, Mapping) else None
        found = _model(spec, part, table if depth == 0 else None)
        if found is None:
            return []
        spec = found
    return sorted(spec.model_fields.keys() - ({"workload", "seed"} if not loc else set()))


def _model(spec: type[BaseModel], part: str, table: Any) -> type[BaseModel] | None:
    if part in kinds.FAMILIES and isinstance(table, Mapping) and isinstance(table.get("kind"), str):
        try:
            return kinds.find(part, table["kind"])
        except InputError:
            return None
    if (info := spec.model_fields.get(part)) is None:
        return None
    candidates = (info.annotation, *get_args(info.annotation))
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def loosely_read(raw: Any, read: Any, loc: Loc = ()) -> tuple[Loc, str] | None:
    """Where pydantic made a number of a text or a truth value, or the other way round, and what would be right."""
    if isinstance(raw, Mapping):
        pairs = [(str(key), value, _get(read, key)) for key, value in raw.items()]
    elif isinstance(raw, list | tuple) and isinstance(read, list | tuple):
        pairs = [(str(place), *both) for place, both in enumerate(zip(raw, read, strict=False))]
    else:
        number = isinstance(read, int | float) and not isinstance(read, bool)
        if number and isinstance(raw, str | bool):
            return loc, f"should be a number, got {shown(raw)}"
        if isinstance(read, bool) and not isinstance(raw, bool):
            return loc, f"should be true or false, got {shown(raw)}"
        return None
    found = (loosely_read(value, result, (*loc, key)) for key, value, result in pairs)
    return next((fault for fault in found if fault), None)


def _get(read: Any, key: str) -> Any:
    return read.get(key) if isinstance(read, Mapping) else getattr(read, key, None)
