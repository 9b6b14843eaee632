"""What putting batches together costs, from shards on disk: tokens a second, and the share of a LLaMA-60M step.

    python tests/benchmarks/loader.py                      # both packings, 1 core, shards in the page cache
    python tests/benchmarks/loader.py --tokens 3e8 --batch 64 --mean 40

The corpus is random tokens in documents of geometric length (mean 465, as C4 in T5's tokens). Steps are read in order
through `Loader`, as in training; the first is left out, the shuffling of a new group of blocks (`group`, once in
256 blocks) is measured by itself and spread over the steps of the group. The share of a step is against --step-rate,
the tokens a second that training reaches on its device; by default one measured step of LLaMA-60M here.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

from orchestrator.pretrain.loader import Loader
from orchestrator.pretrain.sequences import PAD, Packing, Stream
from orchestrator.shards.corpus import Corpus
from orchestrator.shards.folder import Side
from orchestrator.shards.writer import Writer


def corpus(folder: Path, tokens: int, mean: int, shard: int) -> Corpus:
    random, writer, shards = np.random.default_rng(0), Writer(folder, "train"), []
    for _ in range(0, tokens, shard):
        lengths = random.geometric(1 / mean, min(tokens, shard) // mean) + 1
        writer.add(random.integers(1, 32000, lengths.sum(), np.uint16), lengths)
        shards += writer.write()
    return Corpus(folder, Side.of(shards), 0)


def measure(text: Corpus, packing: Packing, batch: int, steps: int, step_rate: float) -> None:
    stream = Stream(text, 256, packing, seed=42)
    began = perf_counter()
    stream.windows(0, 1)
    group = perf_counter() - began
    loader = Loader(stream, batch)
    loader.windows(0)
    busy, wall, tokens, predicted = process_time(), perf_counter(), 0, 0
    for step in range(1, steps + 1):
        rows = loader.windows(step)
        tokens, predicted = tokens + rows[:, 1:].size, predicted + loader.predictions(step)
    busy, wall = process_time() - busy, perf_counter() - wall
    loader.close()
    windows = len(stream.text) / batch  # steps of a group
    seconds = busy / steps + group / windows  # of a core, a step
    assert predicted and int((rows[:, 1:] != PAD).sum()) <= rows[:, 1:].size
    print(
        f"{packing:7s} {tokens / steps / seconds / 1e6:7.1f} M tokens/s a core ({predicted / steps / seconds / 1e6:.1f}"
        f" M without padding), {tokens / wall / 1e6:.1f} M by the clock; group {group * 1e3:.0f} ms a {windows:,.0f}"
        f" steps; {seconds * step_rate / (tokens / steps):.3%} of a step at {step_rate:,.0f} tokens/s"
    )


def llama_rate() -> float:
    """Tokens a second of one training step of LLaMA-60M, cascaded, float32, on this machine."""
    import torch

    from models.llama_spec import LlamaSpec
    from models.optim.adamw import Spec as AdamW
    from models.topology.cascaded import Spec as Cascaded

    network = LlamaSpec(size="60m").build(Cascaded())
    optimizer = AdamW(lr=1e-3).build(network)
    windows = torch.randint(0, 32000, (4, 257))
    for _ in range(2):
        began = perf_counter()
        logits = network(windows[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).backward()
        optimizer.step()
        seconds = perf_counter() - began
    return windows[:, 1:].numel() / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=float, default=3e8)
    parser.add_argument("--mean", type=int, default=465, help="tokens of a document")
    parser.add_argument("--shard", type=int, default=2**26, help="tokens of a shard")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-rate", type=float, help="tokens a second of training (default: measured here)")
    options = parser.parse_args()
    rate = options.step_rate or llama_rate()
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as folder:
        text = corpus(Path(folder), int(options.tokens), options.mean, options.shard)
        for packing in ("none", "concat"):
            measure(text, packing, options.batch, options.steps, rate)


if __name__ == "__main__":
    main()
