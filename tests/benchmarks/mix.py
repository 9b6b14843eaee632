"""What mixing costs: forward + backward of ANCRe against the cascaded network, as medians of interleaved ratios.

    python tests/benchmarks/mix.py              # the set-ups below
    python tests/benchmarks/mix.py --case llama --rounds 60 --threads 2

llama: the 8 blocks of LLaMA-60M (width 512, FFN 1376, 8 heads), batch 2 x 256 positions; no embedding, no head.
mlp:   64 blocks of the paper's reinforcement-learning networks (section 5.3), batch 512: each a 4-layer MLP of width
       256, 4 times (linear, layer norm, SiLU).
bare-mlp: the same without the layer norms, where the mix weighs more.

Every arm runs the same block modules on the same input, one run each per round, in random order: a run inherits the
allocator's and the caches' state from the one before. `loop` is the term-by-term sum under autograd; `plain` is the
cascaded network as a loop over blocks, without `Stack`.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from random import Random
from statistics import median
from time import perf_counter, process_time

import torch
from torch import Tensor, nn

from models.llama import Block, rotation
from models.llama_spec import LlamaSpec
from models.mixing import Mix
from models.stack import Stack
from models.topology import ancre, cascaded

Forward = Callable[[Tensor], Tensor]
CLOCKS = {"wall": perf_counter, "cpu": process_time}


def llama() -> tuple[list[nn.Module], Tensor, tuple[Tensor, ...]]:
    spec = LlamaSpec(width=512, ffn_width=1376, depth=8, heads=8)
    return [Block(spec) for _ in range(8)], torch.randn(2, 256, 512), rotation(256, 64, 1e4, torch.device("cpu"))


def mlp(norm: bool = True) -> tuple[list[nn.Module], Tensor, tuple[Tensor, ...]]:
    def layer() -> list[nn.Module]:
        return [nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU()] if norm else [nn.Linear(256, 256), nn.SiLU()]

    blocks: list[nn.Module] = [nn.Sequential(*layer(), *layer(), *layer(), *layer()) for _ in range(64)]
    return blocks, torch.randn(512, 256), ()


CASES = {"llama": llama, "mlp": mlp, "bare-mlp": partial(mlp, norm=False)}


def term_by_term(blocks: list[nn.Module], topology: Mix, args: tuple[Tensor, ...]) -> Forward:
    """The mix as autograd would do it: one product and one sum for every pair of states."""

    def forward(x: Tensor) -> Tensor:
        weights, states = topology.total("branch"), [x]
        for j, block in enumerate(blocks, 1):
            h = block(states[-1], *args)
            for i, state in enumerate(states):
                h = h + weights[i, j] * state
            states.append(h)
        return states[-1]

    return forward


def plain_loop(blocks: list[nn.Module], args: tuple[Tensor, ...]) -> Forward:
    def forward(x: Tensor) -> Tensor:
        for block in blocks:
            x = x + block(x, *args)
        return x

    return forward


def step(forward: Forward, x: Tensor, g: Tensor, clock: Callable[[], float]) -> float:
    """Seconds of one forward and backward."""
    began = clock()
    forward(x).backward(g)
    return clock() - began


def peak(forward: Forward, x: Tensor, g: Tensor) -> int:
    """Bytes allocated at the peak of one forward and backward, by the allocator's own record."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        forward(x).backward(g)
    events = profile.profiler.kineto_results.events()
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


def measure(case: str, rounds: int, clock: Callable[[], float]) -> None:
    torch.manual_seed(0)
    blocks, x, args = CASES[case]()
    depth, width = len(blocks), x.shape[-1]
    x.requires_grad_()
    g = torch.randn_like(x)
    stacks = {spec.kind: Stack(blocks, spec, width=width, returns="branch") for spec in (cascaded.Spec(), ancre.Spec())}
    arms: dict[str, Forward] = {kind: (lambda x, stack=stack: stack(x, *args)) for kind, stack in stacks.items()}
    arms["plain"] = plain_loop(blocks, args)
    arms["loop"] = term_by_term(blocks, stacks["ancre"].topology, args)
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    order = Random(0)
    for turn in range(rounds + 2):
        for name in order.sample(names, len(names)):
            took = step(arms[name], x, g, clock)
            if turn >= 2:  # the first two warm up
                seconds[name].append(took)
    base, base_peak = seconds["cascaded"], peak(arms["cascaded"], x, g)
    print(f"\n{case}: K={depth}, state {tuple(x.shape)} {x.dtype}, {torch.get_num_threads()} threads, {rounds} rounds")
    for name in names:
        ratios = [a / b for a, b in zip(seconds[name], base, strict=True)]
        quarter = sorted(ratios)[len(ratios) // 4], sorted(ratios)[-len(ratios) // 4]
        extra = (peak(arms[name], x, g) - base_peak) / (x.numel() * x.element_size())
        print(
            f"  {name:9s} {median(seconds[name]) * 1e3:8.1f} ms   ratio {median(ratios):.3f}"
            f" (quartiles {quarter[0]:.3f} .. {quarter[1]:.3f}, fastest {min(seconds[name]) / min(base):.3f})"
            f"   peak {extra:+.1f} states above cascaded, {extra / depth:+.2f} a step"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for a busy machine, with 1 thread")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__} on {platform.processor() or platform.machine()}, {platform.python_version()}")
    for case in options.case or CASES:
        measure(case, options.rounds, CLOCKS[options.clock])


if __name__ == "__main__":
    main()
