"""`ancre play`: which trial is meant, what one episode is, and files that open offline."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from envs.host import HostBatch
from orchestrator.cli import main
from orchestrator.crl.agent import Agent, Topologies
from orchestrator.play.episode import Episode, episode
from orchestrator.play.top_view import walls
from orchestrator.pretrain.checkpoint import Checkpoints
from orchestrator.record.ledger import Ledger
from orchestrator.trials import find
from orchestrator.workloads.crl import Spec
from orchestrator.workloads.lnn import Spec as Linear

SMALL = {"env_steps": 20_000, "num_envs": 4, "unroll": 50, "slots": 500, "window": 100, "prefill": 150}
TRAIN = {**SMALL, "eval_every": 10_000, "batch": 32, "checkpoint_every": 10_000}
EPISODES = {
    "point": {"kind": "point"},
    "arm-push": {"kind": "arm-push", "episode_length": 8, "backend": "mujoco"},
    "simple-maze": {"kind": "simple-maze", "episode_length": 6},
}


def spec_of(env: dict[str, Any], **train: Any) -> Spec:
    return Spec.model_validate({"env": env, "model": {"num_blocks": 1, "width": 16}, "train": TRAIN | train})


def plan(home: Path, study: str, spec: Any) -> Path:
    """A trial that was planned; its folder."""
    folder = home / "studies" / study
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(folder)
    recorded = spec.model_dump(mode="json")
    ledger.write("planned", trial=spec.id, cell=spec.cell, arm="a", axes={}, seed=0, spec=recorded, steps=1)
    ledger.close()
    return folder / "trials" / str(spec.id)


def agent_of(spec: Spec) -> Agent:
    return Agent(spec.agent, spec.model, Topologies(*spec.topologies), spec.env.contract, spec.seed)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trials of three environments with a checkpoint of an untrained agent, and some that cannot be played."""
    home = tmp_path_factory.mktemp("home")
    for study, env in EPISODES.items():
        spec = spec_of(env)
        agent = agent_of(spec)
        agent.start()
        checkpoints = Checkpoints(plan(home, study, spec) / "checkpoints", spec.model_dump(mode="json"))
        checkpoints.save(1234, {"algorithm": {"agent": agent.state()}})
    plan(home, "no-checkpoint", spec_of({"kind": "point", "layout": "open"}, checkpoint_every=0))
    plan(home, "linear", Linear())
    return home


def trial(study: str) -> str:
    return spec_of(EPISODES[study]).id


@pytest.fixture(scope="module")
def pages(home: Path) -> dict[str, str]:
    """Study -> the page of an episode with seed 3."""
    for study in EPISODES:
        out = home / "deep" / f"{study}.html"
        assert main(["play", trial(study), "--home", str(home), "--out", str(out), "--seed", "3"]) == 0
    return {study: (home / "deep" / f"{study}.html").read_text(encoding="utf-8") for study in EPISODES}


@pytest.mark.parametrize("study", ["point", "arm-push"])
def test_an_episode_follows_the_mean_action(home: Path, study: str) -> None:
    """Replayed by hand: the same start, and each frame one step after the one before it."""
    played = episode(find(trial(study), home, Spec, "played"), seed=3)
    spec = spec_of(EPISODES[study])
    assert (played.step, played.env) == (1234, spec.env.evaluation())
    length = spec.env.episode_length
    assert len(played.observations) == length + 1 and not played.ended
    assert len(played.physics) == length  # the last step ended the episode, and its physics is gone
    batch, actor = played.env.build(1), agent_of(spec).actor
    assert isinstance(batch, HostBatch)
    observation = batch.reset(3)
    for seen in played.observations[:-1]:
        np.testing.assert_array_equal(seen, observation[0])
        with torch.inference_mode():
            mean, _ = actor(torch.from_numpy(observation))
        observation, step = batch.step(torch.tanh(mean).numpy())
    np.testing.assert_array_equal(played.observations[-1], step.final_obs[0])


