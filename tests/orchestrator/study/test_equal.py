"""Arms that a study calls equal are held to it, where they are alike, and refused in one line where they are not."""

import pytest

from orchestrator.errors import InputError
from orchestrator.study.plan import plan
from orchestrator.study.spec import Study

# The toy has width x depth parameters, 6 FLOPs for each of them and each step; a learned topology of depth K adds
# K (K + 1) / 2 coefficients.
TOY = 'name = "toy"\nworkload = "toys.bowl"\n[trial]\noptim = { kind = "sgd", lr = 0.1 }\nmodel.heads = 1\n'


def planned(equal: str, arms: str, axes: str = "") -> str:
    made = plan(Study.parse(f'equal = "{equal}"\n{TOY}[arms]\n{arms}\n[axes]\n{axes}', "s.toml"))
    return made.text()


def refused(equal: str, arms: str, axes: str = "") -> str:
    with pytest.raises(InputError) as caught:
        planned(equal, arms, axes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("width", [98, 102])
def test_up_to_two_percent_is_equal(width: int) -> None:
    planned("params", f"a.model.width = 100\nb.model.width = {width}")
    planned("flops", f"a.model.width = 100\nb.model.width = {width}")


@pytest.mark.parametrize(("width", "off"), [(97, "3.0% less"), (103, "3.0% more")])
def test_more_is_refused_with_what_would_be_right(width: int, off: str) -> None:
    arms = f"a.model.width = 100\nb.model.width = {width}"
    assert refused("params", arms) == (
        f"s.toml: equal: arm b has {4 * width} parameters, those of the topology included, {off} than the 400 of a; "
        'for equal = "params" it should have 392 to 408'
    )
    assert refused("flops", arms) == (
        f"s.toml: equal: arm b has {240 * width:,} FLOPs a trial, {off} than the 24,000 of a; "
        'for equal = "flops" it should have 23,520 to 24,480'
    )


def test_the_numbers_of_a_topology_count() -> None:
    arms = 'a.topology.kind = "cascaded"\nb.topology = { kind = "ancre", inner_residual = "drop" }'
    planned("params", arms, '"model.width" = [128]\n')  # 512 and 10 more
    assert "arm b has 170 parameters" in refused("params", arms, '"model.width" = [128, 40]\n')


def test_arms_are_held_to_each_other_where_they_are_alike() -> None:
    depths = '"model.depth" = [2, 4]\n'
    planned("params", "a.model.width = 100\nb.model.width = 101", depths)
    assert "at model.depth = 2, 4.0% more" in refused("params", "a.model.width = 100\nb.model.width = 104", depths)
    # Where they try different depths, the whole range of each is meant.
    planned("params", 'a.axes."model.depth" = [2, 4]\nb.axes."model.depth" = [4, 8]\nb.model.width = 32')
    assert "arm b has 128 parameters" in refused("params", 'a.axes."model.depth" = [4]\nb.axes."model.depth" = [2]')


def test_what_only_one_arm_is_tuned_over_is_a_range() -> None:
    arms = 'a.topology.kind = "cascaded"\nb.topology.kind = "ancre"\na.model.width = 256\nb.model.width = 256'
    axes = '"optim.lr" = [0.1, 0.2]\n"topology.temperature" = [0.1, 1.0]\n'
    planned("params", arms, axes)
    longer = arms + '\nb.axes."train.steps" = [10, 20]'
    planned("params", longer, axes)
    assert "arm b has 20 steps at optim.lr = 0.1, 100.0% more" in refused("steps", longer, axes)


def test_steps_are_those_of_a_trial() -> None:
    assert refused("steps", "a.train.steps = 100\nb.train.steps = 103").endswith(
        'arm b has 103 steps, 3.0% more than the 100 of a; for equal = "steps" it should have 98 to 102'
    )


def test_what_optuna_will_ask_for_is_not_known() -> None:
    sampler = '[sampler]\nkind = "optuna"\ncells = 9\nstartup = 4\n'
    rates = '"optim.lr" = { low = 0.1, high = 1.0 }\n'
    text = planned("params", "a.model.width = 100\nb.model.width = 101", rates + sampler)
    assert "that arms are equal in params is known of the other 8 configurations" in " ".join(text.split())


def test_only_three_quantities_are_known() -> None:
    with pytest.raises(InputError, match=r"^s\.toml: equal: should be .*params.*flops.*steps.*, got 'memory'$"):
        Study.parse(f'equal = "memory"\n{TOY}', "s.toml")


def test_many_configurations_are_looked_at_in_places() -> None:
    rates = '"optim.lr" = { center = 1, factor = 1.001, count = 999 }\n"optim.momentum" = [0.0, 0.5, 0.9]\n'
    planned("params", "a.model.width = 100\nb.model.width = 101", rates)
    assert "arm b has 600 parameters" in refused("params", "a.model.width = 100\nb.model.width = 150", rates)
