"""A training step of LLaMA-60M on a CPU against transformers' LlamaForCausalLM, and ANCRe's against the cascaded one's.

    python tests/benchmarks/step.py                       # 2 threads, 2 sequences of 256 tokens, float32
    python tests/benchmarks/step.py --rounds 40 --arm cascaded --arm ancre

A step is forward, loss, backward and torch's fused AdamW. Every arm has a process of its own, as training has; it takes
one step per round in random order, while the others wait; ratios are of the same round. Arms that are `kept` call
`models.allocator.keep_freed_memory` first, as our training does; transformers' runs with it and without. Ratios of CPU
time are for a machine that is busy with other work.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from random import Random
from statistics import median
from time import perf_counter, process_time

import torch
from torch import Tensor, nn

from models.allocator import keep_freed_memory
from models.llama_spec import LlamaSpec
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded

ARMS = ("cascaded kept", "ancre kept", "transformers", "transformers kept", "cascaded", "ancre")
RATIOS = (  # of tokens a second; and what is wanted
    ("cascaded kept", "transformers", ">= 1.15"),
    ("cascaded kept", "transformers kept", ""),
    ("cascaded", "transformers", ""),
    ("ancre kept", "cascaded kept", ">= 0.97"),
    ("ancre", "cascaded", ""),
)


def transformers_network() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    spec = LlamaSpec(size="60m")
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=spec.width,
            intermediate_size=spec.ffn_width,
            num_hidden_layers=spec.depth,
            num_attention_heads=spec.heads,
            vocab_size=spec.vocab_size,
            rms_norm_eps=spec.norm_eps,
            tie_word_embeddings=False,
        )
    )


def training_step(arm: str, text: Tensor) -> Callable[[], None]:
    name, _, kept = arm.partition(" ")
    if kept:
        keep_freed_memory()
    torch.manual_seed(0)
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    if name == "transformers":
        network = transformers_network()

        def loss() -> Tensor:
            return network(tokens, labels=tokens, use_cache=False).loss  # it shifts them, and takes the mean
    else:
        network = LlamaSpec(size="60m").build(Ancre() if name == "ancre" else Cascaded())

        def loss() -> Tensor:
            return network(tokens, targets) / targets.numel()

    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def serve(arm: str, batch: int, threads: int) -> None:
    """A step for each line of input: its seconds, by the wall and of the CPU."""
    torch.set_num_threads(threads)
    text = torch.randint(32000, (batch, 257), generator=torch.Generator().manual_seed(0))
    step = training_step(arm, text)
    for _ in sys.stdin:
        wall, cpu = perf_counter(), process_time()
        step()
        print(perf_counter() - wall, process_time() - cpu, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", choices=ARMS, action="append")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--serve", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.batch, options.threads)
    arms = options.arm or list(ARMS)
    command = [sys.executable, __file__, "--batch", str(options.batch), "--threads", str(options.threads), "--serve"]
    workers = {
        arm: subprocess.Popen([*command, arm], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for arm in arms
    }
    seconds: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
    order = Random(0)
    for turn in range(options.rounds + 2):
        for arm in order.sample(arms, len(arms)):
            ask, answer = workers[arm].stdin, workers[arm].stdout
            assert ask is not None and answer is not None
            print(file=ask, flush=True)
            wall, cpu = map(float, answer.readline().split())
            if turn >= 2:  # the first two warm up
                seconds[arm].append((wall, cpu))
    for worker in workers.values():
        worker.communicate()
    print(f"torch {torch.__version__}, {options.threads} threads, batch {options.batch} x 256, {options.rounds} rounds")
    for arm in arms:
        wall, cpu = (median(column) * 1e3 for column in zip(*seconds[arm], strict=True))
        print(f"  {arm:18s} {wall:7.0f} ms, {cpu:7.0f} of the CPU, {options.batch * 256e3 / wall:6.0f} tokens/s")
    print("tokens a second, as ratios: median (quartiles) by the wall; of the CPU")
    for one, other, wanted in RATIOS:
        if {one, other} <= set(arms):
            print(f"  {one} / {other}".ljust(38), *map(ratio, columns(seconds[other]), columns(seconds[one])), wanted)


def columns(seconds: list[tuple[float, float]]) -> list[tuple[float, ...]]:
    return list(zip(*seconds, strict=True))


def ratio(over: tuple[float, ...], under: tuple[float, ...]) -> str:
    ratios = sorted(a / b for a, b in zip(over, under, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return f"{median(ratios):.3f} ({low:.3f}, {high:.3f})"


if __name__ == "__main__":
    main()
