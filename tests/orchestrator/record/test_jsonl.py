import math
import re
import signal

import pytest

from orchestrator.errors import InputError
from orchestrator.record import jsonl


def tail_of(path):
    return jsonl.Tail(path, lambda line: None)


def test_non_finite_numbers_survive_as_strict_json():
    metrics = {"a": 1.5, "b": math.nan, "c": math.inf, "d": -math.inf}
    line = jsonl.dump({"metrics": jsonl.plain(metrics)})
    assert line == b'{"metrics":{"a":1.5,"b":"nan","c":"inf","d":"-inf"}}\n'
    back = jsonl.numbers(jsonl.plain(metrics))
    assert math.isnan(back.pop("b")) and back == {"a": 1.5, "c": math.inf, "d": -math.inf}


def test_a_tail_sees_each_line_once_and_no_torn_one(tmp_path):
    path = tmp_path / "x.jsonl"
    tail = tail_of(path)
    assert tail.read() == []
    path.write_bytes(b'{"n":1}\n{"n":2}\n{"n":')
    assert tail.read() == [{"n": 1}, {"n": 2}]
    with path.open("ab") as file:
        file.write(b"3}\n")
    assert tail.read() == [{"n": 3}]
    assert tail.read() == []


def test_a_tail_starts_anew_where_the_file_was_replaced(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":2}\n')
    tail = tail_of(path)
    tail.read()
    jsonl.replace(path, b'{"n":1}\n{"n":7}\n')
    assert tail.read() == [{"n": 1}, {"n": 7}]


@pytest.mark.parametrize(
    ("line", "said"),
    [(b'{"n":oops}', "not JSON: '{\"n\":oops}'"), (b"[" * 100_000, "not JSON"), (b"\xff", "not JSON"),
     (b"5", "no JSON object: '5'"), (b"null", "no JSON object"), (b'{"n":"2"}', "its 'n' is '2'"),
     (b"{}", "it has no 'n'")],
)  # fmt: skip
def test_a_line_that_another_hand_wrote_is_named(tmp_path, line, said):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"n":1}\n')
    tail = jsonl.Tail(path, lambda found: jsonl.expect(found, {"n": int}))
    tail.read()
    with path.open("ab") as file:
        file.write(b'{"n":2}\n' + line + b"\n")
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        tail.read()
    fault = str(caught.value)
    assert fault.startswith(f"{path}, line 3: ") and "\n" not in fault and len(fault) < 300 + len(str(path))
    assert fault.endswith(f"; delete the line, or move {tmp_path} away")


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path}: Is a directory; mend that, or move {tmp_path.parent} away"):
        tail_of(tmp_path).read()


def test_a_writer_removes_a_torn_last_line(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"n":1}\n' + b'{"n":' + b"2" * 200_000)
    writer = jsonl.Writer(path, durable=True)
    writer.append([{"n": 3}, {"n": 4}])
    writer.close()
    assert path.read_bytes() == b'{"n":1}\n{"n":3}\n{"n":4}\n'


def test_a_full_disk_leaves_whole_lines(tmp_path):
    resource = pytest.importorskip("resource")  # a limit on the file's size stands for the full disk
    path = tmp_path / "x.jsonl"
    writer = jsonl.Writer(path, durable=True)
    writer.append([{"n": 1}])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(OSError):
            writer.append([{"n": "2" * 1000}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    writer.append([{"n": 3}])
    assert tail_of(path).read() == [{"n": 1}, {"n": 3}]
