"""The arm's tasks against MuJoCo's own numbers, closed forms, and the other simulator."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from pydantic import ValidationError

from envs import arm_binpick, arm_grasp, arm_push, arm_reach
from envs.arm.native import STATE, NativeArms
from envs.arm.scene import load
from envs.arm.spec import ArmSpec
from envs.arm.task import HIGH, LOW, START

SPECS: list[ArmSpec] = [
    arm_reach.Spec(backend="mujoco"),
    arm_grasp.Spec(backend="mujoco"),
    *(arm_push.Spec(backend="mujoco", difficulty=difficulty) for difficulty in ("easy", "hard")),
    *(arm_binpick.Spec(backend="mujoco", difficulty=difficulty) for difficulty in ("easy", "hard")),
]
PUSH = arm_push.Spec(backend="mujoco")
HALF_GAP = np.array([0.0375, 0, 0])  # metres from the cube to the goal of each fingertip


def label(spec: ArmSpec) -> str:
    return f"{spec.kind}-{getattr(spec, 'difficulty', '')}"


def made(spec: ArmSpec, num_envs: int, seed: int = 0) -> NativeArms:
    batch = spec.build(num_envs)
    assert isinstance(batch, NativeArms)
    batch.reset(seed)
    return batch


def placed(batch: NativeArms, **columns: Any) -> NativeArms:
    """The batch with some columns of its states replaced: q3=.. is column 3 of qpos, v3=.. of qvel."""
    state = batch.state()
    physics = state["physics"].copy()
    for name, value in columns.items():
        physics[:, int(name[1:]) + (batch.task.nq if name[0] == "v" else 0)] = value
    batch.restore({**state, "physics": physics})
    return batch


def random_actions(batch: NativeArms, steps: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (steps, batch.num_envs, batch.contract.action_size))


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_an_observation_holds_what_mujoco_says_of_the_state(spec: ArmSpec):
    batch = made(spec, 3)
    for action in random_actions(batch, 6):
        obs, facts = batch.step(action)
    contract, task = spec.contract, spec.task
    assert obs.shape == (3, contract.observation_size) and obs.dtype == np.float32
    assert not facts.done.any()
    model = load(task)
    for row, seen in zip(batch.state()["physics"], obs, strict=True):
        data, jacobian = mujoco.MjData(model), np.zeros((3, model.nv))
        data.qpos, data.qvel = row[: model.nq], row[model.nq : model.nq + model.nv]
        mujoco.mj_forward(model, data)
        mujoco.mj_jacBody(model, data, jacobian, None, model.body("link7").id)
        angles = [data.qpos[model.joint(f"joint{index}").qposadr[0]] for index in range(1, 8)]
        parts = [angles, data.body("link7").xpos, jacobian @ data.qvel]
        if task.cube:
            left, right = (data.body(name) for name in ("left_finger", "right_finger"))
            parts = [data.body("cube").xpos, *parts]
            if task.grasps:
                tips = [finger.xpos + finger.xmat.reshape(3, 3) @ (0, 0.005, 0.07) for finger in (left, right)]
                parts += [*tips, [np.linalg.norm(tips[0] - tips[1])]]
            else:
                parts += [[np.linalg.norm(left.xpos - right.xpos)]]
        np.testing.assert_allclose(seen[: contract.state_size], np.concatenate(parts), atol=2e-6)


BOXES = {  # the published start of the cube and the goal: centre, half size
    "arm-reach-": (None, ((0, 0.5, 0.3), (0.2, 0.2, 0.2))),
    "arm-grasp-": (((0, 0.6, 0.07), (0.3, 0.3, 0)), None),
    "arm-push-easy": (((-0.1, 0.6, 0.07), (0.1, 0.1, 0)), ((0.1, 0.6, 0.03), (0.1, 0.1, 0))),
    "arm-push-hard": (((-0.25, 0.65, 0.07), (0.25, 0.25, 0)), ((0.25, 0.65, 0.03), (0.25, 0.25, 0))),
    "arm-binpick-easy": (((-0.15, 0.6, 0.07), (0.09, 0.09, 0)), ((0.17, 0.6, 0.03), (0.09, 0.09, 0))),
    "arm-binpick-hard": (((-0.3, 0.6, 0.07), (0.15, 0.15, 0)), ((0.3, 0.6, 0.03), (0.15, 0.15, 0))),
}


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_episodes_begin_in_the_published_boxes(spec: ArmSpec):
    batch = made(spec, 400)
    obs = batch.observation
    cube, goal = BOXES[label(spec)]
    for box, places in ((cube, obs[:, :3]), (goal, obs[:, spec.contract.state_size :])):
        if box:
            center, half = np.array(box)
            assert (np.abs(places - center) <= half + 1e-6).all()
            assert (np.ptp(places, axis=0) >= 1.9 * half).all()  # and fill them
    joints = obs[:, 3:10] if spec.task.cube else obs[:, :7]
    np.testing.assert_allclose(joints, np.tile(START, (400, 1)), atol=1e-6)
    assert not batch.state()["physics"][:, spec.task.nq : spec.task.nq + spec.task.nv].any()


def test_actions_are_targets_of_four_joints_and_of_the_hand():
    task = PUSH.task
    ends = task.controls(np.array([[-1.0] * 5, [1.0] * 5, [0.0] * 5]), np)
    np.testing.assert_allclose(ends[0, :7], [0.3491, 0, 0, -3.0718, 0, 2.3562, 1.4487], atol=1e-12)
    np.testing.assert_allclose(ends[1, :7], [2.7925, 1.48353, 0, -0.0698, 0, 3.7525, 1.4487], atol=1e-12)
    np.testing.assert_allclose(ends[2, :7], (np.array(LOW) + HIGH) / 2, atol=1e-12)
    np.testing.assert_array_equal(ends[:, 7:], [[255, 255], [0, 0], [255, 255]])
    np.testing.assert_allclose(arm_reach.Spec().task.controls(np.ones((1, 4)), np), [HIGH], atol=1e-12)


def test_a_held_action_brings_the_first_joint_to_its_target():
    """Its axis is vertical, so no weight pulls it off."""
    batch = made(arm_reach.Spec(backend="mujoco"), 3)
    turn = np.array([-0.5, 0.2, 0.8])
    action = np.stack([turn, *[np.full(3, -0.2)] * 3], axis=1)
    for _ in range(60):
        obs, _ = batch.step(action)
    np.testing.assert_allclose(obs[:, 0], LOW[0] + (turn + 1) / 2 * (HIGH[0] - LOW[0]), atol=1e-3)


def test_the_model_is_a_panda():
    model = load(PUSH.task)
    masses = {"link1": 4.970684, "link4": 3.587895, "link7": 0.735522, "left_finger": 0.015, "cube": 1000 * 0.06**3}
    assert {name: model.body(name).mass[0] for name in masses} == pytest.approx(masses)
    data = mujoco.MjData(model)
    data.qpos[7:14] = 0, 0, 0, -np.pi / 2, 0, np.pi / 2, -np.pi / 4  # Franka's "ready"
    mujoco.mj_kinematics(model, data)
    # By its Denavit-Hartenberg parameters: up 0.333 + 0.316, elbow 0.0825, forearm 0.384, wrist 0.088.
    wrist = [0.0825 + 0.384 + 0.088, 0, 0.333 + 0.316 + 0.0825]
    np.testing.assert_allclose(data.body("link7").xpos, wrist, atol=1e-9)
    assert model.nmesh == 0
    option = model.opt
    assert (option.timestep, option.iterations, option.ls_iterations) == (0.002, 6, 12)
    assert (option.integrator, option.solver) == (
        mujoco.mjtIntegrator.mjINT_IMPLICITFAST,
        mujoco.mjtSolver.mjSOL_NEWTON,
    )


def test_nothing_touches_but_the_listed_pairs():
    reach, push, binpick = (load(spec.task) for spec in (SPECS[0], SPECS[2], SPECS[4]))
    assert (reach.npair, push.npair, binpick.npair) == (1, 8, 8 + 4 * 8)
    assert (reach.nq, reach.nu, push.nq, push.nv, push.nu) == (7, 7, 16, 15, 9)
    for model in (reach, push, binpick):
        assert not model.geom_contype.any() and not model.geom_conaffinity.any()


def test_a_step_is_25_steps_of_mujoco_while_no_motor_is_at_its_limit():
    batch = made(PUSH, 1)
    rest, near = np.array([0.3, -0.1, 0.2, 0.6, -1.0]), np.array([0.305, -0.1, 0.21, 0.6, -1.0])
    for _ in range(60):
        batch.step(rest[None])
    model = load(PUSH.task)
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, batch.state()["physics"][0, : PUSH.task.solver_size], STATE)
    data.ctrl = PUSH.task.controls(near, np)
    for _ in range(25):
        mujoco.mj_step(model, data)
        assert (np.abs(data.actuator_force) < model.actuator_forcerange[:, 1]).all()
    before = batch.observation[0]
    obs, _ = batch.step(near[None])
    after = batch.state()["physics"][0]
    np.testing.assert_allclose(after[:16], data.qpos, atol=1e-9)
    np.testing.assert_allclose(after[16:31], data.qvel, atol=1e-7)
    assert obs[0, 3] - before[3] > 0.001


def test_the_cube_drops_onto_the_table_and_stays():
    batch = made(PUSH, 4)
    start = batch.observation[:, :2]
    still = np.tile([0.0, -1.0, 0.0, 0.0, -1.0], (4, 1))
    for _ in range(20):
        obs, _ = batch.step(still)
    np.testing.assert_allclose(obs[:, 2], 0.03, atol=1e-3)
    np.testing.assert_allclose(obs[:, :2], start, atol=2e-3)


def test_the_hand_pushes_the_cube():
    batch = made(arm_push.Spec(backend="mujoco"), 1)
    low = [0.0, 0.2, -0.6, 1.0, 1.0]  # the closed fingers come to rest 1 cm above the table, at (0.006, 0.614)
    placed(batch, q0=-0.5)
    for _ in range(60):
        batch.step(np.array([low]))
    placed(batch, q0=0.08, q1=0.614, q2=0.03)
    before = batch.observation[0, :3]
    for turn in np.linspace(0, -0.5, 15):
        obs, _ = batch.step(np.array([[turn, *low[1:]]]))
    assert obs[0, 0] - before[0] > 0.1
    assert obs[0, 2] == pytest.approx(0.03, abs=0.01)


@pytest.mark.parametrize("difficulty", ["easy", "hard"])
def test_the_walls_of_a_bin_hold_the_cube(difficulty: Any):
    batch = made(arm_binpick.Spec(backend="mujoco", difficulty=difficulty), 8)
    middle, inner = {"easy": (-0.17, 0.135), "hard": (-0.3, 0.185)}[difficulty]
    way = np.arange(8) * np.pi / 4
    placed(batch, q0=middle, q1=0.6, q2=0.031, v0=1.5 * np.cos(way), v1=1.5 * np.sin(way))
    still = np.tile([0.0, -1.0, 0.0, 0.0, -1.0], (8, 1))
    for _ in range(20):
        obs, _ = batch.step(still)
    assert np.abs(obs[:, :2] - [middle, 0.6]).max() < inner
    assert np.abs(obs[:, :2] - [middle, 0.6]).max(1).min() > 0.02  # it did move


def test_the_radii_of_a_push():
    goal = np.array([0.25, 0.65, 0.03])
    for distance, expected in (
        (0.029, (True, True, True)),
        (0.031, (True, True, False)),
        (0.099, (True, True, False)),
        (0.101, (False, True, False)),
        (0.301, (False, False, False)),
    ):
        obs = np.concatenate([goal + np.array([0, distance, 0]), np.zeros(14), goal]).astype(np.float32)
        verdict = PUSH.judge(obs[None])
        assert (bool(verdict.success[0]), bool(verdict.easy[0]), bool(verdict.hard[0])) == expected
        assert verdict.distance[0] == pytest.approx(distance, abs=1e-6)


@pytest.mark.parametrize(
    ("away", "gap", "expected"),
    [
        (0.0, 0.075, (True, True, True)),
        (0.019, 0.071, (True, True, True)),
        (0.021, 0.075, (True, True, False)),
        (0.0, 0.069, (True, True, False)),
        (0.049, 0.094, (True, True, False)),
        (0.051, 0.075, (False, True, False)),
        (0.0, 0.1, (False, True, False)),
        (0.149, 0.03, (False, True, False)),
        (0.0, 0.02, (False, False, False)),
        (0.151, 0.075, (False, False, False)),
    ],
)
def test_a_grasp_needs_the_fingertips_around_the_cube_and_their_gap(away: float, gap: float, expected: Any):
    spec = arm_grasp.Spec()
    cube = np.array([0.1, 0.6, 0.03])
    left, right = (cube + np.array([sign * gap / 2, away, 0]) for sign in (1, -1))
    goal = np.concatenate([cube + HALF_GAP, cube - HALF_GAP, [0.075]])
    verdict = spec.judge(np.concatenate([cube, np.zeros(13), left, right, [gap], goal])[None])
    assert (bool(verdict.success[0]), bool(verdict.easy[0]), bool(verdict.hard[0])) == expected


def test_the_goal_of_a_grasp_follows_the_cube():
    batch = made(SPECS[1], 2)
    placed(batch, v0=0.5)
    for _ in range(5):
        obs, _ = batch.step(np.zeros((2, 5)))
    cube, goal = obs[:, :3], obs[:, 23:]
    np.testing.assert_allclose(goal[:, :3], cube + HALF_GAP, atol=1e-6)
    np.testing.assert_allclose(goal[:, 3:6], cube - HALF_GAP, atol=1e-6)
    np.testing.assert_allclose(goal[:, 6], 0.075, atol=1e-6)


@pytest.mark.parametrize("spec", [SPECS[1], SPECS[5]], ids=label)
def test_seeds_threads_and_restoring_change_no_number(spec: ArmSpec, monkeypatch: pytest.MonkeyPatch):
    spec = spec.model_copy(update={"episode_length": 5, "goal_resample": "episode", "starts": 2})
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = made(spec, 10, seed=3)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    three, later = made(spec, 10, seed=3), made(spec, 10, seed=4)
    assert (one.observation != later.observation).any()
    for index, action in enumerate(random_actions(one, 12)):
        if index == 7:
            np.testing.assert_array_equal(later.restore(one.state()), one.observation)
        (obs, facts), (other, _) = one.step(action), three.step(action)
        np.testing.assert_array_equal(obs, other)
        assert facts.truncated.all() == (index % 5 == 4)
        if index >= 7:
            np.testing.assert_array_equal(later.step(action)[0], obs)


def test_a_state_that_blows_up_is_broken_alone_and_leaves_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    batch = made(PUSH, 3)
    first, start = batch.observation, batch.state()["physics"]
    placed(batch, v8=np.array([1e9, 0, 0]))
    obs, facts = batch.step(np.zeros((3, 5)))
    assert facts.broken.tolist() == facts.terminated.tolist() == [True, False, False]
    np.testing.assert_array_equal(obs[0], first[0])
    np.testing.assert_array_equal(batch.state()["physics"][0], start[0])
    assert np.isfinite(obs).all() and not batch.step(np.zeros((3, 5)))[1].broken.any()
    bad = np.zeros((3, 5))
    bad[1, 2] = np.nan
    assert batch.step(bad)[1].broken.tolist() == [False, True, False]
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().err == ""


def test_mjx_and_mujoco_agree():
    """Free motion, with motors at their limits. The one compilation takes about 20 s."""
    import jax

    spec = arm_reach.Spec(backend="mujoco")
    env = spec.environment()
    physics, step = jax.jit(env.reset)(jax.random.PRNGKey(0)), jax.jit(env.step)
    native = made(spec, 1)
    native.restore({**native.state(), "physics": np.asarray(physics, np.float64)[None]})
    np.testing.assert_allclose(env.observe(physics), native.observation[0], atol=1e-6)
    start = native.observation[0, 5]
    for action in np.random.default_rng(0).uniform(-1, 1, (6, 4)).astype(np.float32):
        physics = step(physics, action)
        (obs,), _ = native.step(action[None])
        seen = np.asarray(env.observe(physics))
        np.testing.assert_allclose(seen[:10], obs[:10], atol=1e-4)
        np.testing.assert_allclose(seen[10:], obs[10:], atol=2e-3)  # metres a second
    assert abs(obs[5] - start) > 0.5  # joint 6, whose motor is the weakest


def test_auto_is_native_on_a_cpu():
    import jax

    if jax.default_backend() != "cpu":
        pytest.skip("there is an accelerator")
    assert isinstance(arm_push.Spec().build(1), NativeArms)


def test_an_unknown_difficulty_or_backend_is_told():
    with pytest.raises(ValidationError, match="'easy' or 'hard'"):
        arm_push.Spec(difficulty="medium")
    with pytest.raises(ValidationError, match="'auto', 'mjx' or 'mujoco'"):
        arm_reach.Spec(backend="gpu")
