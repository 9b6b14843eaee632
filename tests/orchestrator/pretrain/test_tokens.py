"""Tokens: nothing of the text is lost, held-out text stays out, and the cache can be shared."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from orchestrator.data.files import Spec as Files
from orchestrator.errors import InputError
from orchestrator.pretrain.spec import TextSpec
from orchestrator.pretrain.tokens import prepare
from orchestrator.shards.corpus import Corpus

VOCABULARY = 300


def corpus(folder: Path, *documents: str) -> Files:
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text("".join(f"{json.dumps({'text': document})}\n" for document in documents))
    return Files(path=str(folder))


def numbered(count: int) -> list[str]:
    return [f"Document {n}, größer than nothing: {'word ' * n}" for n in range(count)]


def decoded(side: Corpus, tokenizer: Tokenizer) -> list[str]:
    ids = ids_of(side)
    assert all(document[-1] == side.end and side.end not in document[:-1] for document in ids)
    return [tokenizer.decode(document[:-1]) for document in ids]


def ids_of(side: Corpus) -> list[list[int]]:
    return [side.tokens(0)[start:stop].tolist() for start, stop in pairwise(side.starts(0))]


def both(split, cache: Path) -> tuple[list[str], list[str]]:
    (file,) = (cache / "tokenizers").iterdir()
    tokenizer = Tokenizer.from_file(str(file))
    return decoded(split.train, tokenizer), decoded(split.held_out, tokenizer)


def test_the_two_sides_hold_every_document_whole(tmp_path):
    documents = numbered(50)
    split = prepare(corpus(tmp_path / "data", *documents), TextSpec(val_fraction=0.2), VOCABULARY, tmp_path)
    train, held_out = both(split, tmp_path)
    assert sorted(train + held_out) == sorted(documents)
    assert 3 <= len(held_out) <= 20
    assert split.train.tokens(0).dtype == np.uint16
    assert split.train.tokens(0).max() < VOCABULARY


def test_a_document_keeps_its_side_when_others_come_or_move(tmp_path):
    text = TextSpec(val_fraction=0.2)
    few, many = tmp_path / "few", tmp_path / "many"
    before = both(prepare(corpus(tmp_path / "data", *numbered(30)), text, VOCABULARY, few), few)
    after = both(prepare(corpus(tmp_path / "data", *reversed(numbered(50))), text, VOCABULARY, many), many)
    assert set(before[0]) <= set(after[0])
    assert set(before[1]) <= set(after[1])
    assert [document for document in after[1] if document in before[1]] == before[1]  # by hash, not by place


def test_a_few_documents_still_leave_one_held_out(tmp_path):
    split = prepare(corpus(tmp_path / "data", *numbered(3)), TextSpec(val_fraction=1e-6), VOCABULARY, tmp_path)
    assert split.held_out.side.documents == 1
    assert split.train.side.documents == 2


def test_the_tokenizer_learns_from_training_documents_alone(tmp_path):
    words = ["alphabet", "quetzal", "zyzzyva", "mountain", "djembe", "syzygy", "hockey", "vortex", "pumpkin", "lynx"]
    data = corpus(tmp_path / "data", *(f"{f' {word}' * 50}" for word in words))
    train, held_out = both(prepare(data, TextSpec(val_fraction=0.4), 500, tmp_path), tmp_path)
    (file,) = (tmp_path / "tokenizers").iterdir()
    learned = Tokenizer.from_file(str(file)).get_vocab()
    assert all(f"Ġ{document.split()[0]}" in learned for document in train)
    assert not any(f"Ġ{document.split()[0]}" in learned for document in held_out)


def test_the_same_content_is_made_once_and_other_content_anew(tmp_path):
    data, text = corpus(tmp_path / "data", *numbered(20)), TextSpec()
    first = prepare(data, text, VOCABULARY, tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*") if "data" not in path.parts}
    assert prepare(data, text, VOCABULARY, tmp_path).key == first.key
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert prepare(data, text, VOCABULARY - 30, tmp_path).key != first.key
    assert prepare(data, TextSpec(val_fraction=0.5), VOCABULARY, tmp_path).key != first.key
    assert prepare(corpus(tmp_path / "data", *numbered(21)), text, VOCABULARY, tmp_path).key != first.key


def test_processes_that_prepare_at_once_agree(tmp_path):
    corpus(tmp_path / "data", *numbered(200))
    code = (
        "import sys; from pathlib import Path; from orchestrator.data.files import Spec;"
        "from orchestrator.pretrain.spec import TextSpec; from orchestrator.pretrain.tokens import prepare;"
        "print('ready', flush=True); sys.stdin.readline();"
        "print(prepare(Spec(path=sys.argv[1]), TextSpec(), 400, Path(sys.argv[2])).train.tokens(0).sum())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data"), str(tmp_path / "cache")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 3
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate() for process in processes]
    assert len({out for out, _ in answers}) == 1, answers
    assert all(process.returncode == 0 for process in processes), answers
    assert len(list((tmp_path / "cache" / "shards").iterdir())) == 1  # and no half-made folder


def word_tokenizer(file: Path, *words: str) -> TextSpec:
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(file))
    return TextSpec(tokenizer=str(file), val_fraction=0.4)


def test_a_tokenizer_by_path(tmp_path):
    text = word_tokenizer(tmp_path / "own.json", "?", "</s>", "one", "two")
    data = corpus(tmp_path / "data", "one two one", "two three", "one", "two")
    split = prepare(data, text, 4, tmp_path)
    documents = ids_of(split.train) + ids_of(split.held_out)
    assert sorted(documents) == [[2, 1], [2, 3, 2, 1], [3, 0, 1], [3, 1]]
    assert split.train.end == 1


def test_faults_are_one_line(tmp_path):
    data = corpus(tmp_path / "data", *numbered(9))

    def refused(text: TextSpec, message: str, *, source: Files = data, vocabulary: int = 3) -> None:
        with pytest.raises(InputError, match=message) as caught:
            prepare(source, text, vocabulary, tmp_path)
        assert "\n" not in str(caught.value)

    (tmp_path / "bad.json").write_text("{}")
    refused(
        TextSpec(tokenizer=str(tmp_path / "none.json")), r"text.tokenizer: '.*none.json' cannot be read: No such file"
    )
    refused(TextSpec(tokenizer=str(tmp_path)), "text.tokenizer: .* cannot be read: Is a directory")
    refused(TextSpec(tokenizer=str(tmp_path / "bad.json")), "bad.json is no tokenizer.json")
    refused(word_tokenizer(tmp_path / "a.json", "?", "one"), "no token that ends a document; looked for <eos>, </s>")
    refused(
        word_tokenizer(tmp_path / "b.json", "?", "</s>", "one", "two"),
        "b.json has 4 tokens; model.vocab_size must be at least that, it is 3",
    )
    Tokenizer(models.WordLevel({"</s>": 0})).save(str(tmp_path / "c.json"))
    refused(
        TextSpec(tokenizer=str(tmp_path / "c.json")), "c.json cannot encode the documents: WordLevel error: Missing"
    )
    refused(TextSpec(tokenizer="a\0b"), r"text.tokenizer: 'a\\x00b' cannot be read: No such file")
    refused(TextSpec(tokenizer="x" * 5000), r"text.tokenizer: 'xxx.* cannot be read: No such file")
    single = corpus(tmp_path / "single", "all in one")
    refused(TextSpec(), "1 document cannot be split into training and held-out text", source=single, vocabulary=300)


def test_a_document_that_spells_a_special_token_is_text(tmp_path):
    split = prepare(corpus(tmp_path / "data", "one <eos> two", "<eos>", *numbered(9)), TextSpec(), 300, tmp_path)
    (file,) = (tmp_path / "tokenizers").iterdir()
    for side in (split.train, split.held_out):
        assert all(side.end not in document[:-1] for document in ids_of(side))
    assert Tokenizer.from_file(str(file)).encode("<eos>").ids == [split.train.end]


def test_unused_special_tokens_need_no_row_of_the_embedding(tmp_path):
    """As the 100 sentinels of T5, above its 32,000 tokens."""
    file = tmp_path / "own.json"
    tokenizer = Tokenizer(models.WordLevel({"?": 0, "</s>": 1, "one": 2, "two": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<extra_1>", "<extra_0>"])
    tokenizer.save(str(file))
    text = TextSpec(tokenizer=str(file), val_fraction=0.4)
    split = prepare(corpus(tmp_path / "data", "one <extra_0>", "two two", "one", "two"), text, 4, tmp_path)
    assert max(map(max, ids_of(split.train) + ids_of(split.held_out))) == 3
    with pytest.raises(InputError, match=r"has 4 tokens; model\.vocab_size must be at least that, it is 3"):
        prepare(corpus(tmp_path / "data", "one", "two"), text, 3, tmp_path)


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY"])
def test_a_damaged_cache_is_named(tmp_path, damage):
    data = corpus(tmp_path / "data", *numbered(9))
    prepare(data, TextSpec(), VOCABULARY, tmp_path)
    (file,) = tmp_path.rglob("train/00000.tokens.npy")
    file.write_bytes(damage or file.read_bytes()[:-10])
    with pytest.raises(InputError, match=r"tokens.npy: truncated: \d+ bytes of \d+; .*delete .* and make it anew"):
        prepare(data, TextSpec(), VOCABULARY, tmp_path)
