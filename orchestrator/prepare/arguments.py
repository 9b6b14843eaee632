"""What `ancre data prepare` takes on the command line. It imports nothing, as `ancre --help` waits for it."""

import argparse
from pathlib import Path


def prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of the command."""
    parser.description = (
        "Tokenize text once, into shards that trials share: a study reads them with data = { kind = 'shards', "
        "path = DIR }. Killed at any moment and started again, it goes on to the same bytes."
    )
    parser.epilog = (
        "example: ancre data prepare c4 --tokenizer t5-base --out c4-t5; or, from C4's own files: ancre data prepare "
        "'en/c4-train.*.json.gz' --val 'en/c4-validation.*.json.gz' --tokenizer tokenizer.json --out c4-t5"
    )
    add = parser.add_argument
    add(
        "source",
        metavar="SOURCE",
        help="c4; another dataset's name on the Hugging Face hub; or a file, folder or quoted pattern of .txt, .jsonl, "
        ".jsonl.gz, .json.gz (JSON lines) and .parquet",
    )
    add(
        "--tokenizer",
        required=True,
        metavar="T",
        help="bpe: learned from the text; a tokenizer.json; or a name on the hub, such as t5-base",
    )
    add("--out", required=True, type=Path, metavar="DIR", help="the folder of shards")
    add("--vocab-size", type=_count, metavar="N", help="tokens that bpe learns")
    add("--val", metavar="V", help="held-out text: a path, or a split on the hub (c4: validation)")
    add(
        "--val-fraction",
        type=float,
        metavar="F",
        help="without --val: this share of the documents, picked by the hash of their text (default: 0.005)",
    )
    add("--column", help="where the text is (default: text)")
    add("--config", help="of a dataset on the hub (c4: en)")
    add("--split", help="of a dataset on the hub, to train on (default: train)")
    add("--limit", type=_count, metavar="N", help="for a trial: at most N documents of --val, and of the rest")
    add("--limit-tokens", type=_count, metavar="N", help="the same in tokens")
    add(
        "--shard-tokens",
        type=_count,
        metavar="N",
        help="tokens of a shard, which are what a killed run repeats at most (default: 67108864)",
    )
    add("--workers", type=_count, metavar="N", help="processes (default: one a core)")


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**62:
        raise argparse.ArgumentTypeError(f"should be a whole number of at least 1, got {text!r}")
    return int(text)
