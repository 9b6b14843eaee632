"""From a fresh network to one that is ready to train: its precision, how it is spread over workers, its optimizer."""

from __future__ import annotations

import torch

from models.llama import Llama
from models.optim.base import OptimSpec
from models.optim.rounding import StochasticRounding
from orchestrator.pretrain.parallel import Spread, Workers
from orchestrator.pretrain.replica import Replica
from orchestrator.pretrain.spec import BF16_WEIGHTS, TrainSpec


def spread(network: Llama, train: TrainSpec, length: int, workers: Workers) -> Spread:
    """Spread `network`, which is changed in place, over the workers, in its precision.

    Args:
        length: predictions in a sequence.
    """
    if train.precision in BF16_WEIGHTS:
        network.to(torch.bfloat16)  # coefficients stay float32
    mixed = train.precision == "bf16-mixed"
    if train.stages > 1:
        from orchestrator.pretrain.pipeline import Pipeline

        share = workers.most(train.batch * train.stages)
        rows = min(train.micro_batch or share, share)
        return Pipeline(network, workers, train.stages, rows=rows, length=length, mixed=mixed)
    network.to(workers.device)
    if train.compile:
        for block in network.stack.blocks:
            block.compile()
    return Replica(network, workers, sharded=train.sharding == "fsdp", mixed=mixed)


def optimizer(optim: OptimSpec, spread: Spread, train: TrainSpec) -> torch.optim.Optimizer:
    """The optimizer of what this worker trains."""
    built = optim.build(spread.network)
    if train.precision == "bf16-stochastic":
        StochasticRounding(built)
    return built
