"""The published run's numbers, and that what does not fit is refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.crl.spec import AgentSpec, TrainSpec


def test_defaults_are_the_published_run():
    train = TrainSpec()
    assert train.training_step == 31_744
    assert train.prefill_steps == 539_648
    assert (train.evaluations, train.steps_per_evaluation) == (100, 31)
    assert train.total_env_steps == 98_946_048
    assert train.training_steps * train.gradient_steps == 2_480_000
    assert AgentSpec() == AgentSpec(energy="norm", loss="forward", penalty=0.1, gamma=0.99, repr_dim=64)


@given(
    env_steps=st.integers(1, 10**6),
    num_envs=st.integers(1, 300),
    unroll=st.integers(1, 200),
    eval_every=st.integers(1, 10**6),
    window=st.integers(2, 300),
)
def test_a_run_ends_within_its_steps_after_whole_training_steps(env_steps, num_envs, unroll, eval_every, window):
    rest = {"num_envs": num_envs, "unroll": unroll, "window": window, "prefill": window + 1, "batch": 2}
    train = None
    while train is None:  # what a complaint proposes is right
        try:
            train = TrainSpec(env_steps=env_steps, eval_every=eval_every, **rest)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            proposed = int(message.split()[-1])
            assert proposed > (env_steps if "env_steps" in message else eval_every)
            if "env_steps" in message:
                env_steps = proposed
            else:
                eval_every = proposed
    assert train.total_env_steps <= env_steps
    assert env_steps - train.total_env_steps < train.evaluations * train.training_step
    assert train.training_steps >= train.evaluations >= 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slots": 1000}, "slots 1000 hold no window of 1000 rows; slots must be above window"),
        ({"unroll": 20_000}, "in unrolls of 20000 gives 20000 rows, which do not fit into 10000 slots"),
        ({"prefill": 9980, "unroll": 400, "slots": 9990}, "gives 10000 rows, which do not fit into 9990 slots"),
        ({"prefill": 900}, "gives 930 rows, in which no window of 1000 can be placed; prefill must be above 1000"),
        ({"batch": 10**6}, "batch 1000000 is larger than the buffer's content after prefill, 1054 rows of 512 environ"),
        (
            {"env_steps": 500_000},
            "env_steps 500000 end before the first training step, which prefill and unroll put at",
        ),
        (
            {"env_steps": 10**6, "eval_every": 10**4},
            "asks for 100 evaluations in 14 training steps of 31744; the least",
        ),
        ({"batch": 1}, "greater than or equal to 2"),
        ({"unrol": 10}, "Extra inputs are not permitted"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(values, message):
    with pytest.raises(ValidationError) as caught:
        TrainSpec(**values)
    (error,) = caught.value.errors()
    assert message in error["msg"]
    assert "\n" not in error["msg"]


@pytest.mark.parametrize(
    ("length", "message"),
    [(1, "env.episode_length 1: an episode needs 2 steps"), (10_001, "10001 does not fit into train.slots 10000")],
)
def test_an_episode_that_does_not_fit_is_refused(length, message):
    with pytest.raises(ValueError, match=message):
        TrainSpec().check_episode(length)
    TrainSpec().check_episode(1000)


@pytest.mark.parametrize(
    "values", [{"energy": "euclid"}, {"loss": "both"}, {"gamma": 1.0}, {"gamma": 0.0}, {"lr_actor": 0.0}]
)
def test_an_agent_that_makes_no_sense_is_refused(values):
    with pytest.raises(ValidationError):
        AgentSpec(**values)
