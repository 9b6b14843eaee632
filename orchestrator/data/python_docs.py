"""English that every Python has on board: the language reference, one topic a document, half a million characters.

The text differs a little between Python versions, and so do perplexities on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from orchestrator.data.base import DataSpec


class Spec(DataSpec):
    """The Python language reference that comes with the interpreter; no download."""

    kind: Literal["python-docs"] = "python-docs"

    def documents(self) -> Iterator[str]:
        from pydoc_data.topics import topics

        yield from (topics[name] for name in sorted(topics))
