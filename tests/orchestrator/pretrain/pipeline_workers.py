"""Trains small decoders in the workers of a pipeline, which are forks of this: `pipeline_workers.py JSON`."""

import json
import os
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from pydantic import TypeAdapter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

from models.llama_spec import LlamaSpec
from orchestrator.kinds import AnyTopology
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.pipeline import Pipeline

FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def train(case: dict, workers: Workers) -> dict:
    """A few steps: the losses, the first gradient, and the weights before and after."""
    torch.manual_seed(0)
    topology = TypeAdapter(AnyTopology).validate_python(case["topology"])
    network = LlamaSpec(**case["model"]).build(topology, checkpoint=case["checkpoint"])
    network.to(getattr(torch, case["weights"]))
    pipeline = Pipeline(network, workers, case["stages"], rows=2, length=8, mixed=case["mixed"])
    stage, replicas = pipeline.network, pipeline.replicas
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
    losses = pipeline.evaluate(parts[replicas.rank :: replicas.count])
    found["held_out"] = workers.total(losses.sum() / pipeline.stages).item()
    found["weights"] = {name: p.detach() for name, p in stage.named_parameters()}
    if case["save"]:
        network_state, optimizer_state = get_state_dict(stage, optimizer, options=FLAT)
        dcp.save(network_state | optimizer_state, checkpoint_id=case["save"])
        found["moments"] = {name: optimizer.state[p]["exp_avg"] for name, p in stage.named_parameters()}
    return found


def failing(pipeline: Pipeline, parts: list[torch.Tensor]) -> str:
    """What a step says whose second forward fails, after the first micro-batch's backward."""
    calls = iter(("first", "second"))

    def fail(stage: torch.nn.Module, received: tuple) -> None:
        if next(calls) == "second":
            raise ArithmeticError("second forward")

    hook = pipeline.network.register_forward_pre_hook(fail)
    try:
        pipeline.step(parts, 1.0)
    except Exception as error:
        return repr(error)
    finally:
        hook.remove()
    return "nothing"


def work(rank: int, count: int, meeting: str, folder: str, cases: dict[str, dict]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    for name, case in cases.items():
        torch.save(train(case, Workers.here()), Path(folder, f"{name}-{rank}.pt"))
    dist.barrier()


def main(count: int, **arguments) -> None:
    """Forks the workers, which so import torch once."""
    children = []
    for rank in range(count):
        child = os.fork()
        if not child:
            failed = 1
            try:
                work(rank, count, **arguments)
                failed = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(failed)  # gloo's threads outlive the groups, and now and then abort a Python that shuts down
        children.append(child)
    sys.exit(any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
