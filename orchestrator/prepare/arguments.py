"""What `ancre data prepare` takes on the command line. It imports nothing, as `ancre --help` waits for it."""

import argparse
from collections.abc import Callable
from pathlib import Path


def prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of the command."""
    parser.description = (
        "Tokenize text once, into shards that trials share: a study reads them with data = { kind = 'shards', "
        "path = DIR }. With --vae, encode pictures once: images = { kind = 'latents', path = DIR }. "
        "Killed at any moment and started again, it goes on to the same bytes."
    )
    parser.epilog = (
        "example: ancre data prepare c4 --tokenizer t5-base --out c4-t5; or, from C4's own files: ancre data prepare "
        "'en/c4-train.*.json.gz' --val 'en/c4-validation.*.json.gz' --tokenizer tokenizer.json --out c4-t5; "
        "pictures: ancre data prepare imagenet --images imagenet/train --vae sd-vae-ft-ema --flips --out imagenet-256"
    )
    add = parser.add_argument
    add(
        "source",
        metavar="SOURCE",
        help="c4; another dataset's name on the Hugging Face hub; or a file, folder or quoted pattern of .txt, .jsonl, "
        ".jsonl.gz, .json.gz (JSON lines) and .parquet. Of pictures: imagenet (ILSVRC/imagenet-1k), another name on "
        "the hub, or a path as of --images",
    )
    add("--out", required=True, type=Path, metavar="DIR", help="the folder of shards")
    add("--config", help="of a dataset on the hub (c4: en)")
    add("--split", help="of a dataset on the hub, to train on (default: train)")
    add(
        "--workers", type=_count, metavar="N", help="processes that tokenize, threads that decode (default: one a core)"
    )
    _text(parser.add_argument_group("text").add_argument)
    _pictures(parser.add_argument_group("pictures").add_argument)


def _text(add: Callable[..., object]) -> None:
    add(
        "--tokenizer",
        metavar="T",
        help="bpe: learned from the text; a tokenizer.json; or a name on the hub, such as t5-base",
    )
    add("--vocab-size", type=_count, metavar="N", help="tokens that bpe learns")
    add("--val", metavar="V", help="held-out text: a path, or a split on the hub (c4: validation)")
    add(
        "--val-fraction",
        type=float,
        metavar="F",
        help="without --val: this share of the documents, picked by the hash of their text (default: 0.005)",
    )
    add("--column", help="where the text is (default: text)")
    add("--limit", type=_count, metavar="N", help="for a trial: at most N documents of --val, and of the rest")
    add("--limit-tokens", type=_count, metavar="N", help="the same in tokens")
    add(
        "--shard-tokens",
        type=_count,
        metavar="N",
        help="tokens of a shard, which are what a killed run repeats at most (default: 67108864)",
    )


def _pictures(add: Callable[..., object]) -> None:
    add(
        "--vae",
        metavar="PATH",
        help="a folder of diffusers' AutoencoderKL, or its name on the hub: stabilityai/sd-vae-ft-ema",
    )
    add(
        "--images",
        metavar="PATH",
        help="where the pictures are, if not on the hub: DIR of DIR/CLASS/PICTURE, .parquet, or WebDataset .tar",
    )
    add("--image-size", type=_count, metavar="N", help="side of the square in the middle (default: 256)")
    add("--flips", action="store_const", const=True, help="encode mirror images too; training meets either")
    add(
        "--faulty", choices=["refuse", "skip"], help="unreadable pictures, which are named either way (default: refuse)"
    )
    add("--latent-channels", type=_count, metavar="N", help="which the model reads (default: 4)")
    add("--image-column", metavar="NAME", help="of parquet and the hub (default: image)")
    add("--label-column", metavar="NAME", help="of parquet and the hub (default: label)")
    add(
        "--shard-images",
        type=_count,
        metavar="N",
        help="images of a shard, which are what a killed run repeats at most (default: 4096)",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**62:
        raise argparse.ArgumentTypeError(f"should be a whole number of at least 1, got {text!r}")
    return int(text)
