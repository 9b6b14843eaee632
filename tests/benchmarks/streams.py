"""What topologies that are no weighted sums cost: a LLaMA training step against the cascaded one, interleaved.

    python tests/benchmarks/streams.py                       # every kind, width 512, 2 threads
    python tests/benchmarks/streams.py --kind mhc --rounds 40 --clock cpu --threads 1

A step is forward, loss, backward and AdamW of LLaMA-60M's sizes (width 512, 8 blocks, vocabulary 32000) in float32 on
`--batch` sequences of 256. Every arm takes one step per round, in random order. Ratios are of the same round.
The paper's ratios of throughput on an H100 (Table 6, 350M): HC 2.3x, mHC 3.0x the cascaded network's time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from statistics import median
from time import perf_counter, process_time

import torch
from torch.nn.functional import cross_entropy

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.topology import (
    ancre,
    attention_residual,
    cascaded,
    denseformer,
    hyper_connections,
    layerscale,
    mhc,
    rezero,
)
from models.topology.base import TopologySpec

CLOCKS = {"wall": perf_counter, "cpu": process_time}
KINDS: dict[str, TopologySpec] = {
    "hyper-connections": hyper_connections.Spec(),
    "mhc": mhc.Spec(),
    "mhc, all streams": mhc.Spec(weights_from="all-streams"),
    "ancre": ancre.Spec(),
    "denseformer": denseformer.Spec(),
    "attention-residual": attention_residual.Spec(),
    "attention-residual, 4 groups": attention_residual.Spec(groups=4),
    "rezero": rezero.Spec(),
    "layerscale": layerscale.Spec(),
}


def training_step(topology: TopologySpec, text: torch.Tensor) -> Callable[[], None]:
    torch.manual_seed(0)
    network = LlamaSpec(size="60m").build(topology)
    optimizer = AdamW(lr=1e-3).build(network)

    def step() -> None:
        logits = network(text[:, :-1])
        cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for a busy machine, with 1 thread")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = CLOCKS[options.clock]
    text = torch.randint(32000, (options.batch, 257), generator=torch.Generator().manual_seed(0))
    chosen = {"cascaded": cascaded.Spec()} | {kind: KINDS[kind] for kind in options.kind or KINDS}
    arms = {kind: training_step(topology, text) for kind, topology in chosen.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in arms}
    order = Random(0)
    for turn in range(options.rounds + 1):
        for kind in order.sample(list(arms), len(arms)):
            began = clock()
            arms[kind]()
            if turn:  # the first warms up
                seconds[kind].append(clock() - began)
    print(f"torch {torch.__version__}, {options.threads} threads, batch {options.batch} x 256, {options.rounds} rounds")
    for kind, took in seconds.items():
        ratios = sorted(a / b for a, b in zip(took, seconds["cascaded"], strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"  {kind:28s} {median(took) * 1e3:8.1f} ms   ratio {median(ratios):.3f} (quartiles {low:.3f}, {high:.3f})"
        )


if __name__ == "__main__":
    main()
