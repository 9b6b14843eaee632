"""`ancre data prepare` on files: the same bytes whatever happens on the way, and every document in its place."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from c4_like import EACH, FILES, content, document, texts
from tokenizers import Tokenizer

from orchestrator import cli
from orchestrator.data.shards import Spec as Shards
from orchestrator.pretrain.spec import TextSpec
from orchestrator.pretrain.tokens import prepare
from orchestrator.shards import folder as shards


@pytest.fixture(scope="session")
def whole(words, tmp_path_factory) -> Path:
    """Prepared in one go on one process."""
    out = tmp_path_factory.mktemp("whole")
    assert cli.main(words(out)) == 0
    return out


def test_every_document_is_there_in_order(whole):
    train = [document("train", file, n) for file in range(FILES) for n in range(EACH)]
    assert texts(whole, "train") == train == list(Shards(path=str(whole)).documents())
    assert texts(whole, "validation") == [document("validation", 0, n) for n in range(EACH)]


def test_the_manifest_counts_what_there_is(whole, tokenizer):
    manifest = shards.read(whole)
    assert (whole / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    assert manifest.vocabulary == Tokenizer.from_file(str(tokenizer)).get_vocab_size()
    assert manifest.train.documents == FILES * EACH
    assert len(manifest.train.shards) > 5
    for shard in manifest.train.shards[:-1]:
        assert 1500 <= shard.tokens < 1500 + max(len(document("train", 0, n)) for n in range(EACH))
    on_disk = {f"{side}/{path.name}" for side in shards.SIDES for path in (whole / side).iterdir()}
    assert {file.name for file in manifest.files} == on_disk
    assert {path.name for path in whole.iterdir()} == {"manifest.json", "tokenizer.json", "train", "validation"}


def test_a_trial_reads_them(whole, tmp_path):
    split = prepare(Shards(path=str(whole)), TextSpec(), 400, tmp_path)
    assert split.train.side.documents == FILES * EACH
    assert split.held_out.side.documents == EACH


def test_the_number_of_processes_changes_no_byte(whole, words, tmp_path):
    assert cli.main(words(tmp_path, "--workers", "3")) == 0
    assert content(tmp_path) == content(whole)


def command(words: list[str]) -> subprocess.Popen:
    program = "import sys; from orchestrator import cli; from orchestrator.prepare import run; run.BATCH = 1000"
    ask = [sys.executable, "-c", f"{program}; sys.exit(cli.main(sys.argv[1:]))", *words]
    return subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def processes_of(session: int) -> list[int]:
    """Live processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def commits(out: Path) -> int:
    try:
        return (out / "progress.jsonl").read_bytes().count(b"\n") - 1
    except OSError:
        return 0


