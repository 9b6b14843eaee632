"""One of two workers that train a sharded decoder: python sharded_worker.py RANK FOLDER. Run by test_sharded.py."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm

from models.llama_spec import LlamaSpec
from models.optim.adamw import Spec as AdamW
from models.optim.layerwise import LayerwiseSteps
from models.optim.rounding import StochasticRounding
from models.topology.ancre import Spec as Ancre

WORKERS, LR = 2, 0.01
WAYS = ("at once", "one by one", "in backward")
TOKENS = torch.arange(40).view(4, 10)


def network(dtype):
    torch.manual_seed(0)
    size = LlamaSpec(width=16, ffn_width=24, depth=3, heads=2, vocab_size=40)
    return size.build(Ancre(temperature=1.0)).to(dtype)


def loss(net, tokens):
    return net(tokens).float().logsumexp(-1).mean()


def sharded(dtype, mesh):
    net = network(dtype)
    for block in net.stack.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh, ignored_params={*net.stack.topology.parameters()})
    return net


def train(net, way, rank, *, rounded):
    """Three steps: weights, gradient norms and the dtypes of the state after them."""
    optimizer = AdamW(lr=LR).build(net)
    if rounded:
        StochasticRounding(optimizer)
    split = [p for p in net.parameters() if isinstance(p, DTensor)]
    whole = [*net.stack.topology.parameters()]
    layerwise = LayerwiseSteps(optimizer, split if way == "in backward" else ())
    torch.manual_seed(1)
    norms = []
    for _ in range(3):
        loss(net, TOKENS.chunk(WORKERS)[rank]).backward()
        for p in whole:
            dist.all_reduce(p.grad, dist.ReduceOp.SUM)
            p.grad /= WORKERS
        if way == "at once":
            norms.append(
                torch.stack([get_total_norm(p.grad for p in split).full_tensor(), whole[0].grad.norm()]).norm()
            )
            optimizer.step()
            optimizer.zero_grad()
        else:
            layerwise.step()
            norms.append(layerwise.gradient_norm())
    weights = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in net.named_parameters()}
    return {
        "weights": {name: p.detach() for name, p in weights.items()},
        "norms": torch.stack(norms).float(),
        "state": {str(t.dtype) for state in optimizer.state.values() for t in state.values()},
    }


def main(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORKERS)
    mesh = init_device_mesh("cpu", (WORKERS,))
    found = {way: train(sharded(torch.float32, mesh), way, rank, rounded=False) for way in WAYS}
    found |= {f"{way}, rounded": train(sharded(torch.bfloat16, mesh), way, rank, rounded=True) for way in WAYS}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
