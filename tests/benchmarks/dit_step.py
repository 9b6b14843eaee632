"""A training step of DiT on a CPU against diffusers' DiTTransformer2DModel, and ANCRe's against the cascaded one's.

    python tests/benchmarks/dit_step.py                   # S/2, 2 threads, 4 latents of 32 x 32 x 4, float32
    python tests/benchmarks/dit_step.py --size b/2 --batch 2 --arm "cascaded kept" --arm "ancre kept"

A step is forward, the loss of models/diffusion.py, backward and torch's fused AdamW; `--no-optimizer` leaves out the
last, in which diffusers' model has more to do: each of its blocks has a time and label embedding of its own. Every arm
has a process of its own, as training has; it takes one step per round in random order, while the others wait; ratios
are of the same round. Arms that are `kept` call `models.allocator.keep_freed_memory` first, as our training does;
diffusers' runs with it and without. Ratios of CPU time are for a machine that is busy with other work.
"""

from __future__ import annotations

from collections.abc import Callable

import processes
import torch
from torch import nn

from models.allocator import keep_freed_memory
from models.diffusion import Predict, linear, training_loss
from models.dit_spec import DitSpec
from models.topology.ancre import Spec as Ancre
from models.topology.cascaded import Spec as Cascaded

ARMS = ("cascaded kept", "ancre kept", "diffusers", "diffusers kept", "cascaded", "ancre")
RATIOS = (  # of images a second; and what is wanted
    ("cascaded kept", "diffusers", ">= 1.0"),
    ("cascaded kept", "diffusers kept", ">= 1.0"),
    ("cascaded", "diffusers", ""),
    ("ancre kept", "cascaded kept", ">= 0.97"),
    ("ancre", "cascaded", ""),
)


def diffusers_network(spec: DitSpec) -> tuple[nn.Module, Predict]:
    from diffusers import DiTTransformer2DModel

    network = DiTTransformer2DModel(
        num_attention_heads=spec.heads,
        attention_head_dim=spec.width // spec.heads,
        in_channels=spec.channels,
        out_channels=2 * spec.channels,
        num_layers=spec.depth,
        sample_size=spec.image_size,
        patch_size=spec.patch,
        num_embeds_ada_norm=spec.num_classes,
        norm_eps=1e-6,
    )
    return network, lambda x, t, y: network(x, t, y, return_dict=False)[0]


def training_step(arm: str, spec: DitSpec, batch: int, optimizer: bool) -> Callable[[], None]:
    name, _, kept = arm.partition(" ")
    if kept:
        keep_freed_memory()
    torch.manual_seed(0)
    predict: Predict
    if name == "diffusers":
        network, predict = diffusers_network(spec)
    else:
        network = predict = spec.build(Ancre(temperature=0.1) if name == "ancre" else Cascaded())
    schedule = linear()
    x0, noise = torch.randn(2, batch, *spec.shape)
    t, y = torch.randint(len(schedule), (batch,)), torch.randint(spec.num_classes, (batch,))
    adamw = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0, fused=True)

    def step() -> None:
        training_loss(schedule, predict, x0, t, y, noise).mean().backward()
        if optimizer:
            adamw.step()
        adamw.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = processes.parser(__doc__, ARMS, batch=4)
    parser.add_argument("--size", default="s/2")
    parser.add_argument("--no-optimizer", action="store_true")
    options = parser.parse_args()
    if options.serve:
        torch.set_num_threads(options.threads)
        spec = DitSpec(size=options.size)
        return processes.serve(training_step(options.serve, spec, options.batch, not options.no_optimizer))
    seconds = processes.measure(options.arm or ARMS, options.rounds)
    processes.show(seconds, "images a second", "images/s", options.batch, RATIOS)


if __name__ == "__main__":
    main()
