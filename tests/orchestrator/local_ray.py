"""A Ray of this machine alone, as sweeps start it, for the tests of a file: starting one takes seconds."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.sweep import cluster


@contextmanager
def local_ray(cpus: int) -> Iterator[None]:
    cluster.configure()
    import ray

    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        object_store_memory=cluster.OBJECT_STORE,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield
    ray.shutdown()
