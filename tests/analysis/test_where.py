"""Conditions: read into a tree that holds of what Python says it holds; all else refused in one line."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fields import Fields
from analysis.store import QueryError
from analysis.where import DEEPEST, LONGEST, parse

NUMBERS, TEXTS = ("depth", "model.width", "val/perplexity"), ("arm", "topology.kind", "odd name")
FLAGS = ("train.on",)
SIGNS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
WORDS = st.sampled_from(["ancre", "cascaded", "it's", 'a"b', "and", ";--", "", "x)", "\N{GREEK SMALL LETTER TAU}"])
SOME = [-3, 0, 1, 2.5, 16, 1e-3, 1e300]


def record() -> st.SearchStrategy[dict[str, Any]]:
    numbers = {name: st.sampled_from([*SOME, math.nan, math.inf, None]) for name in NUMBERS}
    texts = {name: WORDS | st.none() for name in TEXTS}
    return st.fixed_dictionaries({}, optional=numbers | texts | {name: st.booleans() for name in FLAGS})


def spelled(value: Any) -> str:
    """A value as a condition has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{value}"' if "'" in value else f"'{value}'"
    return repr(value)


def named(field: str) -> str:
    return f"`{field}`" if " " in field else field


class Tree:
    """A condition's text beside what Python makes of it."""

    def __init__(self, text: str, holds: Any) -> None:
        self.text, self.holds = text, holds


def compared(field: str, sign: str, value: Any) -> Tree:
    def holds(record: Mapping[str, Any]) -> bool:
        held = record.get(field)
        if sign in ("=", "!="):
            return bool(SIGNS[sign](held, value))
        return held is not None and bool(SIGNS[sign](held, value))

    return Tree(f"{named(field)} {sign} {spelled(value)}", holds)


def within(field: str, values: list[Any], negated: bool) -> Tree:
    listed = ", ".join(map(spelled, values))
    text = f"{named(field)} {'not in' if negated else 'in'} ({listed})"
    return Tree(text, lambda record: any(record.get(field) == value for value in values) != negated)


def leaves() -> st.SearchStrategy[Tree]:
    numbers, orders = st.sampled_from(SOME), st.sampled_from(sorted(SIGNS))
    return st.one_of(
        st.builds(compared, st.sampled_from(NUMBERS), orders, numbers),
        st.builds(compared, st.sampled_from(TEXTS), orders, WORDS),
        st.builds(compared, st.sampled_from(FLAGS), st.sampled_from(["=", "!="]), st.booleans()),
        st.builds(compared, st.sampled_from(NUMBERS + TEXTS), st.sampled_from(["=", "!="]), st.none()),
        st.builds(within, st.sampled_from(NUMBERS), st.lists(numbers, min_size=1), st.booleans()),
        st.builds(within, st.sampled_from(TEXTS), st.lists(WORDS, min_size=1), st.booleans()),
    )


def grown(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    def joined(word: str, first: Tree, second: Tree) -> Tree:
        together = {"and": lambda one, other: one and other, "or": lambda one, other: one or other}[word]
        text = f"({first.text}){word} ({second.text})"
        return Tree(text, lambda record: together(first.holds(record), second.holds(record)))

    return st.one_of(
        st.builds(lambda tree: Tree(f"not({tree.text})", lambda record: not tree.holds(record)), inner),
        st.builds(joined, st.sampled_from(["and", "or"]), inner, inner),
    )


@given(st.recursive(leaves(), grown, max_leaves=8), st.lists(record(), min_size=1, max_size=5))
def test_a_condition_holds_where_python_says_so(tree: Tree, records: list[dict[str, Any]]) -> None:
    """`True == 1` is Python's alone, but no field here has both."""
    holds = parse(tree.text, lambda comparison: comparison).holds
    assert [holds(one) for one in records] == [tree.holds(one) for one in records]


@pytest.mark.parametrize(
    ("condition", "python"),
    [
        ("a=1 or b=1 and c=1", lambda a, b, c: a or (b and c)),
        ("not a=1 and b=1", lambda a, b, c: (not a) and b),
        ("not (a=1 or b=1) or not not c=1", lambda a, b, c: not (a or b) or c),
    ],
)
def test_not_binds_before_and_before_or(condition: str, python: Any) -> None:
    holds = parse(condition, lambda comparison: comparison).holds
    for bits in range(8):
        a, b, c = (bits >> k & 1 for k in range(3))
        assert holds({"a": a, "b": b, "c": c}) == bool(python(a, b, c))


RECORDS = [
    {"model.depth": 16, "topology.kind": "ancre", "optim.kind": "adamw", "optim.lr": 1e-3, "val/loss": 2.0, "on": True},
    {"model.depth": 4, "topology.kind": "cascaded", "optim.kind": "adamw", "optim.lr": 3e-3, "val/loss": math.nan},
]


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("depth>=16 and topology.kind='ancre'", [0]),
        ("lr<0.002", [0]),
        ("on = null", [1]),
        ("on != true", [1]),
        ("val/loss < 3 or val/loss >= 3", [0]),
        ("not val/loss < 3", [1]),
        ("depth in (4, 16.0)", [0, 1]),
        ("`topology.kind` not in ('ancre')", [1]),
        ("depth > " + "9" * 5000, []),
    ],
)
def test_fields_by_path_and_by_their_last_part(condition: str, chosen: list[int]) -> None:
    holds = Fields(RECORDS, "runs").chosen(condition)
    assert [k for k, record in enumerate(RECORDS) if holds(record)] == chosen


