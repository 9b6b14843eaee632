"""ANCRe over few sources, for activation checkpointing and pipeline stages (paper, section 4.2; its Appendix D).

Boundaries 0 = b_0 < b_1 < .. < b_S = K cut the stack into segments. Which connections i:j are allowed:

- boundary-sources: every step reads the boundaries before it and the previous state;
- boundary-targets: only steps that end a segment mix, and read boundaries; the blocks inside are plain residual blocks;
- first-and-window: every step reads the `first` first states and the `window` last ones;
- listed: the connections in `sources`, such as "0:1+0:2+1:2"; every step needs at least one.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from models.topology.base import InnerResidual
from models.topology.shortcuts import parse
from models.wiring import Normalization, Pair, WiredSpec, Wiring, earlier, learned

READ = {  # what each mask reads
    "boundary-sources": {"segment", "boundaries"},
    "boundary-targets": {"segment", "boundaries"},
    "first-and-window": {"first", "window"},
    "listed": {"sources"},
}


class Spec(WiredSpec):
    """Softmax over the allowed sources only. `boundaries`: b_1 .. b_{S-1}; without them, every `segment` blocks."""

    kind: Literal["ancre-sparse"] = "ancre-sparse"
    mask: Literal["boundary-sources", "boundary-targets", "first-and-window", "listed"] = "boundary-sources"
    segment: int = Field(default=4, ge=1)
    boundaries: tuple[int, ...] | None = None
    first: int = Field(default=2, ge=0)
    window: int = Field(default=1, ge=1)
    sources: str = Field(default="", exclude_if=lambda text: not text)
    normalization: Normalization = "ingoing"
    temperature: float = Field(default=0.01, gt=0)
    inner_residual: InnerResidual = "drop"

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        inner = self.boundaries or ()
        if any(a >= b for a, b in pairwise((0, *inner))):
            raise ValueError(f"boundaries {list(inner)} do not ascend from 1")
        parse(self.sources)
        idle = {"segment", "boundaries", "first", "window", "sources"} - READ[self.mask]
        if self.boundaries is not None:
            idle.add("segment")
        for name in sorted(idle):
            if getattr(self, name) != type(self).model_fields[name].default:
                beside = "beside boundaries" if name in READ[self.mask] else "here"
                raise ValueError(f"mask {self.mask!r} does not read {name} {beside}")
        return self

    def check(self, depth: int) -> None:
        super().check(depth)
        if self.boundaries and self.boundaries[-1] > depth:
            raise ValueError(f"boundary {self.boundaries[-1]} lies beyond the last of {depth} blocks")
        if self.mask != "listed":
            return
        listed = parse(self.sources)
        if beyond := [pair for pair in listed if pair[1] > depth]:
            raise ValueError(f"sources: {beyond[0][0]}:{beyond[0][1]} ends beyond the last of {depth} blocks")
        if missing := sorted({*range(1, depth + 1)} - {j for _, j in listed}):
            step = missing[0]
            raise ValueError(
                f"sources leave step {step} of {depth} without a source; add one, such as {step - 1}:{step}"
            )

    def edges(self, depth: int) -> list[int]:
        """b_0 .. b_S. The last segment is shorter where `segment` does not divide the depth."""
        inner = range(self.segment, depth, self.segment) if self.boundaries is None else self.boundaries
        return [0, *(b for b in inner if b < depth), depth]

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        """As many as `wiring` has connections, without listing them."""
        edges = self.edges(depth)
        segments = len(edges) - 1
        if self.mask == "boundary-targets":
            return segments * (segments + 1) // 2
        if self.mask == "boundary-sources":  # each boundary in every later step, and h_{j-1} where it is none
            return sum(depth - b for b in edges) + depth - segments
        if self.mask == "listed":
            return len(parse(self.sources))
        return sum(min(j, self.first + self.window) for j in range(1, depth + 1))

    def wiring(self, depth: int) -> Wiring:
        edges = self.edges(depth)
        if self.mask == "boundary-targets":
            allowed = [(i, j) for j in edges[1:] for i in edges if i < j]
        elif self.mask == "boundary-sources":
            boundaries = set(edges)
            allowed = [(i, j) for i, j in earlier(depth) if i in boundaries or i == j - 1]
        elif self.mask == "listed":
            allowed = parse(self.sources)
        else:
            allowed = [(i, j) for i, j in earlier(depth) if i < self.first or i >= j - self.window]
        wiring = learned(depth, allowed, self.normalization, self.temperature, self.inner_residual)
        if self.mask in ("first-and-window", "listed"):
            return wiring
        plain = self.mask == "boundary-targets" and self.inner_residual == "drop"
        return replace(wiring, edges=tuple(edges), offset=inside(edges) if plain else {})


def inside(edges: list[int]) -> dict[Pair, float]:
    """Weights of h_i beside F_j = r_j that leave each segment plain inside and take away its input at its end."""
    offset: dict[Pair, float] = {}
    for start, end in pairwise(edges):
        offset |= {(j - 1, j): 1.0 for j in range(start + 1, end + 1)}
        offset[start, end] = offset.get((start, end), 0.0) - 1.0
    return {pair: weight for pair, weight in offset.items() if weight}
