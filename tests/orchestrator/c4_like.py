"""Documents like C4's files hold, and what a folder of shards holds of them."""

from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

from orchestrator.shards import folder as shards
from orchestrator.shards.corpus import Corpus

FILES = 4  # of training text, and one of held-out text
EACH = 60  # documents of a file


def document(side: str, file: int, number: int) -> str:
    return f"{side} {file}, {number}: " + " ".join(f"größer {(number * k) % 97}" for k in range(number % 50))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def texts(folder: Path, side: str) -> list[str]:
    """The documents of a side, decoded."""
    manifest = shards.read(folder)
    corpus = Corpus(folder, getattr(manifest, side), manifest.end)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = []
    for shard in range(len(corpus.side.shards)):
        tokens = corpus.tokens(shard).tolist()
        for start, stop in pairwise(corpus.starts(shard).tolist()):
            assert tokens[stop - 1] == manifest.end
            found.append(tokenizer.decode(tokens[start : stop - 1]))
    return found
