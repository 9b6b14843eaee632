"""Feature networks from files: TorchScript and ONNX against the sums that they write down."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from orchestrator.errors import InputError
from orchestrator.features.file import FileNetwork, Spec
from orchestrator.image_metrics.evaluate import compare, gather
from orchestrator.images.digits import Digits


class Three(torch.nn.Module):
    """The first 5 pixels, a map of the next 4, and 3 sums."""

    def forward(self, x):
        flat = x.float().flatten(1)
        return flat[:, :5], flat[:, 5:9].reshape(-1, 1, 2, 2), flat[:, :3] + flat[:, 3:6]


class One(torch.nn.Module):
    def forward(self, x):
        return x.float().mean()


def torchscript(file: Path, network: torch.nn.Module) -> Path:
    torch.jit.script(network).save(file)
    return file


def onnx_file(file: Path) -> Path:
    """Pixels as floats: all of them, flattened, thrice."""
    names = ("pool", "spatial", "logits")
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        *(helper.make_node("Flatten", ["floats"], [name], axis=1) for name in names),
    ]
    taken = helper.make_tensor_value_info("images", TensorProto.UINT8, ["n", 1, 8, 8])
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64]) for name in names]
    graph = helper.make_graph(nodes, "pixels", [taken], given)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), file)
    return file


def test_torchscript_takes_bytes(tmp_path: Path) -> None:
    network = Spec(path=str(torchscript(tmp_path / "a.pt", Three()))).open(tmp_path)
    x, _ = Digits().read(np.arange(4))
    flat = np.rint((x.reshape(4, -1) + 1) * 127.5)
    features = network.features(x)
    assert np.array_equal(features.pool, flat[:, :5])
    assert np.array_equal(features.spatial, flat[:, 5:9])
    assert np.array_equal(features.logits, flat[:, :3] + flat[:, 3:6])
    assert not network.published


def test_onnx_takes_bytes(tmp_path: Path) -> None:
    network = Spec(path=str(onnx_file(tmp_path / "a.onnx"))).open(tmp_path)
    x, _ = Digits().read(np.arange(4))
    for array in network.features(x):
        assert np.array_equal(array, np.rint((x.reshape(4, -1) + 1) * 127.5))


def test_metrics_of_a_file(tmp_path: Path) -> None:
    network = Spec(path=str(torchscript(tmp_path / "a.pt", Three()))).open(tmp_path)
    digits = Digits()
    order = np.random.default_rng(0).permutation(1797)
    halves = [gather(network, lambda some: digits.read(order[some]).x, np.arange(side, 1797, 2)) for side in (0, 1)]
    assert compare(*halves)["fid"] < 0.01 * halves[0].pool.covariance("FID").trace()


def test_the_hash_is_that_of_the_content(tmp_path: Path) -> None:
    first = torchscript(tmp_path / "a.pt", Three())
    copy = tmp_path / "copy.pt"
    copy.write_bytes(first.read_bytes())
    other = onnx_file(tmp_path / "b.onnx")
    one, same, another = (Spec(path=str(file)).open(tmp_path).hash for file in (first, copy, other))
    assert one == same != another


@pytest.mark.parametrize("name", ["a.pt", "a.onnx"])
def test_files_that_are_no_networks_are_one_line(tmp_path: Path, name: str) -> None:
    for content in (b"", b"no network"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=rf"^features\.path: .*{name}: is no (TorchScript|ONNX): "):
            Spec(path=str(tmp_path / name)).open(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        Spec(path=str(tmp_path / "nowhere.pt")).open(tmp_path)
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        Spec(path=str(tmp_path)).open(tmp_path)


def test_networks_that_give_something_else_are_one_line(tmp_path: Path) -> None:
    x = np.zeros((4, 1, 8, 8), np.float32)
    one = Spec(path=str(torchscript(tmp_path / "one.pt", One()))).open(tmp_path)
    with pytest.raises(InputError, match=r"one\.pt: "):
        one.features(x)
    nothing = helper.make_node("Constant", [], ["pool"], value=helper.make_tensor("c", TensorProto.FLOAT, [1], [0]))
    graph = helper.make_graph(
        [nothing], "no input", [], [helper.make_tensor_value_info("pool", TensorProto.FLOAT, [1])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "no.onnx")
    with pytest.raises(InputError, match=r"no\.onnx: takes 0 inputs; wanted is one, of images"):
        Spec(path=str(tmp_path / "no.onnx")).open(tmp_path)
    digits = Spec(path=str(onnx_file(tmp_path / "digits.onnx"))).open(tmp_path)
    with pytest.raises(InputError, match=r"digits\.onnx: cannot take images of uint8, 4 x 3 x 32 x 32: "):
        digits.features(np.zeros((4, 3, 32, 32), np.float32))


FINE = np.ones((4, 2), np.float32)
STRANGE = {
    "two": [FINE, FINE],
    "a number": [FINE, np.float32(0), FINE],
    "a number as logits": [FINE, FINE, np.float32(0)],
    "no columns": [np.ones((4, 0)), FINE, FINE],
    "no logits": [FINE, FINE, np.ones((4, 0))],
    "too few": [FINE, FINE[:3], FINE],
    "words": [FINE, FINE, np.array(["a"] * 4)],
    "truths": [FINE > 0, FINE, FINE],
    "complex numbers": [FINE, FINE * 1j, FINE],
}


@pytest.mark.parametrize("case", STRANGE)
def test_what_are_no_rows_of_numbers_is_one_line(case: str) -> None:
    x = np.zeros((4, 1, 8, 8), np.float32)
    line = (
        r"^net: of 4 images it gives .*; wanted are three arrays of numbers with a row an image: pool, spatial, logits$"
    )
    with pytest.raises(InputError, match=line):
        FileNetwork("net", "0", lambda pixels: STRANGE[case]).features(x)
    assert FileNetwork("net", "0", lambda pixels: [FINE, FINE.astype(int), FINE]).features(x).pool.shape == (4, 2)


def test_features_have_one_width() -> None:
    network = FileNetwork("net", "0", lambda pixels: [np.ones((len(pixels), len(pixels)))] * 3)
    for _ in range(2):
        network.features(np.zeros((4, 1, 8, 8), np.float32))
    with pytest.raises(InputError, match=r"^net: gives \[3, 3, 3\] features an image; of earlier images \[4, 4, 4\]$"):
        network.features(np.zeros((3, 1, 8, 8), np.float32))
