"""GaLore: its state against AdamW's, by arithmetic and as built, and what choosing a subspace costs.

    python tests/benchmarks/galore.py                         # LLaMA-60M, rank 128
    python tests/benchmarks/galore.py --size 130m --rank 256 --threads 2

State: the decoder with ANCRe is built and stepped once from gradients of noise, and what the two optimizers keep is
counted. Subspace: `models.optim.projected.subspace` against a float32 SVD on gradients whose singular values fall as
1 / k, one run each per round, in random order.
"""

from __future__ import annotations

import argparse
from random import Random
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.optim.base import OptimSpec
from models.optim.galore import Spec as GaLore
from models.optim.projected import subspace
from models.topology.ancre import Spec as Ancre


def kept(spec: OptimSpec, size: LlamaSpec) -> int:
    """Numbers that the optimizer of a built decoder keeps after a step, counts of steps left out."""
    network = size.build(Ancre())
    optimizer = spec.build(network)
    for p in network.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()
    tensors = [tensor for state in optimizer.state.values() for tensor in state.values()]
    return sum(tensor.numel() for tensor in tensors if tensor.ndim)


def svd(gradient: Tensor, rank: int) -> Tensor:
    u, _, vh = torch.linalg.svd(gradient, full_matrices=False)
    return vh[:rank] if gradient.shape[0] >= gradient.shape[1] else u[:, :rank]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="60m")
    parser.add_argument("--rank", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    size = LlamaSpec.model_validate({"size": args.size})

    numbers = {}
    for spec in (AdamW(lr=1e-3), GaLore(lr=1e-2, rank=args.rank)):
        said, measured = spec.state_numbers(size.shapes(Ancre())), kept(spec, size)
        numbers[spec.kind] = measured
        print(f"{spec.kind:7} keeps {measured:>13,} numbers, by arithmetic {said:>13,}: {measured == said}")
    print(f"ratio   {numbers['galore'] / numbers['adamw']:.4f} (the same in bytes: one dtype for both)\n")

    for shape in ((size.width, size.width), (size.ffn_width, size.width), (size.width, size.ffn_width)):
        u, _ = torch.linalg.qr(torch.randn(shape[0], min(shape)))
        v, _ = torch.linalg.qr(torch.randn(shape[1], min(shape)))
        gradient = (u / torch.arange(1, min(shape) + 1)) @ v.T
        times: dict[str, list[float]] = {"svd": [], "subspace": []}
        arms = [("svd", svd), ("subspace", subspace)]
        for turn in range(args.rounds):
            for name, arm in Random(turn).sample(arms, 2):
                started = perf_counter()
                arm(gradient, args.rank)
                times[name].append(perf_counter() - started)
        ratios = [a / b for a, b in zip(times["svd"], times["subspace"], strict=True)]
        print(
            f"{shape[0]:5} x {shape[1]:<5} subspace {median(times['subspace']):.3f} s, "
            f"float32 SVD over it {median(ratios):.2f} [{min(ratios):.2f} .. {max(ratios):.2f}]"
        )


if __name__ == "__main__":
    main()
