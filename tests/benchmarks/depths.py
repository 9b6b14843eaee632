"""What a look into each depth costs: training steps of LLaMA-60M that are looked into against those that are not.

    python tests/benchmarks/depths.py --rounds 20

Prints the median ratio of a step, and what is left of it at an interval of `--every` steps.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from statistics import median

import torch

from models.llama_spec import LlamaSpec
from models.topology import ancre
from orchestrator.pretrain.depths import Depths
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.replica import Replica
from orchestrator.pretrain.trained import next_token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--every", type=int, default=20, help="steps between two looks")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    network = LlamaSpec(width=512, ffn_width=1376, depth=8, heads=8).build(ancre.Spec())
    replica, depths = Replica(network, Workers.here(), next_token), Depths(network)
    optimizer = torch.optim.AdamW(network.parameters(), fused=True)
    windows = torch.randint(0, 32000, (2, 257))

    def step(look: bool) -> float:
        began = time.perf_counter()
        if look:
            depths.watch()
        replica.step([windows], 1 / 512)
        if look:
            depths.finish()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    step(True), step(False)  # the first of each is slower
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(arguments.rounds):
        for look in Random(number).sample([True, False], 2):
            seconds[look].append(step(look))
    ratio = median(a / b for a, b in zip(seconds[True], seconds[False], strict=True))
    print(f"a step that is looked into takes {ratio:.3f} of another ({1000 * median(seconds[False]):.0f} ms)")
    print(f"every {arguments.every} steps: {100 * (ratio - 1) / arguments.every:.2f} % of training")


if __name__ == "__main__":
    main()
