"""What an environment says of itself is checked when it is read."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from envs.base import Batch, Contract, GoalEnvSpec
from orchestrator.workloads.crl import Spec

GOOD: dict[str, Any] = {
    "state_size": 4,
    "goal_index": (0, 1),
    "action_size": 2,
    "radius": 0.3,
    "easy": 0.6,
    "hard": 0.1,
    "control_dt": 0.1,
}


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("state_size", -4, "state_size should be a whole number from 1, got -4"),
        ("action_size", 0, "action_size should be a whole number from 1, got 0"),
        ("goal_index", (0, 9), "goal_index 9: a state has coordinates 0 to 3"),
        ("goal_index", (0.5, 1), "goal_index 0.5: a state has coordinates 0 to 3"),
        ("goal_index", (), "goal_index should name at least one coordinate"),
        ("radius", float("nan"), "radius should be a positive number, got nan"),
        ("hard", 0.0, "hard should be a positive number, got 0.0"),
    ],
)
def test_a_contract_that_makes_no_sense_is_refused(field: str, value: Any, line: str) -> None:
    Contract(**GOOD)
    with pytest.raises(ValueError, match=re.escape(line)):
        Contract(**GOOD | {field: value})


class Own(GoalEnvSpec):
    kind: str = "own"
    fault: str

    @property
    def contract(self) -> Contract:
        if self.fault == "raises":
            raise RuntimeError("in\ntwo lines")
        return None if self.fault == "none" else Contract(**GOOD | {"goal_index": (0, 9)})  # type: ignore[return-value]

    def build(self, num_envs: int) -> Batch:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("raises", "env: contract of 'own': RuntimeError: in two lines"),
        ("none", "env: contract of 'own' should be an envs.base.Contract, got None"),
        ("outside", "env: contract of 'own': ValueError: goal_index 9: a state has coordinates 0 to 3"),
    ],
)
def test_a_trial_in_an_environment_without_a_contract_is_refused_in_one_line(fault: str, line: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(line)):
        Spec(env=Own(fault=fault))
