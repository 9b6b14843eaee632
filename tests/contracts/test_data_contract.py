"""What every text source must do. A new file in `orchestrator/data` is tested by being there."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from orchestrator import kinds
from orchestrator.data.base import DataSpec
from orchestrator.pretrain.spec import TextSpec
from orchestrator.pretrain.tokens import prepare

pytestmark = pytest.mark.parametrize("kind", kinds.names("data"))


@pytest.fixture
def table(kind: str, tmp_path: Path) -> dict[str, Any]:
    """A valid table of this kind."""
    (tmp_path / "b.txt").write_text("The second file.")
    (tmp_path / "a.txt").write_text("The first file.\n\nIts second paragraph.")
    if kind == "shards":
        prepare(kinds.parse("data", {"kind": "files", "path": str(tmp_path)}), TextSpec(), 300, tmp_path / "cache")
        (path,) = (tmp_path / "cache" / "shards").iterdir()
        return {"kind": kind, "path": str(path)}
    return {"kind": kind} | {"files": {"path": str(tmp_path)}}.get(kind, {})


@pytest.fixture
def spec(table: dict[str, Any]) -> DataSpec:
    parsed: DataSpec = kinds.parse("data", table)
    return parsed


def test_spec_survives_json_and_hashing(kind: str, spec: DataSpec) -> None:
    again = kinds.parse("data", json.loads(spec.model_dump_json()))
    assert again == spec and hash(again) == hash(spec)
    assert spec.kind == kind
    assert kinds.summary("data", kind)


def test_documents_are_text(spec: DataSpec) -> None:
    documents = list(spec.documents())
    assert documents
    assert all(isinstance(document, str) and document.strip() for document in documents)


def test_documents_come_again_in_the_same_order(spec: DataSpec, table: dict[str, Any]) -> None:
    documents = list(spec.documents())
    assert list(spec.documents()) == documents
    assert list(kinds.parse("data", table).documents()) == documents


def test_documents_come_one_by_one(spec: DataSpec) -> None:
    """A corpus may be larger than memory: the first document is there before the others are read."""
    assert iter(spec.documents()) is not iter(spec.documents())
    assert len(list(islice(spec.documents(), 1))) == 1


def test_planning_imports_no_torch(table: dict[str, Any], spec: DataSpec) -> None:
    program = (
        "import json, sys\n"
        "from orchestrator import kinds\n"
        "kinds.parse('data', json.loads(sys.argv[1]))\n"
        "sys.exit('torch' in sys.modules or 'pyarrow' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, json.dumps(table)], check=True)
