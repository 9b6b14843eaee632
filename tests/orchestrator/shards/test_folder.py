"""A folder of shards under damage, and trials that ask for something else than it holds."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from orchestrator.data.files import Spec as Files
from orchestrator.data.shards import Spec as Shards
from orchestrator.errors import InputError
from orchestrator.pretrain.spec import TextSpec
from orchestrator.pretrain.tokens import prepare
from orchestrator.shards import folder as shards

VOCABULARY = 300
DOCUMENTS = [f"Document {n}, größer than nothing: {'word ' * n}" for n in range(40)]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Shards of forty documents."""
    place = tmp_path_factory.mktemp("made")
    (place / "a.jsonl").write_text("".join(f"{json.dumps({'text': document})}\n" for document in DOCUMENTS))
    prepare(Files(path=str(place)), TextSpec(), VOCABULARY, place / "cache")
    (folder,) = (place / "cache" / "shards").iterdir()
    return folder


@pytest.fixture
def folder(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "shards"))


def opened(folder: Path, tmp_path: Path, vocabulary: int = VOCABULARY, **text):
    return prepare(Shards(path=str(folder)), TextSpec(**text), vocabulary, tmp_path / "cache")


def test_shards_hold_the_documents_and_give_the_same_split(made, folder, tmp_path):
    split = opened(folder, tmp_path)
    train = list(Shards(path=str(folder)).documents())
    assert len(train) == split.train.side.documents == 40 - split.held_out.side.documents
    assert set(train) < set(DOCUMENTS)
    assert split.key == opened(made, tmp_path).key  # by content, not by place
    assert Shards(path=str(folder)).fingerprint() == Shards(path=str(made)).fingerprint()


def test_the_tokenizer_is_the_shards_own(folder, tmp_path):
    own = tmp_path / "same.json"
    shutil.copy(folder / shards.TOKENIZER, own)
    opened(folder, tmp_path, tokenizer=str(own))
    other = tmp_path / "other.json"
    changed = Tokenizer.from_file(str(own))
    changed.add_special_tokens(["<more>"])
    changed.save(str(other))
    for choice in (str(other), "t5-base", str(tmp_path / "none.json")):
        with pytest.raises(InputError, match=r"text\.tokenizer: .* was tokenized with 'bpe', not '") as caught:
            opened(folder, tmp_path, tokenizer=choice)
        assert "\n" not in str(caught.value)


def test_other_choices_that_cannot_hold_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match=r"bpe has 300 tokens; model\.vocab_size must be at least that, it is 299"):
        opened(folder, tmp_path, 299)
    with pytest.raises(InputError, match=r"text\.val_fraction 0\.2: .* is split already; leave it out"):
        opened(folder, tmp_path, val_fraction=0.2)


def test_places_without_shards(tmp_path):
    with pytest.raises(InputError, match=r"data\.path: '.*none' does not exist \(looked from "):
        opened(tmp_path / "none", tmp_path)
    with pytest.raises(InputError, match=r"no manifest\.json in it: not a folder of shards, or one that `ancre data"):
        opened(tmp_path, tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read: Not a directory"):
        opened(tmp_path / "file", tmp_path)


def change(**fields):
    def apply(folder: Path) -> None:
        content = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(content | fields))

    return apply


def other_name(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("train/00000.tokens.npy", "train/../../secret.npy"))


MANIFESTS = {
    "empty": lambda folder: (folder / "manifest.json").write_bytes(b""),
    "cut": lambda folder: os.truncate(folder / "manifest.json", 200),
    "no JSON": lambda folder: (folder / "manifest.json").write_bytes(b"\xff\x00"),
    "a list": lambda folder: (folder / "manifest.json").write_text("[1]"),
    "nested": lambda folder: (folder / "manifest.json").write_text("[" * 100_000),
    "another end": change(end=7),
    "another type": change(train=7),
    "no checksum": lambda folder: (folder / "manifest.json").write_text("{}"),
    "a file elsewhere": other_name,
}


def test_a_folder_of_something_else_is_not_called_damaged(folder):
    change(format="images 1")(folder)
    with pytest.raises(InputError, match=r"of the format 'images 1'; wanted is 1: .* holds something else$"):
        shards.read(folder)


@pytest.mark.parametrize("damage", MANIFESTS.values(), ids=MANIFESTS)
def test_a_corrupt_manifest_is_named(folder, tmp_path, damage):
    damage(folder)
    with pytest.raises(
        InputError, match=r"manifest\.json: damaged .*; restore it, or delete .* and make it anew"
    ) as caught:
        opened(folder, tmp_path)
    assert "\n" not in str(caught.value)


FILES = ["train/00000.tokens.npy", "train/00000.starts.npy", "validation/00000.tokens.npy"]


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 1))


DAMAGE = {
    "truncated: \\d+ bytes of \\d+": lambda file: os.truncate(file, file.stat().st_size - 1),
    "truncated: 0 bytes of \\d+": lambda file: os.truncate(file, 0),
    "changed: \\d+ bytes of \\d+": lambda file: os.truncate(file, file.stat().st_size + 1),
    "cannot be read: No such file": Path.unlink,
    "changed since it was written \\(its SHA-256 differs\\)": flip,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("message", DAMAGE)
@pytest.mark.parametrize("known", [True, False], ids=["used before", "never used"])
def test_a_damaged_shard_is_named(folder, tmp_path, name, message, known):
    if known:
        opened(folder, tmp_path)
    DAMAGE[message](folder / name)
    with pytest.raises(InputError, match=f"{name}: {message}") as caught:
        opened(folder, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_is_hashed_once_until_it_is_touched(folder, tmp_path, monkeypatch):
    hashed = []
    check = shards._check_hash
    monkeypatch.setattr(shards, "_check_hash", lambda folder, file: (hashed.append(file.name), check(folder, file)))
    for _ in range(3):
        opened(folder, tmp_path)
    assert len(hashed) == len(set(hashed)) == 4
    os.utime(folder / FILES[0])
    opened(folder, tmp_path)
    assert hashed[4:] == [FILES[0]]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"train/00000.tokens.npy": 1}'])
def test_a_damaged_record_of_what_was_hashed_is_made_anew(folder, tmp_path, content):
    opened(folder, tmp_path)
    (record,) = (tmp_path / "cache" / "checked").iterdir()
    record.write_bytes(content)
    opened(folder, tmp_path)
    assert len(json.loads(record.read_bytes())) == 4
