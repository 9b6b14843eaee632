"""The Hugging Face hub: the same code on a local copy of a dataset, and what is said without a network."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from c4_like import EACH, FILES, content, document, texts

from orchestrator.errors import InputError
from orchestrator.prepare.run import prepare
from orchestrator.prepare.settings import Settings
from orchestrator.prepare.sources import Hub, sources


def of_hub(source: Path, tokenizer: Path, **more) -> Settings:
    """`datasets` takes a folder as a dataset's name; Settings would take it for files."""
    fields = {"source": "owner/name", "tokenizer": str(tokenizer), "shard_tokens": 1500, "val": "validation"} | more
    return Settings(**fields)


@pytest.fixture
def streamed(source, monkeypatch) -> None:
    """The dataset owner/name is the folder of files."""
    import datasets

    load = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", lambda name, *args, **more: load(str(source), *args, **more))


def test_a_dataset_is_streamed_in_order(streamed, source, tokenizer, tmp_path):
    prepare(of_hub(source, tokenizer), tmp_path, 1)
    assert texts(tmp_path, "train") == [document("train", file, n) for file in range(FILES) for n in range(EACH)]
    assert texts(tmp_path, "validation") == [document("validation", 0, n) for n in range(EACH)]


def test_its_files_are_parts_so_a_resumed_run_reads_on_from_one(streamed, source, tokenizer, tmp_path, monkeypatch):
    settings = of_hub(source, tokenizer)
    prepare(settings, tmp_path / "whole", 1)
    read: list[tuple[str, int]] = []
    documents = Hub.documents

    def breaking(self, part):
        read.append((self.split, part))
        for number, text in enumerate(documents(self, part)):
            if part == 2 and number == 30 and len(read) == 4:  # once
                raise InputError("gone")
            yield text

    monkeypatch.setattr(Hub, "documents", breaking)
    with pytest.raises(InputError, match="gone"):
        prepare(settings, tmp_path / "broken", 1)
    assert read == [("validation", 0), ("train", 0), ("train", 1), ("train", 2)]
    prepare(settings, tmp_path / "broken", 1)
    assert ("train", 0) not in read[4:]
    assert read[-2:] == [("train", 2), ("train", 3)]
    assert content(tmp_path / "broken") == content(tmp_path / "whole")


def test_faults_of_a_dataset_are_one_line(streamed, source, tokenizer, tmp_path):
    for more, message in (
        ({"split": "tset"}, "owner/name tset: ValueError: Bad split: tset. Available splits: ['train', 'validation']"),
        ({"config": "xx"}, "owner/name xx validation: ValueError: BuilderConfig 'xx' not found"),
        ({"column": "txt"}, "owner/name validation: no column 'txt' (there are: text, url)"),
    ):
        with pytest.raises(InputError) as caught:
            prepare(of_hub(source, tokenizer, **more), tmp_path / message[:15], 1)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_reading_that_fails_on_the_way_says_that_it_can_go_on(source, tokenizer, tmp_path, monkeypatch):
    import datasets

    def failing(*args, **more):
        def rows(broken):
            yield {"text": "x"}
            raise OSError("connection reset")

        return datasets.IterableDataset.from_generator(rows, gen_kwargs={"broken": [1]})

    monkeypatch.setattr(datasets, "load_dataset", failing)
    with pytest.raises(
        InputError, match=r"owner/name validation: cannot be read on \(.*connection reset.*\); the same"
    ):
        prepare(of_hub(source, tokenizer), tmp_path, 1)


def test_c4_is_its_english_part():
    settings = Settings(source="c4", tokenizer="t5-base")
    assert sources(settings) == {
        "validation": Hub("allenai/c4", "en", "validation", "text"),
        "train": Hub("allenai/c4", "en", "train", "text"),
    }
    german = sources(Settings(source="c4", config="de", tokenizer="t5-base"))
    assert german["train"] == Hub("allenai/c4", "de", "train", "text")
    assert list(sources(Settings(source="owner/name", tokenizer="t5-base"))) == ["both"]


def run(*words: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "orchestrator", "data", "prepare", *words]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"} | environment
    done = subprocess.run(command, capture_output=True, text=True, env=offline, check=False)
    return done.returncode, done.stderr


def test_without_a_network_it_says_which_files_to_give(tokenizer, tmp_path):
    out = ["--out", str(tmp_path / "out"), "--workers", "1"]
    code, said = run("c4", "--tokenizer", str(tokenizer), *out)
    assert (code, said.count("\n")) == (2, 1)
    assert "allenai/c4: the Hugging Face hub cannot be reached; give its files instead, from the folder en/ of " in said
    assert "`ancre data prepare 'c4/en/c4-train.*.json.gz' --val 'c4/en/c4-validation.*.json.gz' ..`" in said
    code, said = run("owner/name", "--tokenizer", str(tokenizer), *out)
    assert (code, said.count("\n")) == (2, 1)
    assert "give its files instead: `ancre data prepare FOLDER ..`" in said
    (tmp_path / "a.txt").write_text("x")
    code, said = run(str(tmp_path / "a.txt"), "--tokenizer", "t5-base", *out)
    assert (code, said.count("\n")) == (2, 1)
    assert "--tokenizer t5-base: the Hugging Face hub cannot be reached; give the file instead: --tokenizer tok" in said
    assert "https://huggingface.co/t5-base/resolve/main/tokenizer.json" in said


def test_a_tokenizer_of_the_hub_comes_from_its_cache(source, tokenizer, tmp_path):
    snapshot = tmp_path / "hub" / "models--owner--name" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0" * 40)
    words = [str(source), "--tokenizer", "owner/name", "--out", str(tmp_path / "out"), "--val-fraction", "0.1"]
    assert run(*words, "--workers", "1", HF_HUB_CACHE=str(tmp_path / "hub"))[0] == 0
    copied = (tmp_path / "out" / "tokenizer.json").read_bytes()
    assert sha256(copied).digest() == sha256(tokenizer.read_bytes()).digest()
