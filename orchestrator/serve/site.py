"""What each address of the server answers with. Only the names of studies that are there lead anywhere."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from orchestrator.record.ledger import LEDGER_FILE
from orchestrator.serve import pages, parts
from orchestrator.serve.watch import Part, Pools, Watched, part

HTML, JSON = "text/html; charset=utf-8", "application/json"
SCRIPT, STYLE = "text/javascript; charset=utf-8", "text/css; charset=utf-8"
STUDY = re.compile(r"/studies/([\w-]+)(/state\.json)?", re.ASCII)


class Answer(NamedTuple):
    kind: str  # MIME
    body: bytes


class Site:
    """The pages of one home."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._pools = Pools()
        self._pools.draw.submit(import_module, "matplotlib.backends.backend_svg")  # takes a second, once
        self._watched: dict[str, Watched] = {}
        self._one = threading.Lock()  # thread at a time

    def answer(self, path: str, seen: str) -> Answer | None:
        """None where there is no such page.

        Args:
            path: of the address.
            seen: the parts that the page has, as "NAME:VERSION,NAME:VERSION".
        """
        if path == "/live.js":
            return Answer(SCRIPT, pages.script().encode())
        if path == "/live.css":
            return Answer(STYLE, pages.style().encode())
        if path == "/":
            return Answer(HTML, pages.index(str(self._home), self._overview()).encode())
        if path == "/state.json":
            return _state("ancre", self._overview(), seen)
        found = STUDY.fullmatch(path)
        if found is None or (watched := self._study(found[1])) is None:
            return None
        if found[2]:
            return _state(f"{found[1]} · ancre", watched.parts(), seen)
        made = watched.parts()
        return Answer(HTML, pages.study(found[1], watched.hypothesis, made).encode())

    def _names(self) -> list[str]:
        return sorted(path.parent.name for path in (self._home / "studies").glob(f"*/{LEDGER_FILE}"))

    def _study(self, name: str) -> Watched | None:
        if name not in self._names():
            return None
        with self._one:
            if name not in self._watched:
                self._watched[name] = Watched(self._home / "studies" / name, self._home, self._pools)
            return self._watched[name]

    def _overview(self) -> Mapping[str, Part]:
        watched = [one for name in self._names() if (one := self._study(name))]
        return {"studies": part(parts.overview([one.standing() for one in watched]))}


def _state(title: str, made: Mapping[str, Part], seen: str) -> Answer:
    """The parts that the page does not have yet."""
    known = set(seen.split(","))
    changed = {name: one for name, one in made.items() if f"{name}:{one.version}" not in known}
    return Answer(JSON, json.dumps({"title": title, "parts": changed}).encode())