@pytest.mark.parametrize("fraction", [(), ("--val-fraction", "0.2")], ids=["two sources", "one source"])
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(words, source, tokenizer, tmp_path, fraction):
    """SIGKILL to the process at random moments; its processes end too, and what was committed is not done again."""
    small = ["--workers", "2", "--shard-tokens", "400"]
    if fraction:
        ask = ["data", "prepare", str(source), "--tokenizer", str(tokenizer), *fraction, *small]
    else:
        ask = [*words(tmp_path, *small)]
        del ask[ask.index("--out") : ask.index("--out") + 2]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    assert cli.main([*ask, "--out", str(straight)]) == 0
    random, kills, before = Random(1), 0, {}
    while not (killed / "manifest.json").exists():
        process, target = command([*ask, "--out", str(killed)]), commits(killed) + random.randint(8, 40)
        while process.poll() is None and commits(killed) < target:
            time.sleep(0.001)
        if process.poll() is None:
            process.kill()
            kills += 1
        _, error = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), error
        deadline = time.monotonic() + 10
        while processes_of(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not processes_of(process.pid)
        now = {path: path.stat().st_mtime_ns for path in killed.glob("train/0*")}
        assert all(now[path] == before[path] for path in sorted(before)[: 2 * max(0, len(before) // 2 - 1)])
        before = now
    assert kills >= 2
    assert content(killed) == content(straight)


def test_a_tokenizing_process_that_is_killed_is_one_line(words, tmp_path, whole, monkeypatch):
    from orchestrator.prepare import pool

    def kill_one(self, waiting):
        for process in self._processes._processes.values():
            os.kill(process.pid, signal.SIGKILL)
        return proper(waiting)

    proper = pool.Pool._next
    with monkeypatch.context() as patch:
        patch.setattr(pool.Pool, "_next", kill_one)
        assert cli.main(words(tmp_path)) == 2
    assert cli.main(words(tmp_path)) == 0
    assert content(tmp_path) == content(whole)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(words, tmp_path, whole, refused):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # the largest file that this process may write
    try:
        said = refused(*words(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert f"--out {tmp_path}: File too large; once that is mended, the same command goes on" in said
    assert cli.main(words(tmp_path)) == 0
    assert content(tmp_path) == content(whole)


def test_done_is_done_and_other_settings_are_refused(words, whole, tmp_path, refused, capsys):
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    (out / ".env").write_text("the user's own")
    before = content(out)
    (out / ".manifest.json.123").write_text("cut off")
    assert cli.main(words(out)) == 0
    assert "done already" in capsys.readouterr().out
    assert content(out) == before
    for more, name in (
        (("--limit", "5"), "limit None, not 5"),
        (("--shard-tokens", "999"), "shard_tokens 1500, not 999"),
        (("--column", "url"), "column 'text', not 'url'"),
        (("--tokenizer", "bpe", "--vocab-size", "300"), "tokenizer '.*', not 'bpe'"),
    ):
        said = refused(*words(out, *more))
        assert re.search(f"{out} was prepared with {name}: give another --out, or delete", said)
    assert content(out) == before


def test_a_finished_folder_with_a_truncated_shard_is_named(words, whole, tmp_path, refused):
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    os.truncate(out / "train" / "00000.tokens.npy", 10)
    assert "train/00000.tokens.npy: truncated: 10 bytes of" in refused(*words(out))


def begin(ask: list[str], out: Path, at_least: int = 2) -> None:
    """Kill a run after some commits."""
    process = command(ask)
    while process.poll() is None and commits(out) < at_least:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert commits(out) >= at_least and not (out / "manifest.json").exists()


def test_what_changed_since_the_beginning_is_refused(source, tokenizer, tmp_path, refused):
    files, own, out = Path(shutil.copytree(source, tmp_path / "files")), tmp_path / "own.json", tmp_path / "out"
    shutil.copy(tokenizer, own)
    ask = ["data", "prepare", str(files), "--tokenizer", str(own), "--val-fraction", "0.2", "--out", str(out)]
    ask += ["--workers", "1", "--shard-tokens", "300"]
    begin(ask, out, 20)
    assert "with limit None, not 7" in refused(*ask, "--limit", "7")
    own.write_text(own.read_text() + " ")
    assert f"{own} is not the tokenizer that {out} was begun with" in refused(*ask)
    shutil.copy(tokenizer, own)
    os.utime(files / "c4-train.00000-of-00004.json.gz")  # read and done
    assert f"{files}: changed since {out} was begun" in refused(*ask)


def test_a_file_that_changed_while_it_was_read_is_refused(tokenizer, tmp_path, refused):
    file, out = tmp_path / "text.jsonl", tmp_path / "out"
    lines = [json.dumps({"text": document("train", 0, n)}) + "\n" for n in range(EACH)]
    file.write_text("".join(lines))
    ask = ["data", "prepare", str(file), "--tokenizer", str(tokenizer), "--val-fraction", "0.2", "--out", str(out)]
    ask += ["--workers", "1", "--shard-tokens", "300"]
    begin(ask, out)
    file.write_text("".join(lines[1:]))  # every document moves up by one
    assert f"{file}: changed since {out} was begun" in refused(*ask)


def test_a_hand_in_the_progress_is_refused(words, tmp_path, refused):
    ask = words(tmp_path, "--shard-tokens", "300", "--workers", "1")
    begin(ask, tmp_path, 4)
    progress = tmp_path / "progress.jsonl"
    lines = progress.read_text().splitlines(keepends=True)
    for changed, fault in (
        ([*lines[:2], *lines[3:]], "the line of shard 1 of validation is missing"),
        ([*lines[:2], lines[2].replace('"position"', '"positoin"')], "KeyError: 'position'"),
        ([*lines[:2], lines[2].replace('"sha256"', '"sha"')], "Field required"),
        (['{"settings": 3}\n', *lines[1:]], "AttributeError"),
    ):
        progress.write_text("".join(changed))
        said = refused(*ask)
        assert f"{progress}: changed by hand (" in said and fault in said and f"delete {tmp_path}" in said
    progress.write_text("".join(lines))
    (tmp_path / "tokenizer.json").rename(tmp_path / "away.json")
    assert f"{tmp_path / 'tokenizer.json'}: missing; restore it" in refused(*ask)
    (tmp_path / "away.json").rename(tmp_path / "tokenizer.json")
    assert cli.main(ask) == 0


def test_a_shard_that_was_damaged_meanwhile_is_named(words, tmp_path, refused):
    ask = words(tmp_path, "--shard-tokens", "300", "--workers", "1")
    begin(ask, tmp_path)
    file = tmp_path / "validation" / "00000.tokens.npy"
    os.truncate(file, 10)
    assert f"{file}: truncated: 10 bytes of" in refused(*ask)


def test_a_fraction_is_held_out_by_hash(source, tokenizer, tmp_path):
    sides = {}
    for out, files in ((tmp_path / "all", source), (tmp_path / "one", source / "c4-train.00000-of-00004.json.gz")):
        ask = ["data", "prepare", str(files), "--tokenizer", str(tokenizer), "--val-fraction", "0.2"]
        assert cli.main([*ask, "--out", str(out), "--workers", "1", "--shard-tokens", "2000"]) == 0
        sides[out.name] = {side: texts(out, side) for side in shards.SIDES}
    every = sides["all"]
    assert len(every["train"]) + len(every["validation"]) == (FILES + 1) * EACH
    assert 0.1 < len(every["validation"]) / ((FILES + 1) * EACH) < 0.3
    assert not set(every["train"]) & set(every["validation"])
    assert set(sides["one"]["validation"]) <= set(every["validation"])


@pytest.mark.parametrize("shard", ["400", "67108864"])
def test_limits(words, tmp_path, shard):
    assert cli.main(words(tmp_path / "few", "--limit", "70", "--workers", "1", "--shard-tokens", shard)) == 0
    train = [document("train", file, n) for file in range(FILES) for n in range(EACH)]
    assert texts(tmp_path / "few", "train") == train[:70]
    assert len(texts(tmp_path / "few", "validation")) == EACH
    assert cli.main(words(tmp_path / "tokens", "--limit-tokens", "900", "--workers", "2", "--shard-tokens", shard)) == 0
    manifest = shards.read(tmp_path / "tokens")
    for side in (manifest.train, manifest.validation):
        assert 900 <= side.tokens < 900 + 400
    kept = texts(tmp_path / "tokens", "train")
    assert kept == train[: len(kept)]


def test_the_val_files_are_never_trained_on(source, tokenizer, tmp_path, refused):
    ask = [
        "data",
        "prepare",
        str(source),
        "--tokenizer",
        str(tokenizer),
        "--workers",
        "1",
        "--out",
        str(tmp_path / "a"),
    ]
    assert cli.main([*ask, "--val", str(source / "c4-validation.00000-of-00001.json.gz")]) == 0
    assert not any(text.startswith("validation") for text in texts(tmp_path / "a", "train"))
    ask[-1] = str(tmp_path / "b")
    assert "holds every file of" in refused(*ask, "--val", str(source))


def test_two_at_once_are_one(words, tmp_path, refused):
    process = command(words(tmp_path, "--shard-tokens", "300", "--workers", "1"))
    while process.poll() is None and commits(tmp_path) < 1:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGSTOP)
    said = refused(*words(tmp_path, "--shard-tokens", "300", "--workers", "1"))
    os.kill(process.pid, signal.SIGCONT)
    assert f"--out {tmp_path}: another `ancre data prepare` is at it" in said
    assert process.wait(60) == 0
    process.communicate()


def test_progress_is_plain_lines_where_there_is_no_terminal(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("orchestrator.prepare.watch.EVERY", 0.0)
    assert cli.main(words(tmp_path)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("train: file 4 of 4; ") and line.endswith(" MB/s") for line in lines)
    assert " 300 documents" in f" {lines[-3]}" and "on 1 processes" in lines[-3]
    assert lines[-1] == f'In a study: data = {{ kind = "shards", path = "{tmp_path}" }}'


BAD = {
    ("--vocab-size", "300"): "--vocab-size is for --tokenizer bpe",
    ("--tokenizer", "bpe"): "--tokenizer bpe needs --vocab-size N",
    ("--tokenizer", "bpe", "--vocab-size", "256"): "--vocab-size 256: should be greater than or equal to 257",
    ("--tokenizer", "none.json"): "--tokenizer: 'none.json' cannot be read: No such file",
    ("--tokenizer", "."): "--tokenizer: '.' cannot be read: No such file",
    ("--tokenizer", "a\0b"): "cannot be read",
    ("--val-fraction", "1.5"): "--val-fraction 1.5: should be less than 1",
    ("--val-fraction", "nan"): "--val-fraction nan: should be ",
    ("--val", "nowhere/*.jsonl"): "--val: 'nowhere/*.jsonl' does not exist (looked from",
    ("--config", "en"): "--config and --split are of datasets on the hub",
    ("--column", "txt"): "no column 'txt'",
    ("--shard-tokens", str(2**40)): "--shard-tokens 1099511627776: should be less than or equal to",
}


@pytest.mark.parametrize("more", BAD, ids=" ".join)
def test_bad_input_is_one_line(words, tmp_path, refused, more):
    assert BAD[more] in refused(*words(tmp_path / "out", *more, "--workers", "1"))


def test_bad_sources_and_folders(tokenizer, tmp_path, refused):
    fixed = ["--tokenizer", str(tokenizer), "--workers", "1"]
    (tmp_path / "bad.jsonl").write_text('{"text": "x"}\n{oops\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    for source, out, message in (
        ("none.jsonl", "a", "SOURCE: 'none.jsonl' does not exist"),
        ("none/*.jsonl", "a", "SOURCE: 'none/*.jsonl' does not exist"),
        ("bad.jsonl", "b", "bad.jsonl:2: not JSON"),
        ("full", "c", "nothing to read"),
        ("bad.jsonl", "full", "full: holds something else; give a new or an empty folder"),
        ("bad.jsonl", "bad.jsonl", "bad.jsonl: File exists"),
    ):
        path = str(tmp_path / source) if (tmp_path / source).exists() else source
        assert message in refused("data", "prepare", path, "--out", str(tmp_path / out), *fixed)
    (tmp_path / "one.txt").write_text("all in one")
    said = refused("data", "prepare", str(tmp_path / "one.txt"), "--out", str(tmp_path / "d"), *fixed)
    assert "1 documents to train on and 0 held out: give more, another --val-fraction than 0.005, or --val" in said


@pytest.mark.parametrize("words", [(), ("prepare",), ("prepare", "x", "--tokenizer", "y"), ("prepares",)])
def test_missing_words_are_one_line(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(("data", *words))
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_help_fits_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(("data", "prepare", "--help"))
    said = capsys.readouterr().out
    assert "usage: ancre data prepare" in said
    assert max(map(len, said.splitlines())) <= 80
