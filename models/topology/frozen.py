"""A finished run's topology, not trained: the network is trained anew around it (paper, section 5.5).

Identity is by content: where the file exists, its matrix is taken into the spec and the path forgotten, so that workers
need no file and a copy under another name is the same cell.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from models.snapshot import Matrix, Network, read
from models.topology.base import InnerResidual
from models.wiring import WiredSpec, Wiring


class Spec(WiredSpec):
    """`path` of a topology.json and, where it holds several, the `network`; or the matrix itself, as `weights`.

    A path that does not exist yet is kept: a study can be planned before the run that writes it, but not built.
    """

    kind: Literal["frozen"] = "frozen"
    path: str | None = None
    network: str | None = None
    weights: Matrix | None = None  # (K+1, K+1): weight of h_i in step j
    inner_residual: InnerResidual | None = None  # None: as in the file

    @model_validator(mode="before")
    @classmethod
    def _embed(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("path"), str) or given.get("weights") is not None:
            return given
        path = Path(given["path"])
        try:
            if not path.exists():
                return given
        except OSError as error:  # longer than a file's name can be
            raise ValueError(f"path: {error.strerror}") from error
        network = choose(path, given.get("network"))
        own = given.get("inner_residual") or network.inner_residual
        kept = {key: value for key, value in given.items() if key not in ("path", "network")}
        return kept | {"weights": total(network), "inner_residual": own}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.path is None) == (self.weights is None):
            raise ValueError("frozen needs the path of a topology.json, or weights")
        if self.weights is not None:
            side = len(self.weights)
            if side < 2 or any(len(row) != side for row in self.weights):
                raise ValueError("weights are not a square matrix of K+1 rows")
            if any(row[j] for i, row in enumerate(self.weights) for j in range(i + 1)):
                raise ValueError("weights have an entry that does not lead forward (i < j)")
            if self.inner_residual is None:
                raise ValueError("weights need inner_residual, keep or drop, beside them")
        return self

    def check(self, depth: int) -> None:
        super().check(depth)
        if self.weights is not None and len(self.weights) != depth + 1:
            raise ValueError(f"the frozen topology is of {len(self.weights) - 1} blocks, this network has {depth}")

    def check_ready(self) -> None:
        if self.weights is None:
            raise ValueError(f"{self.path}: no such topology file yet")

    def num_coefficients(self, depth: int, width: int = 0) -> int:
        return 0

    def wiring(self, depth: int) -> Wiring:
        self.check_ready()
        assert self.weights is not None and self.inner_residual is not None  # _whole
        weights = {(i, j): weight for i, row in enumerate(self.weights) for j, weight in enumerate(row) if weight}
        return Wiring(depth, weights, "constant", inner_residual=self.inner_residual)


def choose(path: Path, name: str | None) -> Network:
    """The network called `name`, or the only one. Raises ValueError, in one line."""
    networks = read(path)
    if name is None and len(networks) == 1:
        (name,) = networks
    if name not in networks:
        what = "several networks, so network must name one" if name is None else f"no network {name!r}"
        raise ValueError(f"{path}: {what} (there are: {', '.join(sorted(networks))})")
    found = networks[name]
    if found.rule == "outputs":
        raise ValueError(f"{path}: network {name!r} ({found.kind}) is no weighted sum of states, which frozen repeats")
    return found


def total(network: Network) -> Matrix:
    """Every fixed and every learned weight of a step, as one matrix."""
    assert network.p is not None  # choose
    if network.offset is None:
        return network.p
    pairs = zip(network.p, network.offset, strict=True)
    return tuple(tuple(map(float.__add__, *rows)) for rows in pairs)
