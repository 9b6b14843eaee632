"""What a text source is: documents in a fixed order. Every file in this folder defines one `Spec`; its name is its kind."""

from __future__ import annotations

from collections.abc import Iterator

from models.spec import Spec


class DataSpec(Spec):
    """Where documents come from."""

    kind: str

    def documents(self) -> Iterator[str]:
        """The documents, in an order that depends on their content alone.

        Raises:
            ValueError: missing, empty or unreadable input, in one line.
        """
        raise NotImplementedError
