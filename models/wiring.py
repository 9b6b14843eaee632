"""The family of weighted sums: which connections i:j a topology allows, and the rule that weighs them.

    h_j = F_j(h_{j-1}) + sum_{i<j} (p_ij + offset_ij) h_i,   j = 1..K

A kind in `models/topology` describes itself as one `Wiring`; `models/mixing.py` is the one module that carries it out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from models.topology.base import InnerResidual, TopologySpec

if TYPE_CHECKING:
    from models.mixing import Mix

Pair = tuple[int, int]  # (i, j), i < j: the connection from h_i to step j
Normalization = Literal["ingoing", "outgoing", "none"]


@dataclass(frozen=True)
class Wiring:
    """One weight for each connection of a stack of `depth` blocks."""

    depth: int
    start: Mapping[Pair, float]  # allowed connection -> its coefficient c at the start; under "constant", its weight p
    rule: Literal["softmax", "free", "constant"]  # p from c: normalized exp(c / temperature), c itself, never trained
    normalization: Normalization = "none"  # softmax over the sources of a step, or over the steps of a source
    temperature: float | None = None
    inner_residual: InnerResidual = "drop"  # F_j is the whole residual block, or only what it adds to its input
    offset: Mapping[Pair, float] = field(default_factory=dict)  # fixed weights beside the rule, no part of p
    edges: tuple[int, ...] = ()  # 0 .. K, where each step reads only states at edges and the previous one

    @property
    def num_coefficients(self) -> int:
        return 0 if self.rule == "constant" else len(self.start)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every connection, trained or fixed."""
        return (*self.start, *self.offset)

    def segments(self, length: int) -> tuple[int, ...]:
        """The edges 0 .. K of segments of so many blocks, which are run again together.

        Raises:
            ValueError: in one line, where states inside a segment are needed outside.
        """
        edges = (*range(0, self.depth, length), self.depth)
        inside = next((i for i, j in self.pairs if i < j - 1 and i not in edges), None)
        if inside is not None:
            raise ValueError(f"later steps read h_{inside}, which is inside a segment of {length} blocks")
        return edges


def earlier(depth: int) -> list[Pair]:
    """Every connection i:j with i < j, step by step: the order in which coefficients are packed."""
    return [(i, j) for j in range(1, depth + 1) for i in range(j)]


def learned(
    depth: int, allowed: Iterable[Pair], normalization: Normalization, temperature: float, inner_residual: InnerResidual
) -> Wiring:
    """ANCRe's rule (equations 6 to 8) on the allowed connections, uniform at the start."""
    rule: Literal["softmax", "free"] = "free" if normalization == "none" else "softmax"
    tau = None if normalization == "none" else temperature
    return Wiring(depth, dict.fromkeys(allowed, 0.0), rule, normalization, tau, inner_residual)


class WiredSpec(TopologySpec):
    """A topology of this family: it says its wiring, the rest follows."""

    @abstractmethod
    def wiring(self, depth: int) -> Wiring:
        """The connections of `depth` blocks."""

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        return self.wiring(depth).num_coefficients

    def check_segments(self, depth: int, length: int) -> None:
        self.wiring(depth).segments(length)

    def build(self, depth: int, width: int) -> Mix:
        from models.mixing import Mix

        self.check(depth)
        return Mix(self.kind, self.wiring(depth))
