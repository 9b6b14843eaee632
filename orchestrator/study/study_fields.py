"""How the fields of a study are written, and what they stand for. Every function raises ValueError, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, StrictStr

from orchestrator.errors import did_you_mean
from orchestrator.study import merge
from orchestrator.study.complaints import shown
from search_spaces import samplers, schedulers
from search_spaces.samplers import SAMPLERS
from search_spaces.schedulers import SCHEDULERS

LONGEST_NAME = 100  # characters
MOST_SEEDS = 1000


def parsed(what: str, known: Mapping[str, type[BaseModel]], default: str, value: Any) -> Any:
    """A table with a kind, which may be left out where it is `default`, as that kind's spec."""
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f'should be a table such as {{ kind = "{default}" }}, got {shown(value)}')
    kind = value.get("kind", default)
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"no {what} of kind {kind!r}{did_you_mean(str(kind), known)}")
    return known[kind].model_validate(dict(value))


def named(name: str) -> str:
    """A name that is safe as that of a folder, an MLflow experiment and a key in a path."""
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) and ".." not in name and not name.endswith(".")
    if not plain or len(name) > LONGEST_NAME:
        right = f"1 to {LONGEST_NAME} letters, digits, '_', '-' and single '.', beginning with a letter, digit or '_'"
        raise ValueError(f"a name should have {right}, got {shown(name)}")
    return name


def seeds_of(value: Any) -> tuple[int, ...]:
    """The seeds of [0, 1, 2], of "0..2" (the last included) or of "0,3". Raises ValueError, in one line."""
    right = 'should be a list such as [0, 1, 2], or "0..2"'
    if isinstance(value, str):
        value = [seed for part in value.split(",") for seed in _seed_range(part, right)]
    if not isinstance(value, list | tuple):
        raise ValueError(f"{right}, got {shown(value)}")
    if not 1 <= len(value) <= MOST_SEEDS:
        raise ValueError(f"should be 1 to {MOST_SEEDS} seeds, got {'more' if value else 'an empty list'}")
    for place, seed in enumerate(value):
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
            raise ValueError(f"a seed should be a whole number from 0 to 2147483647, got {shown(seed)}")
        if seed in value[:place]:
            raise ValueError(f"should name each seed once, got {seed} twice")
    return tuple(value)


def _seed_range(text: str, right: str) -> range:
    match = re.fullmatch(r"\s*(\d{1,10})\s*(?:\.\.\s*(\d{1,10})\s*)?", text, re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise ValueError(f"{right}, got {shown(text)}")
    return range(first, min(last, first + MOST_SEEDS) + 1)


def arm_table(value: Any) -> Any:
    """An arm's tables, keys as single words, and its axes by path."""
    if not isinstance(value, Mapping):
        return value
    table = merge.tables({key: item for key, item in value.items() if key != "axes"})
    return {**table, "axes": merge.axes(value["axes"])} if "axes" in value else table


Name: TypeAlias = Annotated[StrictStr, AfterValidator(named)]
Seeds: TypeAlias = Annotated[tuple[int, ...], BeforeValidator(seeds_of)]
Tables: TypeAlias = Annotated[merge.Table, BeforeValidator(merge.tables)]
ArmTable: TypeAlias = Annotated[merge.Table, BeforeValidator(arm_table)]
Axes: TypeAlias = Annotated[merge.Table, BeforeValidator(merge.axes)]  # path -> domain, as written
AnySampler: TypeAlias = Annotated[samplers.AnySampler, BeforeValidator(partial(parsed, "sampler", SAMPLERS, "grid"))]
AnyScheduler: TypeAlias = Annotated[
    schedulers.AnyScheduler, BeforeValidator(partial(parsed, "scheduler", SCHEDULERS, "none"))
]
