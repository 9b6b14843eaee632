"""topology.json: what is written is read back, whole or not at all, and nothing else is accepted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import snapshot
from models.topology import ancre, ancre_sparse, attention_residual, cascaded, hyper_connections
from models.topology.base import TopologySpec

GOOD: dict[str, Any] = {
    "kind": "ancre",
    "depth": 2,
    "rule": "softmax",
    "normalization": "ingoing",
    "temperature": 0.01,
    "inner_residual": "drop",
    "mask": [[False, True, True], [False, False, True], [False, False, False]],
    "p": [[0.0, 1.0, 0.25], [0.0, 0.0, 0.75], [0.0, 0.0, 0.0]],
    "offset": None,
    "c": [0.0, -0.5, 0.5],
    "trained": [[False, True, True], [False, False, True], [False, False, False]],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "topology.json"


def read_text(path: Path, text: str | bytes) -> Any:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return snapshot.read(path)


def read_entry(path: Path, **changes: Any) -> Any:
    text = json.dumps({"version": 1, "networks": {"net": GOOD | changes}})
    return read_text(path, text.replace("Infinity", "1e999"))  # which is JSON, and infinite once it is read


SPECS = [
    ancre.Spec(),
    cascaded.Spec(),
    ancre_sparse.Spec(mask="boundary-targets", segment=2),
    hyper_connections.Spec(),
    attention_residual.Spec(),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_what_a_network_leaves_behind_is_read_back(path: Path, spec: TopologySpec) -> None:
    first, second = (spec.build(depth, 4).snapshot() for depth in (5, 1))
    path.write_bytes(snapshot.dump({"actor": first, "critic": second}))
    back = snapshot.read(path)
    assert {name: json.loads(network.model_dump_json()) for name, network in back.items()} == {
        "actor": json.loads(json.dumps(first)),
        "critic": json.loads(json.dumps(second)),
    }


def test_what_is_not_finite_is_not_written() -> None:
    with pytest.raises(ValueError):
        snapshot.dump({"net": GOOD | {"p": [[float("nan")]]}})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Expecting value"),
        ("[]", "not a topology file of version 1"),
        ('{"version": 2, "networks": {}}', "not a topology file of version 1"),
        ('{"version": 1, "networks": {}}', "no networks"),
        ('{"version": 1, "networks": [1]}', "no networks"),
        ('{"version": 1, "networks": {"a": 3}}', "networks.a"),
        ('{"version": 1, "version": 1, "networks": {}}', "twice"),
        ('{"version": 1, "networks": {"a": NaN}}', "NaN"),
        ('{"version": 1, "networks": {"a": 1e999}}', "networks.a"),
        ("[" * 100_000, "nested too deeply"),
        (b"\x80\x04\x95 pickled", "decode"),
        (b"\xff\xfe{\x00}\x00", "version 1"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(path: Path, text: str | bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refused:
        read_text(path, text)
    assert str(refused.value).startswith(f"{path}: ")
    assert len(str(refused.value).splitlines()) == 1


def test_a_missing_file_a_folder_and_a_huge_file_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        snapshot.read(path)
    with pytest.raises(ValueError, match="directory"):
        snapshot.read(path.parent)
    with path.open("wb") as file:
        file.truncate(snapshot.MAX_BYTES + 1)
    with pytest.raises(ValueError, match="larger than"):
        snapshot.read(path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"depth": 0}, "depth"),
        ({"depth": 3}, "4 x 4"),
        ({"depth": 10**9}, "x 1000000001"),
        ({"p": [[0.0, 1.0], [0.0, 0.0]]}, "p is not 3 x 3"),
        ({"p": [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]}, "p has an entry that does not lead forward"),
        ({"mask": [[True] * 3] * 3}, "mask has an entry that does not lead forward"),
        ({"c": [0.0]}, "1 numbers for 3 allowed"),
        ({"c": ["__import__('os')", 0, 0]}, "c.0"),
        ({"p": [[0.0, 1e999, 0.0], [0.0] * 3, [0.0] * 3]}, "p.0.1"),
        ({"rule": "eval"}, "rule"),
        ({"inner_residual": None}, "inner_residual"),
        ({"extra": 1}, "extra"),
    ],
)
def test_an_entry_that_makes_no_sense_is_named(path: Path, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as refused:
        read_entry(path, **changes)
    assert "networks.net" in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_the_example_of_this_file_is_read(path: Path) -> None:
    assert read_entry(path)["net"].p[1][2] == 0.75


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "x"]), inner, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from([*GOOD, "kinds"]), value=JSON)
def test_no_value_of_any_field_escapes_as_another_error(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: Any
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "topology.json"
    try:
        network = read_entry(path, **{field: value})["net"]
    except ValueError as refused:
        assert len(str(refused).splitlines()) == 1
    else:
        assert field in type(network).model_fields
