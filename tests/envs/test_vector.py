"""The gymnasium face: ids, and what it refuses."""

import importlib

import gymnasium
import numpy as np
import pytest

from envs import vector
from orchestrator import kinds

PAPERS = {
    *("ant", "ant_ball", "ant_push", "reacher", "pusher_easy", "pusher_hard", "humanoid", "simple_u_maze"),
    *("ant_u_maze", "ant_u4_maze", "ant_u5_maze", "ant_big_maze", "ant_hardest_maze"),
    *("humanoid_u_maze", "humanoid_big_maze", "arm_reach", "arm_grasp", "arm_push_easy", "arm_push_hard"),
    *("arm_binpick_easy", "arm_binpick_hard"),
}


@pytest.fixture(scope="module")
def known():
    vector.register()
    vector.register()
    return {name: spec for name, spec in gymnasium.registry.items() if name.startswith("ancre/")}


def test_every_kind_and_every_published_task_has_an_id(known):
    assert {kind.replace("_", "-") for kind in vector.KINDS} == set(kinds.names("env"))
    assert {f"ancre/{name}-v0" for name in PAPERS} <= set(known)
    for spec in known.values():
        fields = dict(spec.kwargs)
        assert importlib.import_module(f"envs.{fields.pop('kind')}").Spec(**fields)


def test_fields_of_the_spec_are_keywords_of_make_vec(known):
    envs = gymnasium.make_vec("ancre/point-v0", num_envs=3, episode_length=2)
    obs, infos = envs.reset(seed=1)
    assert obs.shape == (3, envs.unwrapped.contract.observation_size) and infos == {}
    for truncated in ([False] * 3, [True] * 3, [False] * 3):
        _, _, _, cut, infos = envs.step(envs.action_space.sample())
        assert cut.tolist() == truncated and ("final_obs" in infos) is truncated[0]


def test_the_published_task_is_the_kind_with_its_fields(known):
    envs = gymnasium.make_vec("ancre/pusher_hard-v0", num_envs=2)
    assert envs.unwrapped.batch.batch.spec.difficulty == "hard"


def test_what_does_not_fit_is_one_line(known):
    envs = gymnasium.make_vec("ancre/point-v0", num_envs=3)
    with pytest.raises(ValueError, match="seed: the environments of a batch draw from one seed"):
        envs.reset(seed=[1, 2, 3])
    envs.reset(seed=1)
    with pytest.raises(ValueError, match=r"actions of shape \(2, 2\): these environments take \(3, 2\)"):
        envs.step(np.zeros((2, 2), np.float32))
