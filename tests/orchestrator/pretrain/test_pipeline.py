"""Four workers as 4 stages, or as 2 replicas of 2, against one process that has the whole network and batch."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from pydantic import TypeAdapter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.nn.functional import cross_entropy

from models.llama_spec import LlamaSpec
from models.topology.ancre import Spec as Ancre
from orchestrator.errors import InputError
from orchestrator.kinds import AnyTopology
from orchestrator.pretrain.parallel import Workers
from orchestrator.pretrain.pipeline import Pipeline

WORKERS = Path(__file__).with_name("pipeline_workers.py")
COUNT = 4
MODEL = {"width": 16, "ffn_width": 24, "depth": 6, "heads": 2, "vocab_size": 40, "init_std": 0.2}
SPARSE = {"kind": "ancre-sparse", "segment": 2, "temperature": 1.0}


def case(topology: dict, stages: int, parts: int, **settings) -> dict:
    """Three steps of so many micro-batches, which differ in length and rows."""
    draw = torch.Generator().manual_seed(parts)

    def part(rows: int, columns: int) -> list[list[int]]:
        windows = torch.randint(MODEL["vocab_size"], (rows, columns), generator=draw)
        windows[-1, columns // 2 :] = -1  # a sequence that ends early
        return windows.tolist()

    steps = [[part(2, 9) for _ in range(parts - 1)] + [part(1, 7)] for _ in range(3)]
    usual = {"model": MODEL, "weights": "float32", "mixed": False, "checkpoint": False, "fails": False, "save": None}
    usual |= {"lr": 1e-3, "rtol": 1e-5}
    return usual | {"topology": topology, "stages": stages, "steps": steps} | settings


CASES = {
    "ancre, 4 stages": case({"kind": "ancre", "temperature": 1.0}, 4, 5),
    "ancre, 2 stages": case({"kind": "ancre", "normalization": "outgoing"}, 2, 6),
    "ancre, fewer micro-batches": case({"kind": "ancre", "inner_residual": "keep", "temperature": 1.0}, 4, 2),
    "boundary-sources, 4 stages": case(SPARSE, 4, 4),
    "boundary-sources, 2 stages": case(SPARSE, 2, 2, checkpoint=True),
    "boundary-targets": case(SPARSE | {"mask": "boundary-targets", "segment": 4}, 4, 3),
    "cascaded": case({"kind": "cascaded"}, 4, 4),
    "fixed-first-prev": case({"kind": "fixed-first-prev"}, 2, 5),
    "hyper-connections": case({"kind": "hyper-connections"}, 4, 4),
    "mhc, recomputed": case({"kind": "mhc"}, 2, 3, checkpoint=True),
    "bf16-mixed": case({"kind": "cascaded"}, 4, 4, mixed=True),
    "bf16-mixed, ancre": case({"kind": "ancre", "temperature": 1.0}, 4, 4, mixed=True, rtol=1e-2),
    "pure-bf16": case({"kind": "cascaded"}, 4, 4, weights="bfloat16"),
    "pure-bf16, boundary-sources": case(SPARSE, 2, 4, weights="bfloat16", rtol=5e-2),
    "after a failure": case({"kind": "ancre", "temperature": 1.0}, 1, 8, fails=True),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, list[dict]]:
    """What each of the workers found in each case."""
    folder = tmp_path_factory.mktemp("pipeline")
    CASES["ancre, 4 stages"]["save"] = str(folder / "checkpoint")
    arguments = {"count": COUNT, "meeting": str(folder / "meeting"), "folder": str(folder), "cases": CASES}
    command = [sys.executable, "-W", "error", WORKERS, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return {name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(COUNT)] for name in CASES}


def loss_sum(network, part, mixed: bool) -> torch.Tensor:
    windows = torch.tensor(part)
    with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        logits = network(windows[:, :-1].clamp(min=0))
    flat, targets = logits.flatten(0, 1).float(), windows[:, 1:].flatten()
    return cross_entropy(flat, targets, ignore_index=-1, reduction="sum")


def alone(case: dict) -> dict:
    """The same training in this process."""
    torch.manual_seed(0)
    network = LlamaSpec(**case["model"]).build(TypeAdapter(AnyTopology).validate_python(case["topology"]))
    network.to(getattr(torch, case["weights"]))
    found = {"start": {name: p.detach().clone() for name, p in network.named_parameters()}, "losses": [], "norms": []}
    optimizer = torch.optim.AdamW(network.parameters(), lr=case["lr"])
    for step in case["steps"]:
        tokens = sum(token >= 0 for part in step for row in part for token in row[1:])
        losses = [loss_sum(network, part, case["mixed"]) for part in step]
        for loss in losses:
            (loss / tokens).backward()
        found["losses"].append(sum(losses).item())
        found["norms"].append(torch.cat([p.grad.float().flatten() for p in network.parameters()]).norm().item())
        found.setdefault("gradients", {name: p.grad.clone() for name, p in network.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found["held_out"] = sum(loss_sum(network, part, case["mixed"]) for part in case["steps"][0]).item()
    found["weights"] = {name: p.detach() for name, p in network.named_parameters()}
    return found


@pytest.mark.parametrize("name", CASES)
def test_stages_follow_one_process(name, found):
    case, stages, one = CASES[name], found[name], alone(CASES[name])
    rtol = case["rtol"]
    for stage in stages:
        for number in ("losses", "norms", "held_out"):
            assert stage[number] == pytest.approx(one[number], rel=rtol), number
        assert all(torch.equal(p, one["start"][parameter]) for parameter, p in stage["start"].items())
        for parameter, gradient in stage["gradients"].items():
            largest = one["gradients"][parameter].abs().max().item()
            torch.testing.assert_close(gradient, one["gradients"][parameter], rtol=rtol, atol=rtol * largest)
        for parameter, p in stage["weights"].items():
            torch.testing.assert_close(p, one["weights"][parameter], rtol=rtol, atol=rtol)
    whole = [stage["weights"].keys() for stage in stages[: case["stages"]]]
    assert {parameter for part in whole for parameter in part} == one["weights"].keys()
    mixing = {parameter for parameter in one["weights"] if "topology" in parameter}
    assert sum(len(part - mixing) for part in whole) == len(one["weights"].keys() - mixing)


def test_a_failed_step_leaves_nothing_behind(found):
    """That it did not is the equality above; here, that it failed, and as what it was."""
    assert {worker["failure"] for worker in found["after a failure"]} == {"ArithmeticError('second forward')"}


def test_a_checkpoint_of_stages_loads_into_one_network(found):
    """Weights and the optimizer's moments, by name."""
    network = LlamaSpec(**MODEL).build(Ancre(temperature=1.0))
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    network_state, optimizer_state = get_state_dict(network, torch.optim.AdamW(network.parameters()), options=options)
    state = network_state | {name: value for name, value in optimizer_state.items() if name.endswith("exp_avg")}
    with warnings.catch_warnings(action="ignore"):  # that this is one process
        dcp.load(state, checkpoint_id=CASES["ancre, 4 stages"]["save"], no_dist=True)
    for stage in found["ancre, 4 stages"]:
        for parameter, p in stage["weights"].items():
            assert torch.equal(state[parameter], p), parameter
            assert torch.equal(state[f"state.{parameter}.exp_avg"], stage["moments"][parameter]), parameter


def test_stages_that_do_not_divide_the_workers_are_refused():
    with pytest.raises(InputError, match=r"^6 workers are no multiple of the 4 pipeline stages$"):
        Pipeline(LlamaSpec(**MODEL).build(Ancre()), Workers(0, 6, torch.device("cpu")), 4, rows=2, length=8)
