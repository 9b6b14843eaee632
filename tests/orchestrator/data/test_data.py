"""Text sources: what they read, in which order, and what they say of input that they cannot read."""

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.data.files import Spec as Files
from orchestrator.data.python_docs import Spec as PythonDocs
from orchestrator.errors import InputError


def lines(*records) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def table(path: Path, **columns: list) -> None:
    pq.write_table(pa.table(columns), path)


def read(path: Path, **fields) -> list[str]:
    return list(Files(path=str(path), **fields).documents())


@pytest.mark.timeout(20)
@pytest.mark.parametrize("where", ["itself", "inside", "device"])
def test_what_would_keep_a_reader_waiting_is_refused(tmp_path, where):
    path = tmp_path / "text.jsonl"
    os.mkfifo(path)
    given = {"itself": path, "inside": tmp_path, "device": Path("/dev/null")}[where]
    said = (
        "nothing to read" if where == "inside" else "should be a file or a folder; it is a pipe, a socket or a device"
    )
    with pytest.raises(InputError, match=said):
        read(given)


def test_the_python_reference_is_prose_about_python():
    documents = list(PythonDocs().documents())
    assert len(documents) > 50
    assert sum(map(len, documents)) > 300_000
    assert any('The "if" statement' in document for document in documents)
    assert documents == list(PythonDocs().documents())


def test_a_folder_is_read_by_path_whatever_the_form(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.txt").write_text("eins\nzwei", encoding="utf-8")
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "first", "n": 1}) + b"\n" + lines({"text": "größer"}))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines({"text": "packed"})))
    table(tmp_path / "d.parquet", text=["row 1", None, " ", "row 2"], other=[1, 2, 3, 4])
    (tmp_path / "notes.md").write_text("not a corpus")
    assert read(tmp_path) == ["first", "größer", "eins\nzwei", "packed", "row 1", "row 2"]


def test_one_file_and_another_column(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"body": "x"}, {"body": "y"}))
    assert read(tmp_path / "a.jsonl", column="body") == ["x", "y"]
    table(tmp_path / "a.parquet", body=["x"])
    assert read(tmp_path / "a.parquet", column="body") == ["x"]


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes("x".encode("utf-8-sig"))
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + lines({"text": "y"}))
    assert read(tmp_path) == ["x", "y"]


def test_the_fingerprint_follows_the_content_and_not_the_place(tmp_path):
    for name, word in (("one", "x"), ("same", "x"), ("other", "y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(word)
    one, same, other = (Files(path=str(tmp_path / name)).fingerprint() for name in ("one", "same", "other"))
    assert one == same != other
    (tmp_path / "one" / "a.txt").write_text("z")
    assert Files(path=str(tmp_path / "one")).fingerprint() != one
    assert PythonDocs().fingerprint() == PythonDocs().fingerprint()


FAULTS = {
    "a.txt": [
        (b"", "a.txt: no text in it"),
        (b" \n", "a.txt: no text in it"),
        (b"caf\xe9!", "a.txt: not UTF-8: byte 0xe9 at offset 3"),
    ],
    "a.jsonl": [
        (b"", "a.jsonl: no text in it"),
        (lines({"text": "x"}) + b"{oops\n", "a.jsonl:2: not JSON: Expecting property name"),
        (lines(["text"]), "a.jsonl:1: ['text'], not an object with a column 'text'"),
        (lines({"test": "x"}), "a.jsonl:1: no column 'text'; did you mean 'test'?"),
        (lines({"text": 7}), "a.jsonl:1: 'text' is 7, not text"),
        (lines({"text": None}), "a.jsonl:1: 'text' is None, not text"),
        (b'{"text": "\\ud800"}\n', "a.jsonl:1: 'text' holds half of a surrogate pair"),
        (b'{"text": "\xff"}\n', "a.jsonl:1: not UTF-8: byte 0xff at offset 10"),
        (b"[" * 100_000, "a.jsonl:1: JSON nested too deep"),
        (lines({"text": "x"}) + b'{"text": %s}' % (b"9" * 6000), "a.jsonl:2: not JSON that can be read: a number of"),
    ],
    "a.jsonl.gz": [
        (b"no gzip", "a.jsonl.gz: cannot be read: Not a gzipped file"),
        (gzip.compress(lines({"text": "x" * 999}))[:-12], "a.jsonl.gz: cannot be read: Compressed file ended"),
        (b"", "a.jsonl.gz: no text in it"),
    ],
    "a.parquet": [(b"", "a.parquet: cannot be read as parquet"), (b"PAR1PAR1", "a.parquet: cannot be read as parquet")],
}


@pytest.mark.parametrize(
    ("name", "content", "message"), [(name, *fault) for name, faults in FAULTS.items() for fault in faults]
)
def test_a_fault_is_named_in_one_line_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parquet_without_the_column_or_without_text(tmp_path):
    table(tmp_path / "a.parquet", txt=["x"], n=[1])
    with pytest.raises(InputError, match="no column 'text'; did you mean 'txt'"):
        read(tmp_path)
    with pytest.raises(InputError, match="'n' is 1, not text"):
        read(tmp_path, column="n")
    table(tmp_path / "a.parquet", text=pa.array([None], pa.string()))
    with pytest.raises(InputError, match="no text in it"):
        read(tmp_path)


def test_missing_empty_and_unreadable_places(tmp_path):
    with pytest.raises(InputError, match=r"data\.path: .*nowhere' does not exist \(looked from "):
        read(tmp_path / "nowhere")
    with pytest.raises(
        InputError, match=r"nothing to read; wanted \.txt, \.jsonl, \.jsonl\.gz, \.json\.gz, \.parquet$"
    ):
        read(tmp_path)
    for path in ("x" * 5000, "a\0b", "~nobody-of-this-name/a.txt"):
        with pytest.raises(InputError, match=r"data\.path: '.* does not exist") as caught:
            Files(path=path).fingerprint()
        assert len(str(caught.value)) <= 600
    (tmp_path / "a.pdf").write_bytes(b"x")
    for path in (tmp_path, tmp_path / "a.pdf"):
        with pytest.raises(InputError, match="nothing to read"):
            Files(path=str(path)).fingerprint()
