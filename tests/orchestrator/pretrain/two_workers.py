"""Trains one trial as one of several workers and prints its rows: `two_workers.py JSON`."""

import gc
import json
import sys
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch.distributed as dist

from orchestrator.workloads.base import Place
from orchestrator.workloads.llm import Spec


def main(rank: int, count: int, meeting: str, trial: str, folder: str, cache: str, rows: int | None) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    place = Place(Path(folder), Path(cache))
    for row in islice(Spec.model_validate_json(trial).rows(place), rows):
        print(json.dumps([row.step, dict(row.metrics), row.topology]), flush=True)
    gc.collect()  # the wrapped network is part of a cycle, and holds gloo's threads, which must end before the process
    dist.destroy_process_group()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