WRONG = {
    "dept > 3": "runs have no field 'dept'; did you mean 'depth'?",
    "kind = 'ancre'": "field 'kind' may be optim.kind, topology.kind: say which",
    "depth = 'deep'": "field 'model.depth' holds numbers, such as 16; got 'deep'",
    "topology.kind < 3": "field 'topology.kind' holds text, such as 'ancre'; got 3",
    "on > true": "> needs a number or text, not true",
    "depth > null": "> needs a number or text, not null",
    "": "should have a field, 'not' or '(' at character 1, but has nothing",
    "depth": "should have one of = != < <= > >= in at character 6, but has nothing",
    "depth >": "a number, a text in quotes, true, false or null at character 8, but has nothing",
    "depth = deep": "(text has quotes: 'deep')",
    "depth = 3 depth = 4": "should have 'and', 'or' or the end at character 11",
    "depth in ()": "should have a number",
    "depth in (1, 2": "should have ')'",
    "depth == 3": "should have a number",
    "depth = 'a": "a field, a value or a sign at character 9",
    "depth = 3; DROP TABLE runs": "at character 10",
    "__import__('os').system('true')": "one of = != < <= > >= in at character 11",
    "depth = 3abc": "at character 9",
    "and = 3": "should have a field",
    "x" * (LONGEST + 1): f"has {LONGEST + 1} characters; {LONGEST} are the most",
    "'" * LONGEST: "should have a field, 'not' or '('",
    "(" * (LONGEST - 1): f"nested deeper than {DEEPEST} levels",
    "not " * 2000: f"nested deeper than {DEEPEST} levels",
    "x" * LONGEST + "": "should have one of",
    "depth = 3 \x00\n\x1b[31m": "at character 11",
}


@pytest.mark.parametrize("condition", WRONG, ids=lambda condition: condition[:20].encode("unicode_escape").decode())
def test_what_is_no_condition_is_said_in_one_line(condition: str) -> None:
    with pytest.raises(QueryError) as said:
        Fields(RECORDS, "runs").chosen(condition)
    line = str(said.value)
    assert WRONG[condition] in line
    assert line.isprintable() and len(line) < 400


@given(st.text(max_size=60) | st.text(alphabet="()'\"`=<>!,;. andorti0x-+e", max_size=60))
def test_any_text_is_a_condition_or_one_line(text: str) -> None:
    try:
        tree = Fields(RECORDS, "runs").chosen(text)
    except QueryError as error:
        assert str(error).isprintable()
    else:
        assert {tree(record) for record in RECORDS} <= {True, False}


def test_an_order_has_what_lacks_the_field_last() -> None:
    records = [{"a": 1, "b": "x"}, {"a": math.nan}, {"a": 2, "b": "x"}, {}, {"a": 2, "b": "a"}]
    fields = Fields(records, "runs")
    assert fields.order("a", records) == [0, 2, 4, 1, 3]
    assert fields.order("-a", records) == [2, 4, 0, 1, 3]
    assert fields.order("-a,b", records) == [4, 2, 0, 1, 3]
    assert fields.order("b,-a", records) == [4, 2, 0, 1, 3]
    with pytest.raises(QueryError, match="no field 'c'"):
        fields.order("c", records)
