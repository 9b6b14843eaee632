"""Trains small decoders as one of several workers of a pipeline: `pipeline_worker.py JSON`."""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from pydantic import TypeAdapter

from models.llama_spec import LlamaSpec
from orchestrator.kinds import AnyTopology
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.pipeline import Pipeline


def train(case: dict, workers: Workers) -> dict:
    """A few steps: the losses, the first gradient, and the weights before and after."""
    torch.manual_seed(0)
    topology = TypeAdapter(AnyTopology).validate_python(case["topology"])
    network = LlamaSpec(**case["model"]).build(topology, checkpoint=case["checkpoint"])
    network.to(getattr(torch, case["weights"]))
    pipeline = Pipeline(network, workers, case["stages"], rows=2, length=8, mixed=case["mixed"])
    stage, replicas = pipeline.stage, pipeline.replicas
    found = {"start": {name: p.detach().clone() for name, p in stage.named_parameters()}, "losses": [], "norms": []}
    if case["fails"]:
        found["failure"] = failing(pipeline, [torch.tensor(part) for part in case["steps"][0][:2]])
    optimizer = torch.optim.AdamW(stage.parameters(), lr=case["lr"])
    for step in case["steps"]:
        parts = [torch.tensor(part) for part in step]
        tokens = sum(int((part[:, 1:] >= 0).sum()) for part in parts)
        found["losses"].append(pipeline.step(parts[replicas.rank :: replicas.count], 1 / tokens).item())
        found["norms"].append(pipeline.gradient_norm().item())
        found.setdefault("gradients", {name: p.grad.clone() for name, p in stage.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    parts = [torch.tensor(part) for part in case["steps"][0]]
    found["held_out"] = pipeline.evaluate(parts[replicas.rank :: replicas.count]).item()
    found["weights"] = {name: p.detach() for name, p in stage.named_parameters()}
    if case["save"]:
        dcp.save(stage.state_dict(), checkpoint_id=case["save"])
    return found


def failing(pipeline: Pipeline, parts: list[torch.Tensor]) -> str:
    """What a step says whose second forward fails, after the first micro-batch's backward."""
    calls = iter(("first", "second"))

    def fail(stage: torch.nn.Module, received: tuple) -> None:
        if next(calls) == "second":
            raise ArithmeticError("second forward")

    hook = pipeline.stage.register_forward_pre_hook(fail)
    try:
        pipeline.step(parts, 1.0)
    except Exception as error:
        return repr(error)
    finally:
        hook.remove()
    return "nothing"


def main(rank: int, count: int, meeting: str, folder: str, cases: dict[str, dict]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    for name, case in cases.items():
        torch.save(train(case, Workers.here()), Path(folder, f"{name}-{rank}.pt"))
    dist.barrier()
    os._exit(0)  # gloo's threads outlive the groups, and now and then abort a Python that shuts down


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
