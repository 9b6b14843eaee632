"""What values an axis may take: a list of choices, a range of numbers, or a learning-rate bracket.

A bracket is a list written short. Every arm of a comparison searches the same one, so that no arm is tuned better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

# The rates that the paper tries for each model (section 5.1).
BRACKETS: Mapping[str, tuple[float, ...]] = {"paper": (5e-4, 1e-3, 5e-3, 1e-2, 5e-2)}
LARGEST_BRACKET = 1000


@dataclass(frozen=True)
class Choices:
    """One of `values`: numbers, words, or tables that stand for a whole section."""

    values: tuple[Any, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    def members(self) -> Iterator[Any]:
        return iter(self.values)


@dataclass(frozen=True)
class Range:
    """`low` to `high`, both included; `step` counts from `low`; `log`: uniform in the logarithm."""

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step, int | None)

    @property
    def size(self) -> int | None:
        """How many values there are; None: a continuum."""
        if self.step is None and not self.integer:
            return None if self.high > self.low else 1
        return math.floor((self.high - self.low) / (self.step or 1) + 1e-9) + 1

    def members(self) -> Iterator[float]:
        """Every value, in order; of a continuum, raises ValueError."""
        if self.size is None:
            raise ValueError(f"the range from {self.low} to {self.high} is a continuum")
        return (self.low + place * (self.step or 1) for place in range(self.size))


Domain: TypeAlias = Choices | Range


def first(domain: Domain) -> Any:
    return domain.values[0] if isinstance(domain, Choices) else domain.low


def text(domain: Domain) -> str:
    """A domain as a person reads it."""
    if isinstance(domain, Choices):
        return ", ".join(str(value) for value in domain.values)
    return (
        f"{domain.low} to {domain.high}"
        + (" log" if domain.log else "")
        + (f" by {domain.step}" if domain.step else "")
    )


def same(value: Any) -> str:
    """A text that is equal for equal values: 1 and 1.0 are one value; true and 1 are two."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return value

    return json.dumps(plain(value), sort_keys=True, default=str)


def read(value: Any) -> Domain:
    """The domain that a study file's value stands for.

    Raises:
        ValueError: what would be right, and what was found, in one line.
    """
    if isinstance(value, Choices | Range):
        return value
    if isinstance(value, list | tuple):
        return _choices(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"should be a list of values, a range or a bracket, got {value!r}")
    for keys, reader in (({"bracket"}, _named), ({"center", "factor", "count"}, _geometric)):
        if keys & value.keys():
            _only(value, keys, required=keys)
            return reader(value)
    if "low" in value or "high" in value:
        _only(value, {"low", "high", "log", "step"}, required={"low", "high"})
        return _range(value)
    raise ValueError(
        "should be a list of values, {low, high, log, step}, {bracket} or {center, factor, count}, "
        f"got a table with {', '.join(map(str, value)) or 'no keys'}"
    )


def _choices(values: Sequence[Any]) -> Choices:
    if not values:
        raise ValueError("should have at least one value, got an empty list")
    seen: set[str] = set()
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"should hold finite numbers, got {value}")
        if (key := same(value)) in seen:
            raise ValueError(f"should name each value once, got {value!r} twice")
        seen.add(key)
    return Choices(tuple(values))


def _named(table: Mapping[str, Any]) -> Choices:
    name = table["bracket"]
    if not isinstance(name, str) or name not in BRACKETS:
        raise ValueError(f"bracket should be one of {', '.join(BRACKETS)}, got {name!r}")
    return Choices(BRACKETS[name])


def _geometric(table: Mapping[str, Any]) -> Choices:
    """`count` rates around `center`, each `factor` times the one before: {center=1e-3, factor=2, count=3}."""
    center, factor, count = _number(table, "center"), _number(table, "factor"), table["count"]
    if center <= 0:
        raise ValueError(f"center should be above 0, got {center}")
    if factor <= 1:
        raise ValueError(f"factor should be above 1, got {factor}")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= LARGEST_BRACKET:
        raise ValueError(f"count should be a whole number from 1 to {LARGEST_BRACKET}, got {count!r}")
    # Twelve digits: 1e-3 * 3 ** 1 should read 0.003, and be the same configuration as one written so.
    try:
        rates = [float(f"{center * factor ** (place - (count - 1) / 2):.12g}") for place in range(count)]
    except OverflowError:
        rates = [math.inf]
    if not 0 < rates[0] <= rates[-1] < math.inf:
        raise ValueError(f"should stay within finite numbers above 0, got center {center}, factor {factor}, {count=}")
    return _choices(rates)


def _range(table: Mapping[str, Any]) -> Range:
    low, high, log = _number(table, "low"), _number(table, "high"), table.get("log", False)
    step = _number(table, "step") if "step" in table else None
    if not isinstance(log, bool):
        raise ValueError(f"log should be true or false, got {log!r}")
    if low > high:
        raise ValueError(f"low should not be above high, got low {low}, high {high}")
    if log and low <= 0:
        raise ValueError(f"a log range should start above 0, got low {low}")
    if log and step is not None:
        raise ValueError(f"a log range has no step, got step {step}")
    if step is not None and step <= 0:
        raise ValueError(f"step should be above 0, got {step}")
    whole = isinstance(low, int) and isinstance(high, int)
    if not whole:
        low, high = float(low), float(high)
    return Range(low, high, log, step)


def _number(table: Mapping[str, Any], key: str) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key} should be a finite number, got {value!r}")
    return value


def _only(table: Mapping[str, Any], known: set[str], required: set[str]) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"should have only the keys {', '.join(sorted(known))}, got {key!r}")
    if missing := required - table.keys():
        raise ValueError(f"should also have {', '.join(sorted(missing))}, got only {', '.join(table)}")
