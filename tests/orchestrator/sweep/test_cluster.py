import pytest

from orchestrator.errors import InputError
from orchestrator.study.machines import Machine
from orchestrator.study.spec import Resources
from orchestrator.sweep.cluster import concurrency

NODES = [Machine(16, 100 * 10**9, 4.0), Machine(8, 50 * 10**9, 0.0)]


@pytest.mark.parametrize(
    ("resources", "at_once"),
    [
        ({}, 24),
        ({"cpus": 5}, 3 + 1),  # a worker is on one machine as a whole
        ({"cpus": 2, "workers": 5}, 2),  # 12 places
        ({"gpus": 1.0}, 4),
        ({"gpus": 0.5}, 8),
        ({"gpus": 1.0, "workers": 3}, 1),  # a second trial would hold one place and wait for two
        ({"concurrent": 7}, 7),
        ({"concurrent": 99}, 24),
    ],
)
def test_a_trial_is_admitted_with_all_it_takes(resources, at_once):
    assert concurrency(Resources(**resources), NODES) == at_once


def test_memory_thins_trials_out_but_does_not_forbid_them():
    assert concurrency(Resources(), NODES, memory=10 * 10**9) == 10 + 5
    assert concurrency(Resources(), NODES, memory=10**12) == 1


@pytest.mark.parametrize("resources", [{"cpus": 17}, {"workers": 25}, {"gpus": 1.0, "workers": 5}])
def test_what_can_never_be_given_is_refused(resources):
    with pytest.raises(
        InputError, match=r"resources: a trial takes .* and the cluster has 16 CPUs and 4 GPUs, 8 CPUs and 0 GPUs"
    ):
        concurrency(Resources(**resources), NODES)
