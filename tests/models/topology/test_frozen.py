"""A frozen topology is its matrix: whatever file it came from, and none where it is trained."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models import snapshot
from models.stack import Stack
from models.topology import ancre, ancre_sparse, ancre_uniform, frozen, learnable_cascaded, shortcuts
from models.wiring import WiredSpec

WIDTH = 3


def leave(path: Path, *specs: WiredSpec, depth: int = 4) -> str:
    """topology.json of as many networks, called a, b, .., with coefficients as after training."""
    networks = {}
    for name, spec in zip("abc", specs, strict=False):
        topology = spec.build(depth, WIDTH)
        for coefficients in topology.parameters():
            nn.init.normal_(coefficients, generator=torch.Generator().manual_seed(0))
        networks[name] = topology.snapshot()
    path.write_bytes(snapshot.dump(networks))
    return str(path)


def test_identity_is_by_content(tmp_path: Path) -> None:
    one = frozen.Spec(path=leave(tmp_path / "one.json", ancre.Spec()))
    two = frozen.Spec(path=leave(tmp_path / "two.json", ancre.Spec()))
    other = frozen.Spec(path=leave(tmp_path / "other.json", ancre.Spec(temperature=1)))
    assert one == two and one.model_dump_json() == two.model_dump_json() and hash(one) == hash(two)
    assert one != other
    assert one.path is None and one.network is None


def test_workers_need_no_file(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    spec = frozen.Spec(path=leave(path, ancre.Spec()))
    path.unlink()
    again = frozen.Spec(**json.loads(spec.model_dump_json()))
    assert again == spec
    again.check(4)
    again.check_ready()
    assert again.build(4, WIDTH).depth == 4


class Branch(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.weight = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(seed))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight)


@pytest.mark.parametrize("inner_residual", ["keep", "drop"])
@pytest.mark.parametrize(
    "kind",
    [
        ancre.Spec(temperature=0.5),
        ancre.Spec(normalization="none"),
        ancre_sparse.Spec(mask="boundary-targets", segment=2, temperature=0.5),
        ancre_uniform.Spec(),
    ],
    ids=["softmax", "free", "with-offset", "constant"],
)
def test_it_computes_what_the_trained_topology_did(kind: WiredSpec, inner_residual: str, tmp_path: Path) -> None:
    spec = kind.model_copy(update={"inner_residual": inner_residual})
    blocks = [Branch(seed) for seed in range(4)]
    trained = Stack(blocks, spec, returns="branch")
    for coefficients in trained.topology.parameters():
        nn.init.normal_(coefficients, generator=torch.Generator().manual_seed(1))
    (tmp_path / "t.json").write_bytes(snapshot.dump({"net": trained.topology.snapshot()}))
    again = Stack(blocks, frozen.Spec(path=str(tmp_path / "t.json")), returns="branch")
    assert not list(again.parameters())
    x = torch.randn(2, WIDTH)
    torch.testing.assert_close(again(x), trained(x))


def test_one_network_of_several_is_named(tmp_path: Path) -> None:
    path = leave(tmp_path / "t.json", ancre_uniform.Spec(), shortcuts.Spec(shortcuts="0:2"), learnable_cascaded.Spec())
    chosen = frozen.Spec(path=path, network="b")
    assert chosen.weights is not None and chosen.weights[0][2] == 1 and sum(map(sum, chosen.weights)) == 1
    with pytest.raises(ValueError, match=r"several networks, so network must name one \(there are: a, b, c\)"):
        frozen.Spec(path=path)
    with pytest.raises(ValueError, match=r"no network 'd' \(there are: a, b, c\)"):
        frozen.Spec(path=path, network="d")


def test_the_inner_residual_is_that_of_the_run_unless_stated(tmp_path: Path) -> None:
    path = leave(tmp_path / "t.json", ancre.Spec(inner_residual="keep"))
    assert frozen.Spec(path=path).inner_residual == "keep"
    assert frozen.Spec(path=path, inner_residual="drop").inner_residual == "drop"


def test_a_study_may_name_a_file_that_a_run_has_yet_to_write(tmp_path: Path) -> None:
    path = str(tmp_path / "later.json")
    spec = frozen.Spec(path=path)
    spec.check(8)
    assert spec.num_coefficients(8) == 0
    for use in (spec.check_ready, lambda: spec.build(8, WIDTH)):
        with pytest.raises(ValueError, match=r"later\.json: no such topology file yet"):
            use()


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({}, "needs the path"),
        ({"weights": [[0.0, 1.0], [0.0, 0.0]]}, "inner_residual"),
        ({"weights": [[0.0, 1.0], [0.0]], "inner_residual": "drop"}, "square"),
        ({"weights": [[0.0]], "inner_residual": "drop"}, "square"),
        ({"weights": [[0.0, 1.0], [1.0, 0.0]], "inner_residual": "drop"}, "forward"),
        ({"weights": [[0.0, float("nan")], [0.0, 0.0]], "inner_residual": "drop"}, "finite"),
        ({"path": "t.json", "weights": [[0.0, 1.0], [0.0, 0.0]], "inner_residual": "drop"}, "needs the path"),
        ({"path": __file__}, r"test_frozen\.py: "),
    ],
)
def test_bad_tables_are_refused(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        frozen.Spec(**table)


def test_another_depth_is_refused(tmp_path: Path) -> None:
    spec = frozen.Spec(path=leave(tmp_path / "t.json", ancre.Spec(), depth=4))
    for use in (lambda: spec.check(5), lambda: spec.build(5, WIDTH)):
        with pytest.raises(ValueError, match="the frozen topology is of 4 blocks, this network has 5"):
            use()
