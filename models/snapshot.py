"""topology.json: the topology that a finished run leaves behind, its content and how it is read.

    {"version": 1, "networks": {"<name>": {kind, depth, rule, normalization, temperature, inner_residual,
                                           mask, p, offset, own, c, trained}}}

`p[i][j]` is the weight of h_i in step j (zero where not allowed), `offset` fixed weights beside it or null, `c` the
packed coefficients, step by step, or null. JSON only: reading a stranger's file runs nothing.

Under the rule "outputs" no states are summed but outputs of blocks (models/outputs.py): `p[i][j]`, i < j, is the weight
in step j of what came out of block i (i = 0: of what entered the stack), `own[j]` that of block j's. They are the part
that no input changes, of features the mean; null where every weight depends on the input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Never, Self

from pydantic import Field, ValidationError, model_validator

from models.spec import Spec
from models.topology.base import InnerResidual, Snapshot

VERSION = 1
MAX_BYTES = 64 * 2**20  # a dense network of 1,000 blocks takes a third of this

Matrix = tuple[tuple[float, ...], ...]  # (K+1, K+1)
Mask = tuple[tuple[bool, ...], ...]  # (K+1, K+1)


class Network(Spec):
    """One network's entry. Unknown fields are refused: a changed meaning needs a new version."""

    kind: str
    depth: Annotated[int, Field(ge=1)]
    rule: Literal["softmax", "free", "constant", "outputs"]
    normalization: Literal["ingoing", "outgoing", "none"]
    temperature: float | None
    inner_residual: InnerResidual
    mask: Mask
    p: Matrix | None
    offset: Matrix | None = None
    own: tuple[float, ...] | None = None  # K+1
    c: tuple[float, ...] | None
    trained: Mask

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        side = self.depth + 1
        for name in ("mask", "p", "offset", "trained"):
            rows = getattr(self, name)
            if rows is None:
                continue
            if len(rows) != side or any(len(row) != side for row in rows):
                raise ValueError(f"{name} is not {side} x {side}, as depth {self.depth} needs")
            if any(row[j] for i, row in enumerate(rows) for j in range(i + 1)):
                raise ValueError(f"{name} has an entry that does not lead forward (i < j)")
        if self.p is None and self.rule != "outputs":
            raise ValueError(f"p is null, which rule {self.rule!r} does not allow")
        if self.own is not None and len(self.own) != side:
            raise ValueError(f"own has {len(self.own)} numbers, not {side}, as depth {self.depth} needs")
        allowed = sum(map(sum, self.mask))
        if self.c is not None and len(self.c) != allowed:
            raise ValueError(f"c has {len(self.c)} numbers for {allowed} allowed connections")
        return self


def dump(networks: Mapping[str, Snapshot]) -> bytes:
    """The content of a topology.json."""
    return json.dumps({"version": VERSION, "networks": dict(networks)}, allow_nan=False).encode()


def read(path: Path) -> dict[str, Network]:
    """The networks of a topology.json, by name.

    Raises:
        ValueError: missing, unreadable, malformed, or of another version: one line that names the file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes")
        content = json.loads(path.read_bytes(), parse_constant=_refuse, object_pairs_hook=_once)
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ValueError(f"not a topology file of version {VERSION}")
        networks = content.get("networks")
        if not isinstance(networks, dict) or not networks:
            raise ValueError("no networks")
        return {name: _network(name, entry) for name, entry in networks.items()}
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _network(name: str, entry: Any) -> Network:
    try:
        return Network.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(key) for key in (name, *first["loc"]))
        raise ValueError(f"networks.{where}: {first['msg']}") from error


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not a number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key stands twice")
    return content
