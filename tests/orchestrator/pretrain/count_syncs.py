"""Counts how often two workers talk in one step: prints {way: {micro-batches: {operation: times}}} as JSON.

The other worker is torch's fake one, which answers at once.
"""

import json
import os
from collections import Counter

import torch
import torch.distributed as dist
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from models.llama import Llama
from models.llama_spec import LlamaSpec
from models.topology import ancre
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.replica import Replica
from orchestrator.pretrain.trained import next_token


def replica(sharded: bool) -> Replica[Llama, torch.Tensor]:
    network = LlamaSpec(width=16, ffn_width=24, depth=2, heads=2, vocab_size=64).build(ancre.Spec())
    return Replica(network, Workers.here(), next_token, sharded=[*network.stack.blocks] if sharded else [])


def windows(count: int) -> list[torch.Tensor]:
    return [torch.randint(0, 64, (2, 9)) for _ in range(count)]


def ddp(parts: int) -> dict[str, int]:
    made, counts = replica(sharded=False), Counter()
    assert isinstance(made.forward, DistributedDataParallel)

    def hook(_: None, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        counts["all_reduce"] += 1
        done: Future[torch.Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    made.forward.register_comm_hook(None, hook)
    made.step(windows(parts), 1.0)
    return dict(counts)


def fsdp(parts: int) -> dict[str, int]:
    made, counts = replica(sharded=True), Counter()
    gather = dist.reduce_scatter_single

    def counted(*arguments, **options):
        counts["reduce_scatter"] += 1
        return gather(*arguments, **options)

    dist.reduce_scatter_single = counted
    made.step(windows(parts), 1.0)
    dist.reduce_scatter_single = gather
    return dict(counts)


if __name__ == "__main__":
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    print(json.dumps({way.__name__: {parts: way(parts) for parts in (1, 4)} for way in (ddp, fsdp)}), flush=True)
    os._exit(0)  # gradients are not what a real process group would leave: nothing is worth cleaning up
