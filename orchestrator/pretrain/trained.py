"""From a fresh network to one that is ready to train: its precision, its share of each worker, its optimizer."""

from __future__ import annotations

import torch

from models.llama import Llama
from models.optim.base import OptimSpec
from models.optim.rounding import StochasticRounding
from orchestrator.errors import InputError
from orchestrator.pretrain.parallel import Workers, shard
from orchestrator.pretrain.spec import BF16_WEIGHTS, TrainSpec


def build(network: Llama, optim: OptimSpec, train: TrainSpec, workers: Workers) -> torch.optim.Optimizer:
    """Make `network` ready on the workers' device, in place; returns its optimizer.

    Raises:
        InputError: the optimizer has nothing to do in this network.
    """
    network.to(workers.device, torch.bfloat16 if train.precision in BF16_WEIGHTS else None)  # coefficients stay float32
    if train.compile:
        for block in network.stack.blocks:
            block.compile()
    if train.sharding == "fsdp" and workers.count > 1:
        shard(network, workers)
    try:
        optimizer = optim.build(network)
    except ValueError as error:
        raise InputError(f"optim: {error}") from error
    if train.precision == "bf16-stochastic":
        StochasticRounding(optimizer)
    return optimizer
