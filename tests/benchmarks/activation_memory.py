"""Memory of activations: ANCRe over boundary sources against the cascaded network, both recomputed in equal segments.

    python tests/benchmarks/activation_memory.py                       # the blocks of LLaMA-60M and of LLaMA-350M
    python tests/benchmarks/activation_memory.py --size 130m --segment 3 --batch 4

Bytes by the allocator's own record, so the same on every run: `held` between forward and backward, and `peak` in
backward, which runs segments again; both above weights and their gradients, of the blocks alone. `estimate` is
`LlamaSpec.activation_bytes`, which knows of no topology. Ratios are to the cascaded network in segments.
"""

from __future__ import annotations

import argparse
from itertools import accumulate

import torch
from torch import Tensor

from models.llama import Block, rotation
from models.llama_spec import SIZES, LlamaSpec
from models.stack import Stack
from models.topology.ancre import Spec as Ancre
from models.topology.ancre_sparse import Spec as Sparse
from models.topology.base import TopologySpec
from models.topology.cascaded import Spec as Cascaded

LENGTH = 256


def sizes(profile: torch.profiler.profile) -> list[int]:
    """Bytes of each allocation, and of each piece that is freed as a negative number."""
    return [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]


def measure(stack: Stack, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[int, int]:
    """Bytes held after a forward, and at the peak of its backward."""
    stack(x, *angles).sum().backward()  # gradients of parameters now have their memory
    record = {"activities": [torch.profiler.ProfilerActivity.CPU], "profile_memory": True}
    with torch.profiler.profile(**record) as profile:
        out = stack(x, *angles)
    held = sum(sizes(profile))
    with torch.profiler.profile(**record) as profile:
        out.sum().backward()
    return held, held + max(accumulate(sizes(profile)))


def compare(size: str, segment: int, batch: int) -> None:
    spec = LlamaSpec(size=size)
    blocks = [Block(spec) for _ in range(spec.depth)]
    x = torch.randn(batch, LENGTH, spec.width, requires_grad=True)
    angles = rotation(LENGTH, spec.width // spec.heads, spec.rope_base, torch.device("cpu"))
    sparse = Sparse(segment=segment)
    arms: dict[str, tuple[TopologySpec, bool, int | None]] = {  # topology, recomputed, in segments of
        "cascaded, segments": (Cascaded(), True, segment),
        "boundary sources, segments": (sparse, True, segment),
        "cascaded, block by block": (Cascaded(), True, 1),
        "ancre, block by block": (Ancre(), True, None),
        "cascaded, all kept": (Cascaded(), False, None),
        "boundary sources, all kept": (sparse, False, None),
        "ancre, all kept": (Ancre(), False, None),
    }
    print(f"\n{size}: {spec.depth} blocks, segments of {segment}, {batch} x {LENGTH} tokens, float32; MiB")
    print(f"  {'':28s}{'held':>9s}{'peak':>9s}{'estimate':>10s}  ratio of held, of peak")
    base: tuple[int, int] | None = None
    for name, (topology, checkpoint, each) in arms.items():
        stack = Stack(blocks, topology, width=spec.width, returns="branch", checkpoint=checkpoint, segment=each)
        found = measure(stack, x, angles)
        base = base or found
        estimate = spec.activation_bytes(bfloat16=False, checkpoint=checkpoint, segment=each or 1)
        numbers = (*found, estimate * batch * LENGTH)
        ratios = (one / other for one, other in zip(found, base, strict=True))
        print(f"  {name:28s}", *(f"{n / 2**20:8.1f}" for n in numbers), "  ", *(f"{r:6.3f}" for r in ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--segment", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2)
    options = parser.parse_args()
    for size in options.size or ("60m", "350m"):
        compare(size, options.segment, options.batch)


if __name__ == "__main__":
    main()
