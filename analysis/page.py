"""HTML from Python values: every text is escaped unless it is HTML that was built here.

One document, its style inside, no script, no address of anything outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


VOID = ("img",)  # elements that are not closed


def element(name: str, *content: object, **attributes: str | None) -> Html:
    """An element with its content in order, None left out; an attribute is named as in HTML (class_, aria_label)."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(held)}"' for key, held in attributes.items() if held is not None
    )
    return Html(f"<{name}{named}>" if name in VOID else f"<{name}{named}>{join(*content)}</{name}>")


def join(*content: object) -> Html:
    return Html("".join(part if isinstance(part, Html) else escape(str(part)) for part in content if part is not None))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> Html:
    """A table; the columns in `numbers` are aligned to the right."""
    right = set(numbers)

    def row(cell: str, values: Sequence[object]) -> Html:
        classes = ("number" if k in right else None for k in range(len(values)))
        return element("tr", *(element(cell, value, class_=name) for value, name in zip(values, classes, strict=True)))

    body = element("tbody", *(row("td", values) for values in rows))
    return element("div", element("table", element("thead", row("th", headings)), body), class_="scroll")


def figure(picture: Html, caption: str, command: str) -> Html:
    """A figure with what it shows, and the command that gives its numbers."""
    made_by = element("span", "Numbers: ", element("code", command), class_="command")
    shown = element("div", picture, class_="scroll", role="img", aria_label=caption)
    return element("figure", shown, element("figcaption", element("span", caption), made_by))


def document(title: str, *content: object) -> str:
    style = files("analysis").joinpath("report.css").read_text(encoding="utf-8")
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", title),
        element("style", Html(style)),
    )
    return f'<!doctype html>\n<html lang="en">{head}{element("body", *content)}</html>\n'


NONE = "\N{EN DASH}"  # in a table: there is no such number
MINUS = "\N{MINUS SIGN}"


def size(count: float) -> str:
    """Bytes as a person reads them."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.3g} {units[0]}"


def number(value: float | None, digits: int = 4) -> str:
    """A number as a table shows it, 12.30 rather than 12.3 so that columns line up."""
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{MINUS if value < 0 else ''}∞"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    exponent = int(power)
    fixed = f"{value:.{max(digits - 1 - exponent, 0)}f}" if value else "0"
    return (fixed if -4 <= exponent < 6 else f"{mantissa}e{exponent}").replace("-", MINUS)


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{number(low)}, {number(high)}]"


def percent(share: float | None, digits: int = 0) -> str:
    return NONE if share is None else f"{round(100 * share, digits) + 0.0:.{digits}f} %".replace("-", MINUS)


def p_value(p: float | None) -> str:
    return NONE if p is None else f"{p:.2g}"


def value(item: object) -> str:
    """An axis value, short: numbers as typed, tables as key=value."""
    if isinstance(item, dict):
        return ", ".join(f"{key}={value(inner)}" for key, inner in item.items())
    if isinstance(item, list | tuple) and len(item) > 10:
        return f"{value(item[:3])}, .., {value(item[-1])} ({len(item)} values)"
    if isinstance(item, list | tuple):
        return ", ".join(value(inner) for inner in item)
    return f"{item:g}" if isinstance(item, float) else str(item)
