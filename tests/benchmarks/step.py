"""A training step of LLaMA-60M on a CPU against transformers' LlamaForCausalLM, and ANCRe's against the cascaded one's.

    python tests/benchmarks/step.py                       # 2 threads, 2 sequences of 256 tokens, float32
    python tests/benchmarks/step.py --rounds 40 --arm cascaded --arm ancre

A step is forward, loss, backward and torch's fused AdamW. Every arm has a process of its own, as training has; it takes
one step per round in random order, while the others wait; ratios are of the same round. Arms that are `kept` call
`models.allocator.keep_freed_memory` first, as our training does; transformers' runs with it and without. Ratios of CPU
time are for a machine that is busy with other work.
"""

from __future__ import annotations

from collections.abc import Callable

import processes
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


def main() -> None:
    options = processes.parser(__doc__, ARMS, batch=2).parse_args()
    if options.serve:
        torch.set_num_threads(options.threads)
        text = torch.randint(32000, (options.batch, 257), generator=torch.Generator().manual_seed(0))
        return processes.serve(training_step(options.serve, text))
    seconds = processes.measure(options.arm or ARMS, options.rounds)
    processes.show(seconds, "tokens a second", "tokens/s", options.batch * 256, RATIOS)


if __name__ == "__main__":
    main()
