"""Conditions on what was recorded, such as "depth >= 16 and topology.kind = 'ancre'", read into a tree.

    condition   = part {"or" part}
    part        = factor {"and" factor}
    factor      = "not" factor | "(" condition ")" | comparison
    comparison  = field ("=" | "!=" | "<" | "<=" | ">" | ">=") value | field ["not"] "in" "(" value {"," value} ")"
    value       = number | 'text' | "text" | true | false | null

A field is a word, or anything between backticks. Nothing of it is run: the tree is compared with values, value by
value. What a record does not have equals null and nothing else, and is neither less nor more than anything; NaN equals
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any, TypeAlias

from analysis.store import QueryError

LONGEST = 10_000  # characters of a condition
WHOLE = 300  # digits of a number that is not taken as a float
DEEPEST = 50  # "not" and brackets inside each other
Value: TypeAlias = float | int | str | bool | None
ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
WORDS = {"true": True, "false": False, "null": None}
RESERVED = {"and", "or", "not", "in", *WORDS}
TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    |(?P<word>[A-Za-z_][\w./-]*)
    |`(?P<quoted>[^`]+)`
    |'(?P<single>[^']*)'|"(?P<double>[^"]*)"
    |(?P<sign><=|>=|!=|=|<|>|\(|\)|,))""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True)
class Comparison:
    """A field beside values: of one, by an order or by equality; of several, equal to one of them."""

    field: str
    sign: str  # "=", "!=", "in", or one of ORDERS
    values: tuple[Value, ...]

    def holds(self, record: Mapping[str, Any]) -> bool:
        held = record.get(self.field)
        if self.sign in ORDERS:
            (value,) = self.values
            return _kind(held) == _kind(value) and ORDERS[self.sign](held, value)
        found = any(_equal(held, value) for value in self.values)
        return found != (self.sign == "!=")


@dataclass(frozen=True)
class Not:
    part: Tree

    def holds(self, record: Mapping[str, Any]) -> bool:
        return not self.part.holds(record)


@dataclass(frozen=True)
class Every:
    parts: tuple[Tree, ...]

    def holds(self, record: Mapping[str, Any]) -> bool:
        return all(part.holds(record) for part in self.parts)


@dataclass(frozen=True)
class Some:
    parts: tuple[Tree, ...]

    def holds(self, record: Mapping[str, Any]) -> bool:
        return any(part.holds(record) for part in self.parts)


Tree: TypeAlias = Comparison | Not | Every | Some


def kind_of(values: Sequence[Any]) -> set[str]:
    """What these are, in words: "numbers", "text", "true or false"; lists and tables are "lists"."""
    return {_kind(value) for value in values if value is not None}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "numbers"
    return "text" if isinstance(value, str) else "lists"


def _equal(held: Any, value: Value) -> bool:
    return _kind(held) == _kind(value) and bool(held == value)


def parse(text: str, comparison: Callable[[Comparison], Comparison]) -> Tree:
    """The tree of a condition.

    Args:
        text: the condition.
        comparison: checks each one, and may put another in its place.

    Raises:
        QueryError: what is wrong, and where.
    """
    if len(text) > LONGEST:
        raise QueryError(f"the condition has {len(text)} characters; {LONGEST} are the most")
    return _Parser(text, comparison).whole()


class _Parser:
    """Reads a text from left to right, one token ahead."""

    def __init__(self, text: str, comparison: Callable[[Comparison], Comparison]) -> None:
        self._text = text.rstrip()
        self._comparison = comparison
        self._end = 0  # of the token ahead
        self._depth = 0
        self._advance()

    def whole(self) -> Tree:
        tree = self._condition()
        if self._kind != "end":
            raise self._wrong("'and', 'or' or the end")
        return tree

    def _condition(self) -> Tree:
        parts = [self._part()]
        while self._take("or"):
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def _part(self) -> Tree:
        parts = [self._factor()]
        while self._take("and"):
            parts.append(self._factor())
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _factor(self) -> Tree:
        self._depth += 1
        if self._depth > DEEPEST:
            raise QueryError(f"the condition is nested deeper than {DEEPEST} levels at character {self._start + 1}")
        if self._take("not"):
            tree: Tree = Not(self._factor())
        elif self._take("("):
            tree = self._condition()
            self._expect(")")
        else:
            tree = self._compared()
        self._depth -= 1
        return tree

    def _compared(self) -> Tree:
        if self._kind not in ("word", "quoted") or (self._token in RESERVED and self._kind == "word"):
            raise self._wrong("a field, 'not' or '('")
        field = self._token
        self._advance()
        if self._take("not"):
            self._expect("in")
            return Not(self._comparison(Comparison(field, "in", self._list())))
        if self._take("in"):
            return self._comparison(Comparison(field, "in", self._list()))
        sign = self._token
        if sign not in ("=", "!=", *ORDERS) or self._kind != "sign":
            raise self._wrong("one of = != < <= > >= in")
        self._advance()
        return self._comparison(Comparison(field, sign, (self._value(),)))

    def _list(self) -> tuple[Value, ...]:
        self._expect("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._expect(")")
        return tuple(values)

    def _value(self) -> Value:
        kind, token = self._kind, self._token
        if kind == "number":
            value: Value = float(token) if set(token) & set(".eE") or len(token) > WHOLE else int(token)
        elif kind in ("single", "double"):
            value = token
        elif kind == "word" and token in WORDS:
            value = WORDS[token]
        else:
            hint = f" (text has quotes: '{token}')" if kind == "word" and len(token) < 50 else ""
            raise self._wrong(f"a number, a text in quotes, true, false or null{hint}")
        self._advance()
        return value

    def _take(self, token: str) -> bool:
        """Step over a word or sign if it is the one ahead."""
        if self._token != token or self._kind not in ("word", "sign"):
            return False
        self._advance()
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(repr(token))

    def _advance(self) -> None:
        self._start = self._end + len(self._text[self._end :]) - len(self._text[self._end :].lstrip())
        if self._start >= len(self._text):
            self._kind, self._token = "end", ""
            return
        found = TOKEN.match(self._text, self._end)
        if found is None or found.lastgroup is None:
            self._kind, self._token = "unknown", self._text[self._start : self._start + 20]
            raise self._wrong("a field, a value or a sign")
        self._kind, self._token, self._end = found.lastgroup, found[found.lastgroup], found.end()

    def _wrong(self, wanted: str) -> QueryError:
        ahead = self._text[self._start : self._start + 20]
        more = ".." if len(self._text) > self._start + 20 else ""
        found = f"{ahead!r}{more}" if ahead else "nothing"
        return QueryError(f"the condition should have {wanted} at character {self._start + 1}, but has {found}")
