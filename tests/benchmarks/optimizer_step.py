"""What an optimizer's step of LLaMA-60M costs against AdamW's at once, as medians of interleaved ratios.

    python tests/benchmarks/optimizer_step.py
    python tests/benchmarks/optimizer_step.py --size nano --rank 16 --rounds 30 --threads 2

Gradients are noise, the same for all arms, each of which has a network of its own. GaLore's step is one that keeps its
subspace; `tests/benchmarks/galore.py` has the price of another.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from statistics import median
from time import process_time

import torch
from torch import nn

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.optim.base import OptimSpec
from models.optim.galore import Spec as GaLore
from models.optim.layerwise import LayerwiseSteps
from models.optim.muon import Spec as Muon
from models.optim.rounding import StochasticRounding
from models.topology.ancre import Spec as Ancre

Arm = Callable[[], float]


def arm(size: LlamaSpec, spec: OptimSpec, *, dtype: torch.dtype, layerwise: bool = False, rounded: bool = False) -> Arm:
    """CPU seconds of one step, those of all threads."""
    torch.manual_seed(0)
    network: nn.Module = size.build(Ancre()).to(dtype)
    gradients = [torch.randn_like(p) for p in network.parameters()]
    optimizer = spec.build(network)
    if rounded:
        StochasticRounding(optimizer)
    step = LayerwiseSteps(optimizer).step if layerwise else optimizer.step

    def run() -> float:
        for p, gradient in zip(network.parameters(), gradients, strict=True):
            p.grad = gradient
        started = process_time()
        step()
        return process_time() - started

    run()  # makes the state, and GaLore's subspaces
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="60m")
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    size, adamw = LlamaSpec.model_validate({"size": args.size}), AdamW(lr=1e-4)
    wide, narrow = torch.float32, torch.bfloat16
    arms = {
        "adamw": arm(size, adamw, dtype=wide),
        "adamw, one by one": arm(size, adamw, dtype=wide, layerwise=True),
        "adamw, bf16": arm(size, adamw, dtype=narrow),
        "adamw, bf16, rounded": arm(size, adamw, dtype=narrow, rounded=True),
        "adamw, bf16, rounded, one by one": arm(size, adamw, dtype=narrow, layerwise=True, rounded=True),
        "galore": arm(size, GaLore(lr=1e-4, rank=args.rank), dtype=wide),
        "muon": arm(size, Muon(lr=1e-4), dtype=wide),
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(args.rounds):
        for name in Random(turn).sample([*arms], len(arms)):
            times[name].append(arms[name]())
    for name, seconds in times.items():
        ratios = [a / b for a, b in zip(seconds, times["adamw"], strict=True)]
        print(f"{name:33} {median(seconds):7.3f} s  {median(ratios):6.2f} [{min(ratios):.2f} .. {max(ratios):.2f}]")


if __name__ == "__main__":
    main()
