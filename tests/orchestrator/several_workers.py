"""Trains one trial as one of several workers and prints its rows: `several_workers.py JSON`."""

import json
import os
import sys
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch.distributed as dist

from orchestrator.study.export import trial_of
from orchestrator.workloads.base import Place


def main(rank: int, count: int, meeting: str, trial: str, folder: str, cache: str, rows: int | None) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=timedelta(seconds=60)
    )
    place = Place(Path(folder), Path(cache))
    for row in islice(trial_of(json.loads(trial)).rows(place), rows):
        print(json.dumps([row.step, dict(row.metrics), row.topology, row.depths]), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads outlive DDP's process group, and now and then abort a Python that shuts down


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
