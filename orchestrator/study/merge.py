"""Tables and the paths into them: "optim.lr" is the lr in the table optim. One table merged over another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from orchestrator.errors import InputError

Table: TypeAlias = dict[str, Any]
DEEPEST = 32  # levels of tables; a trial has three or so
MOST_BITS = 63  # of a whole number in TOML, its sign apart
DOMAIN_KEYS = {"low", "high", "bracket", "center"}  # a table with one of these is a domain, not a nest of axes


def check(data: Mapping[str, Any]) -> None:
    """Refuse, before anything recurses into it, what is nested too deeply and whole numbers that TOML does not have.

    Raises:
        InputError: the path, and what is wrong there.
    """
    left: list[tuple[str, Any, int]] = [("", data, 0)]
    while left:
        path, value, depth = left.pop()
        if depth > DEEPEST:
            raise InputError(f"{path}: too deeply nested; should have at most {DEEPEST} levels")
        if isinstance(value, Mapping):
            left += [
                (f"{path}.{key}" if path else str(key), below, depth + 1 + str(key).count("."))
                for key, below in value.items()
            ]
        elif isinstance(value, list | tuple):
            left += [(path, below, depth + 1) for below in value]
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise InputError(f"{path}: should be below 2^{MOST_BITS}, got a number of {value.bit_length()} bits")


def nested(path: str, value: Any) -> Table:
    """{"a": {"b": value}} for the path "a.b"."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return cast(Table, value)


def merged(base: Table, change: Mapping[str, Any]) -> Table:
    """`base` with `change` merged into it, as deep as both have tables. A table of another kind replaces all of it."""
    if "kind" in change and "kind" in base and change["kind"] != base["kind"]:
        base = {}
    result = dict(base)
    for key, value in change.items():
        below = result.get(key)
        result[key] = merged(below if isinstance(below, dict) else {}, value) if isinstance(value, Mapping) else value
    return result


def set_axes(table: Table, values: Mapping[str, Any]) -> Table:
    """The table with each axis at its value, a whole section before a part of it."""
    for axis in sorted(values, key=lambda axis: axis.count(".")):
        table = merged(table, nested(axis, values[axis]))
    return table


def holds(table: Any, path: str) -> bool:
    """Whether the table sets something at this path."""
    for part in path.split("."):
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return True


def without(table: Table, path: str) -> Table:
    """The table with nothing at a path, however its keys are nested or joined by dots."""
    result = {key: value for key, value in table.items() if key != path}
    for key, value in result.items():
        if path.startswith(f"{key}.") and isinstance(value, dict):
            result[key] = without(value, path.removeprefix(f"{key}."))
    return result


def tables(value: Any) -> Any:
    """A table whose keys are single words: "a.b" = c is a = { b = c }. Raises ValueError: a path is set twice."""
    if not isinstance(value, Mapping):
        return value
    result: Table = {}
    for key, item in value.items():
        if not isinstance(key, str) or not all(key.split(".")):
            raise ValueError(f"a key should be words joined by dots, got {key!r}")
        for path in _leaves(item, key):
            prefixes = (path.rsplit(".", up)[0] for up in range(path.count(".") + 1))
            if any(holds(result, prefix) and not isinstance(_at(result, prefix), Mapping) for prefix in prefixes):
                raise ValueError(f"should set each key once, got {path} twice")
        result = merged(result, nested(key, tables(item)))
    return result


def _leaves(value: Any, path: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [path]
    return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}")]


def _at(table: Any, path: str) -> Any:
    for part in path.split("."):
        table = table[part]
    return table


def axes(value: Any, prefix: str = "") -> Any:
    """Axes as path -> domain, as written: the keys of nested tables joined by dots. Raises ValueError: one is twice."""
    if not isinstance(value, Mapping):
        return value
    result: Table = {}
    for key, item in value.items():
        path = f"{prefix}{key}"
        if not all(path.split(".")):
            raise ValueError(f"an axis should be words joined by dots, got {path!r}")
        nest = isinstance(item, Mapping) and item and not DOMAIN_KEYS & item.keys()
        for axis, domain in (axes(item, f"{path}.") if nest else {path: item}).items():
            if axis in result:
                raise ValueError(f"should have each axis once, got {axis} twice")
            result[axis] = domain
    return result
