"""The two pages: all studies of a home, and one study. Their parts are put in by live.js, which asks for them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files

from analysis.page import Html, element
from orchestrator.serve.watch import Part

EVERY = 1500  # milliseconds between two looks of a page


def index(home: str, parts: Mapping[str, Part]) -> str:
    title = element("h1", "Studies")
    return _document("ancre", "/state.json", title, element("p", home, class_="muted"), *_sections(parts))


def study(name: str, hypothesis: str, parts: Mapping[str, Part]) -> str:
    head = [element("nav", element("a", "All studies", href="/")), element("h1", name)]
    head += [element("blockquote", element("p", hypothesis))] if hypothesis else []
    return _document(f"{name} · ancre", f"/studies/{name}/state.json", *head, *_sections(parts))


def _sections(parts: Mapping[str, Part]) -> Iterable[Html]:
    for name, one in parts.items():
        yield element("section", one.html, data_part=name, data_version=one.version)


def _document(title: str, state: str, *content: object) -> str:
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
        Html('<link rel="stylesheet" href="/live.css">'),
        element("title", title),
        element("script", src="/live.js", defer=""),
    )
    lost = element("p", "No word from ancre serve; trying again.", id="lost", role="status", hidden="")
    body = element("body", lost, element("main", *content), data_state=state, data_every=str(EVERY))
    return f'<!doctype html>\n<html lang="en">{head}{body}</html>\n'


def script() -> str:
    return files("orchestrator.serve").joinpath("live.js").read_text(encoding="utf-8")


def style() -> str:
    """The look of a report, and what only these pages have."""
    sheets = files("analysis").joinpath("report.css"), files("orchestrator.serve").joinpath("live.css")
    return "\n".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