@pytest.mark.parametrize("study", EPISODES)
def test_the_page_opens_offline_and_says_what_happened(pages: dict[str, str], study: str) -> None:
    html = pages[study]
    assert f"Trial {trial(study)} of study {study}, after 1,234 environment steps." in html
    assert not re.search(r"(src|href)=\"(?!#|data:)", html)
    assert not re.search(r"(?m)^\s*import\b|\bimport\(", html)  # brax's modules would load each other
    assert "unpkg" not in html and "cdn." not in html
    assert ("brax-viewer" in html) == (study != "point")


def scene(page: str) -> dict[str, Any]:
    packed = re.search(r'show\(Viewer, "([^"]+)"', page)
    assert packed
    held: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    return held


def test_the_viewer_has_every_frame_and_every_link(pages: dict[str, str]) -> None:
    held = scene(pages["simple-maze"])
    assert len(held["states"]["x"]) == 6
    assert held["opt"]["timestep"] == pytest.approx(0.05)  # the viewer's time of a frame
    assert {len(frame["pos"]) for frame in held["states"]["x"]} == {len(held["link_names"])}


def test_the_arm_is_seen_with_its_cube_and_goal(home: Path, pages: dict[str, str]) -> None:
    """The cube is where the observation says, in every frame; the links have rods."""
    held = scene(pages["arm-push"])
    played = episode(find(trial("arm-push"), home, Spec, "played"), seed=3)
    cube = held["link_names"].index("cube")
    shown = [frame["pos"][cube] for frame in held["states"]["x"]]
    np.testing.assert_allclose(shown, played.observations[:-1, :3], atol=1e-6)
    assert sum(any(geom["name"] == "Capsule" for geom in held["geoms"].get(f"link{k}", [])) for k in range(1, 8)) >= 4
    (goal,) = [geom for geom in held["geoms"]["world"] if geom["name"] == "Sphere"]
    np.testing.assert_allclose(goal["pos"], played.goals[-1], atol=1e-6)


def test_a_picture_from_above(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "episode.png"
    assert main(["play", trial("point"), "--home", str(home), "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_without_out_it_lies_in_the_home_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", trial("point")[:6], "--home", str(home)]) == 0
    assert capsys.readouterr().out == f"{home / 'plays' / trial('point')}.html\n"


def test_walls_are_those_of_the_layout() -> None:
    """U: a rim of 16 cells, and two cells between the arms; the point never stands in one."""
    centres, size = walls(spec_of({"kind": "point"}).env)
    assert size == 1.0 and len(centres) == 15
    centres, size = walls(spec_of({"kind": "ant-maze", "layout": "u", "episode_length": 9}).env)
    assert size == 4.0 and len(centres) == 18
    assert len(walls(spec_of({"kind": "ant", "episode_length": 9}).env)[0]) == 0


def test_time_at_goal_counts_the_steps_within_the_radius() -> None:
    """Four steps whose distances are 0.5, 0.2, 0.0 and 0.31, of a radius of 0.3; the start is no step."""
    env = spec_of({"kind": "point"}).env
    seen = np.zeros((5, 6), dtype=np.float32)
    seen[:, 0] = [0.0, 0.5, 0.2, 0.0, 0.31]
    assert Episode(env, 1, seen, (), False).at_goal == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["zzz"], "no trial begins with 'zzz'"),
        ([""], "no trial begins with ''"),
        ([spec_of({"kind": "point", "layout": "open"}, checkpoint_every=0).id], "its train.checkpoint_every is 0"),
        ([Linear().id], "is of workload 'lnn'; only crl can be played"),
        ([trial("point"), "--out", "episode.mp4"], "--out episode.mp4: should end in .html or .png"),
        ([trial("point"), "--out", "/dev/null/x.html"], "--out /dev/null/x.html: cannot be written"),
    ],
)
def test_what_cannot_be_played_is_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["play", "--home", str(home), *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_two_trials_are_no_answer(home: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Ids are hexadecimal: of seventeen trials, two begin alike."""
    for rate in range(17):
        plan(tmp_path, "many", Linear.model_validate({"train": {"steps": 1 + rate}}))
    ids = [Linear.model_validate({"train": {"steps": 1 + rate}}).id for rate in range(17)]
    first = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) > 1)
    assert main(["play", first, "--home", str(tmp_path)]) == 2
    assert f"trials begin with {first!r}" in capsys.readouterr().err
