"""Which parameters of a network are which: the one place that tells block matrices, the topology and the rest apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import nn

# matrix: a 2-D weight inside a block, that is inside a list of modules. topology: a coefficient of connections,
# wherever it lies. vector: any other of one dimension or none (norms, biases). table: any other of more (embedding).
Part = Literal["matrix", "table", "vector", "topology"]


@dataclass(frozen=True)
class Shape:
    """`count` parameters of one size in one part, as planning knows them."""

    size: tuple[int, ...]
    part: Part
    count: int = 1

    @property
    def numbers(self) -> int:
        return prod(self.size) * self.count


def numbers(shapes: Iterable[Shape]) -> int:
    return sum(shape.numbers for shape in shapes)


def parts(network: nn.Module) -> dict[Part, list[nn.Parameter]]:
    """The parameters of a network by part, each once, in the network's order."""
    from torch import nn

    from models.stack import Topology

    modules = [*network.modules()]
    mixing = {id(p) for module in modules if isinstance(module, Topology) for p in module.parameters()}
    blocks = [module for module in modules if isinstance(module, nn.ModuleList | nn.ModuleDict)]
    inside = {id(p) for module in blocks for p in module.parameters()}
    inside -= {id(module.weight) for module in modules if isinstance(module, nn.Embedding)}
    found: dict[Part, list[nn.Parameter]] = {"matrix": [], "table": [], "vector": [], "topology": []}
    for p in network.parameters():
        if id(p) in mixing:
            found["topology"].append(p)
        elif p.ndim < 2:
            found["vector"].append(p)
        else:
            found["matrix" if p.ndim == 2 and id(p) in inside else "table"].append(p)
    return found


def shapes(network: nn.Module) -> list[Shape]:
    """What `LlamaSpec.shapes` says of a network before it is built, read off the built one."""
    return [Shape(tuple(p.shape), part) for part, members in parts(network).items() for p in members]
