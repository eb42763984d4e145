"""SafetyRooms: the robot moves as published, costs are Safety Gym's, images are drawn only if somebody looks."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import signal
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

import sgm.envs
from sgm.envs.safety.layouts import HEIGHT, PILLAR_HEIGHT, Layout, generate
from sgm.errors import InputError

mujoco = pytest.importorskip("mujoco")
safety = pytest.importorskip("sgm.envs.safety.env")
from sgm.envs.safety.model import TIMESTEP, physics, png, scenery  # noqa: E402
from sgm.envs.safety.pool import WorkerDied, check  # noqa: E402
from sgm.envs.safety.worker import FRAME_SKIP, STATE, NoImages, Physics, open_context  # noqa: E402

SafetyRoomsEnv, SafetyRoomsVectorEnv = safety.SafetyRoomsEnv, safety.SafetyRoomsVectorEnv
Tasks, explore, wander = safety.Tasks, safety.explore, safety.wander

ID = "sgm/SafetyRooms-v0"
SIDE = 24
SMALL = generate(0, rooms=(2, 1), pillars=2, hazards=1)
SETTINGS = {"layout": SMALL, "size": SIDE, "render_mode": "rgb_array"}
HERE, THERE = (0.5, 0.5, 0.0), (3.2, 1.2, 2.0)
FORWARD, LEFT, IDLE = (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)
REST = (np.nan, np.nan)

try:
    check()
    NO_IMAGES = ""
except NoImages as error:
    NO_IMAGES = str(error)
draws = pytest.mark.skipif(bool(NO_IMAGES), reason=NO_IMAGES)


def square(side: float, **more) -> Layout:
    """A single square room."""
    walls = ((-1, -1, 0, side + 1), (side, -1, side + 1, side + 1), (0, -1, side, 0), (0, side, side, side + 1))
    return Layout((side, side), walls, (), **more)


@pytest.fixture(scope="module")
def envs():
    """Three robots, moved and seen for by two processes."""
    env = gymnasium.make_vec(ID, num_envs=3, workers=2, **SETTINGS)
    yield env
    env.close()


@pytest.fixture(scope="module")
def blind():
    """Two robots that see nothing unless somebody looks."""
    env = SafetyRoomsVectorEnv(2, layout=SMALL, size=SIDE, workers=1, images=False)
    yield env
    env.close()


@pytest.fixture(scope="module")
def env():
    """One robot."""
    env = gymnasium.make(ID, **SETTINGS)
    yield env
    env.close()


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key], equal_nan=True) for key in one)


# The robot, against its published parameters

SPHERE, BOX = 4 / 3 * np.pi * 0.1**3, 0.1**3  # kg, at a density of 1
MASS = SPHERE + BOX
OFFSET = 0.1 * BOX / MASS  # of the centre of mass from the hinge, m
INERTIA = 0.4 * SPHERE * 0.1**2 + BOX * (0.1**2 / 6 + 0.1**2)  # about the hinge, kg m²
DAMPING = np.array([0.01, 0.01, 0.005])
GEAR, LIMIT = 0.3, 0.05


def predicted(state: np.ndarray, action: tuple[float, float], steps: int) -> np.ndarray:
    """Positions and velocities, (6,), after time steps of Euler's method with implicit damping, from Newton's laws."""
    place, speed = state[:3].copy(), state[3:6].copy()
    for _ in range(steps):
        cos, sin, turning = np.cos(place[2]), np.sin(place[2]), speed[2]
        push = GEAR * np.clip(action[0], -LIMIT, LIMIT)
        twist = GEAR * np.clip(action[1] - GEAR * turning, -LIMIT, LIMIT)
        moment = MASS * OFFSET
        mass = np.array([[MASS, 0, -moment * sin], [0, MASS, moment * cos], [-moment * sin, moment * cos, INERTIA]])
        swing = moment * turning**2 * np.array([cos, sin, 0])
        force = np.array([push * cos, push * sin, twist]) - DAMPING * speed + swing
        speed += TIMESTEP * np.linalg.solve(mass + TIMESTEP * np.diag(DAMPING), force)
        place += TIMESTEP * speed
    return np.concatenate([place, speed])


@pytest.fixture(scope="module")
def hall() -> Physics:
    """A place where there is nothing to run into."""
    return Physics(square(24.0))


def test_forward_it_reaches_one_and_a_half_metres_per_second_exponentially(hall):
    state = np.zeros(STATE)
    state[:2] = 2.0, 12.0
    keep = MASS / (MASS + TIMESTEP * DAMPING[0])  # of what is missing from the final speed, in a time step
    for step in range(1, 121):
        hall.step(state, np.array(FORWARD))
        number = FRAME_SKIP * step
        assert state[3] == pytest.approx(1.5 * (1 - keep**number), abs=1e-11)
        travelled = 1.5 * TIMESTEP * (number - keep * (1 - keep**number) / (1 - keep))
        assert state[0] == pytest.approx(2 + travelled, abs=1e-9)
    assert state[3] == pytest.approx(GEAR * LIMIT / DAMPING[0], abs=1e-6)
    assert -FRAME_SKIP * TIMESTEP / np.log(keep**FRAME_SKIP) == pytest.approx(MASS / DAMPING[0], rel=2e-3)
    np.testing.assert_allclose(state[[1, 2, 4, 5]], [12, 0, 0, 0], atol=1e-12)


def test_turning_it_reaches_three_radians_per_second_and_swings_its_nose(hall):
    state = np.zeros(STATE)
    state[:2] = 12.0
    expected = state[:6]
    for step in range(60):
        expected = predicted(expected, LEFT, FRAME_SKIP)
        hall.step(state, np.array(LEFT))
        np.testing.assert_allclose(state[:6], expected, atol=1e-9, err_msg=f"step {step}")
    # The servo would like 1 / 0.3 rad/s: its force is at its limit all the way.
    assert state[5] == pytest.approx(GEAR * LIMIT / DAMPING[2], abs=0.02)


def test_it_drives_in_circles_as_newton_says(hall):
    random = np.random.default_rng(0)
    state = np.zeros(STATE)
    state[:3] = 12.0, 12.0, 0.3
    expected = state[:6]
    for step in range(30):
        # The servo at its limit: below it the time step is too long for it, it trembles, and rounding errors grow.
        action = random.uniform(-1, 1), 1.0
        expected = predicted(expected, action, FRAME_SKIP)
        hall.step(state, np.array(action))
        np.testing.assert_allclose(state[:6], expected, atol=1e-8, err_msg=f"step {step}")


def test_every_time_step_is_as_newton_says_whatever_the_action_and_the_speed():
    model = mujoco.MjModel.from_xml_string(physics())
    data = mujoco.MjData(model)
    random = np.random.default_rng(1)
    for _ in range(50):
        action = random.uniform(-1, 1, 2) * random.choice([1.0, 0.04], 2)
        state = random.uniform(-1, 1, 6) * [5, 5, 3, 1.5, 1.5, 3]
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = state[:3], state[3:], action
        mujoco.mj_step(model, data)
        expected = predicted(state, action, 1)
        np.testing.assert_allclose(np.concatenate([data.qpos, data.qvel]), expected, atol=1e-12)


def test_contacts_are_as_published():
    model = mujoco.MjModel.from_xml_string(physics(SMALL.walls, SMALL.pillars))
    assert set(model.geom_condim) == {6} and model.opt.timestep == 0.002
    np.testing.assert_array_equal(model.geom("robot").friction, [1, 0.01, 0.01])
    default = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    for name in ("geom_solref", "geom_solimp", "geom_margin"):
        assert (getattr(model, name) == getattr(default, name)[0]).all()
    for name in ("integrator", "cone", "solver", "iterations", "tolerance", "impratio"):
        assert getattr(model.opt, name) == getattr(default.opt, name)


def test_a_model_of_what_is_near_gives_the_same_numbers_as_a_model_of_everything():
    layout = generate(0)
    fast = Physics(layout)
    model = mujoco.MjModel.from_xml_string(physics(layout.walls, layout.pillars))
    # Safety Gym's floor carries the robot at distance 0, which is no contact: it changes nothing either.
    floor = physics(layout.walls, layout.pillars).replace("<body", '<geom type="plane" size="9 9 .1"/><body', 1)
    floored = mujoco.MjModel.from_xml_string(floor)
    random = np.random.default_rng(0)
    starts = np.concatenate([layout.draw_poses(random, 6), [(x - r - 0.25, y, 0.0) for x, y, r in layout.pillars[:2]]])
    touched = 0
    for start, actions in zip(starts, wander(random, len(starts), 25), strict=True):
        state = np.zeros(STATE)
        state[:3] = start
        both = [mujoco.MjData(each) for each in (model, floored)]
        for data in both:
            data.qpos[:] = start
        for action in actions.astype(float):
            touched += fast.step(state, action)
            for data in both:
                data.ctrl[:] = action
                mujoco.mj_step(data.model, data, FRAME_SKIP)
                numbers = np.concatenate([data.qpos, data.qvel, data.qacc_warmstart])
                np.testing.assert_array_equal(state, numbers)
    assert touched and len([found for found in fast.models if found]) > 5


def test_a_robot_that_is_too_fast_is_still_stopped_by_a_wall_far_away():
    walled = Physics(square(3.0))
    state = np.zeros(STATE)
    state[:6] = 0.5, 1.5, 0.0, 30.0, 0.0, 0.0
    for _ in range(3):
        walled.step(state, np.array(IDLE))
    assert 0 < state[0] < 3


# Walls and costs


def test_a_wall_stops_the_robot_and_costs_nothing(blind):
    blind.reset(options={"starts": [(0.5, 0.5, np.pi), (0.5, 0.5, -np.pi / 2)]})
    for _ in range(40):
        observation, _, _, _, infos = blind.step([FORWARD, FORWARD])
        assert not infos["cost"].any()
    x, y = infos["pose"][0, 0], infos["pose"][1, 1]
    assert x == pytest.approx(0.05 + 0.15, abs=0.01) and y == pytest.approx(0.05 + 0.15, abs=0.01)  # nose to the wall
    assert abs(observation["odometry"][:, 3]).max() < 0.05


def test_touching_a_pillar_costs_one_as_long_as_it_lasts():
    layout = square(3.0, pillars=((2.0, 1.5, 0.12),), colours=("#ffffff",))
    env = SafetyRoomsVectorEnv(1, layout=layout, images=False)
    env.reset(options={"starts": (1.2, 1.5, 0.0)})
    gaps, costs = [], []
    for action in [FORWARD] * 12 + [(-1.0, 0.0)] * 5:
        infos = env.step([action])[4]
        gaps.append(2.0 - 0.12 - infos["pose"][0, 0] - 0.15)
        costs.append(infos["cost_pillars"][0])
        assert infos["cost"][0] == infos["cost_pillars"][0] and infos["cost_hazards"][0] == 0
    env.close()
    assert costs[0] == 0 and max(costs) == 1 and costs[-1] == 0
    np.testing.assert_array_equal(np.array(gaps) <= 0, np.array(costs) == 1)


def test_a_hazard_costs_one_with_the_centre_in_it_and_stops_nobody(blind):
    (x, y, radius), *_ = SMALL.hazards
    outside = (x - radius - 0.02, y, 0.0)
    _, infos = blind.reset(options={"starts": [(x, y, 0.0), outside]})
    assert infos["cost_hazards"].tolist() == infos["cost"].tolist() == [1, 0]
    for _ in range(4):
        infos = blind.step([IDLE, FORWARD])[4]
    assert infos["cost_hazards"].tolist() == infos["cost"].tolist() == [1, 1] and not infos["cost_pillars"].any()


# What is known


def test_odometry_is_pose_and_velocity_in_the_robots_own_frame(blind):
    starts = np.array([(0.5, 0.4, 0.5), (0.6, 0.6, 3.0)])
    observation, _ = blind.reset(options={"starts": starts})
    np.testing.assert_allclose(observation["odometry"], np.column_stack([starts, np.zeros((2, 3))]), rtol=1e-6)
    for _ in range(3):
        before = observation["odometry"]
        observation, _, _, _, infos = blind.step([FORWARD, LEFT])
    ahead, turning = observation["odometry"]
    np.testing.assert_allclose(ahead[3:5], [0.66, 0], atol=0.03)
    assert np.hypot(*(ahead - before[0])[:2]) == pytest.approx(0.1 * (ahead[3] + before[0, 3]) / 2, rel=0.05)
    assert turning[5] == pytest.approx(3.0, abs=0.1) and abs(turning[3:5]).max() < 0.1
    assert -np.pi <= turning[2] < 0  # from 3 rad on to the left
    np.testing.assert_allclose(observation["odometry"][:, :3], infos["pose"], rtol=1e-6)
    assert blind.observation_space.contains(observation)


@draws
def test_what_is_seen_is_where_it_is():
    """A red disc ahead on the left is in the left of the image, and moves to the right as the robot turns left."""
    layout = square(4.0, hazards=((2.0, 2.0, 0.3),))
    env = SafetyRoomsVectorEnv(1, layout=layout)
    ahead = np.array([(1.2, 1.7, heading) for heading in (0.0, 0.36, 0.8)])
    places = []
    for image in env.see(ahead).astype(int):
        red = (image[..., 0] > 120) & (image[..., 1] < 90)
        rows, columns = np.nonzero(red)
        assert 50 < red.sum() < 600 and rows.min() > 20
        places.append(columns.mean())
    assert places[0] < 27 < places[1] < 37 < places[2]
    assert not ((env.see([(1.2, 1.7, np.pi)])[..., 0] > 120) & (env.see([(1.2, 1.7, np.pi)])[..., 1] < 90)).any()
    env.close()


def test_the_camera_is_safety_gyms():
    """Camera at 0.15 over the body, field of view 90°, xyaxes "0 -1 0 .4 0 1"."""
    from sgm.envs.safety.model import EYE_HEIGHT, EYE_TILT, FIELD_OF_VIEW, ROBOT_HEIGHT

    across, up = np.array([0, -1.0, 0]), np.array([0.4, 0, 1.0]) / np.hypot(0.4, 1.0)
    forward = -np.cross(across, up)
    np.testing.assert_allclose(forward, [np.cos(EYE_TILT), 0, -np.sin(EYE_TILT)])
    np.testing.assert_allclose(up, [np.sin(EYE_TILT), 0, np.cos(EYE_TILT)])
    assert (EYE_HEIGHT, FIELD_OF_VIEW, HEIGHT, PILLAR_HEIGHT) == (ROBOT_HEIGHT + 0.15, 90.0, 0.8, 0.5)


@draws
def test_images_tell_places_apart_and_are_always_the_same(envs):
    poses = SMALL.draw_poses(np.random.default_rng(0), 300)  # more than are drawn at once
    with pytest.raises(InputError, match="size is 999"):
        envs.see(poses, size=999)
    images = envs.see(poses)
    np.testing.assert_array_equal(images, envs.see(poses))
    np.testing.assert_array_equal(images[[7]], envs.see(poses[[7]]))
    other = SafetyRoomsVectorEnv(1, layout=SMALL, size=SIDE)
    np.testing.assert_array_equal(images[:20], other.see(poses[:20]))
    other.close()
    assert len(np.unique(images.reshape(300, -1), axis=0)) == 300 and images.std() > 30
    assert envs.see(np.empty((0, 3))).shape == (0, SIDE, SIDE, 3)


@draws
def test_looking_shows_the_observation(envs):
    observation, infos = envs.reset(seed=4)
    np.testing.assert_array_equal(envs.look([0, 1, 2]), observation["observation"])
    np.testing.assert_array_equal(envs.see(infos["goal_pose"]), observation["desired_goal"])
    for _ in range(3):
        observation, *_ = envs.step([FORWARD, LEFT, REST])
        np.testing.assert_array_equal(envs.look(np.array([2, 0])), observation["observation"][[2, 0]])
    assert envs.look([]).shape == (0, SIDE, SIDE, 3)


@draws
def test_without_images_nothing_is_drawn_unless_asked_for(blind, monkeypatch):
    asked = []
    run = blind.workers.run
    monkeypatch.setattr(blind.workers, "run", lambda what, *more: (asked.append(what), run(what, *more)))
    observation, infos = blind.reset(seed=1)
    assert set(observation) == set(blind.single_observation_space) == {"odometry", "desired_goal"}
    assert np.isnan(infos["goal_pose"]).all() and not observation["desired_goal"].any()
    blind.step([FORWARD, LEFT])
    assert asked == ["step"]
    observation, _ = blind.reset(options={"goals": [HERE, THERE]})
    assert asked == ["step", "see"] and (observation["desired_goal"].reshape(2, -1).std(axis=1) > 10).all()
    assert blind.look([1]).std() > 10 and asked[2:] == ["see"]


def test_physics_needs_no_opengl(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "off")
    env = SafetyRoomsVectorEnv(1, layout=SMALL, images=False)
    env.reset(seed=0)
    assert env.step([FORWARD])[4]["pose"].shape == (1, 3)
    with pytest.raises(NoImages, match="MUJOCO_GL is 'off', so images cannot be rendered: unset it, or set it to"):
        env.look([0])
    assert env.step([FORWARD])[4]["pose"].shape == (1, 3)
    env.close()


def test_if_no_opengl_works_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    tried = []

    def load(name):
        tried.append(name)
        raise OSError(f"no library for {name}")

    with pytest.raises(NoImages, match=r"egl: no library .*; osmesa: .*libegl1 .*libgl1-mesa-dri .*or libosmesa6"):
        open_context(8, None, lambda: None, load)
    with pytest.raises(NoImages, match=r"works here without a display \(osmesa: no library"):
        open_context(8, "OSMesa ", lambda: None, load)
    assert tried == ["mujoco.egl", "mujoco.osmesa", "mujoco.osmesa"]


# Episodes


@draws
def test_one_robot_is_a_row_of_many_bit_for_bit(envs, env):
    actions = wander(np.random.default_rng(0), 8, 3)[:8].reshape(8, 3, 2)
    together = [envs.reset(seed=5), *(envs.step(all_of_them) for all_of_them in actions)]
    for row in range(3):
        alone = [env.reset(seed=5 + row), *(env.step(all_of_them[row]) for all_of_them in actions)]
        for one, many in zip(alone, together, strict=True):
            assert same(one[0], {key: value[row] for key, value in many[0].items()})
            assert same(one[-1], {key: value[row] for key, value in many[-1].items() if not key.startswith("_")})
            if len(one) == 5:
                assert one[1:4] == tuple(part[row] for part in many[1:4])


def test_the_number_of_processes_makes_no_difference():
    actions = wander(np.random.default_rng(0), 7, 10)
    runs = []
    for workers in (1, 3):
        env = SafetyRoomsVectorEnv(7, layout=SMALL, workers=workers, images=False)
        runs.append([env.reset(seed=1), *(env.step(actions[:, step]) for step in range(10))])
        env.close()
    assert all(same(one[0], other[0]) and same(one[-1], other[-1]) for one, other in zip(*runs, strict=True))


@draws
def test_near_the_goal_the_episode_ends_with_reward_zero(envs):
    goal = (HERE[0] + 0.7, HERE[1], 0.0)
    observation, infos = envs.reset(options={"starts": HERE, "goals": [goal, THERE, THERE]})
    np.testing.assert_allclose(infos["distance"][0], 0.7)
    np.testing.assert_array_equal(infos["goal_pose"][0], goal)
    assert not infos["success"].any() and envs.observation_space.contains(observation)
    for _ in range(20):
        _, rewards, terminated, truncated, infos = envs.step([FORWARD, IDLE, LEFT])
        np.testing.assert_array_equal(terminated, infos["distance"] <= 0.4)
        np.testing.assert_array_equal(rewards, np.where(terminated, 0.0, -1.0))
        np.testing.assert_array_equal(infos["is_success"], terminated)
        assert not truncated.any()
        if terminated[0]:
            break
    assert terminated.tolist() == [True, False, False]


@draws
def test_without_a_goal_there_is_nothing_to_reach(envs, env):
    observation, infos = envs.reset(options={"goals": None})
    assert not observation["desired_goal"].any() and np.isnan(infos["goal_pose"]).all()
    assert not envs.step([IDLE] * 3)[2].any()
    assert not env.reset(options={"start": HERE, "goal": None})[0]["desired_goal"].any()


def test_an_episode_is_cut_off_after_its_steps(blind, monkeypatch):
    assert blind.max_episode_steps == 300
    monkeypatch.setattr(blind, "max_episode_steps", 3)
    blind.reset(seed=0)
    actions = [[IDLE, REST], [IDLE, IDLE], [IDLE, IDLE]]
    assert [blind.step(both)[3].tolist() for both in actions] == [[False, False]] * 2 + [[True, False]]


def test_nan_leaves_a_robot_alone_and_zero_does_not(blind):
    assert np.isnan(blind.idle_action)
    blind.reset(options={"starts": HERE})
    for _ in range(3):
        _, _, _, _, before = blind.step([FORWARD, FORWARD])
    _, _, _, _, after = blind.step([REST, IDLE])
    np.testing.assert_array_equal(after["pose"][0], before["pose"][0])
    assert after["pose"][1, 0] > before["pose"][1, 0] + 0.03  # it rolls on
    assert blind.elapsed.tolist() == [3, 4]


def test_only_the_rows_of_the_mask_are_reset_and_read(blind):
    blind.reset(seed=0)
    for _ in range(4):
        _, _, _, _, before = blind.step([FORWARD, FORWARD])
    starts = [THERE, (np.nan, np.nan, np.nan)]
    _, infos = blind.reset(options={"starts": starts, "reset_mask": np.array([True, False])})
    np.testing.assert_allclose(infos["pose"][0], THERE)
    np.testing.assert_array_equal(infos["pose"][1], before["pose"][1])
    assert blind.elapsed.tolist() == [0, 4]


def test_nothing_returned_changes_later(blind):
    observation, infos = blind.reset(seed=0)
    before = observation["odometry"].copy(), infos["pose"].copy(), infos["cost"].copy()
    for _ in range(4):
        blind.step([FORWARD, LEFT])
    for now, then in zip((observation["odometry"], infos["pose"], infos["cost"]), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_tasks_are_the_same_for_everybody_and_far_enough_apart():
    tasks, again = (Tasks.draw(generate(), 40, seed=3) for _ in range(2))
    np.testing.assert_array_equal(tasks.starts, again.starts)
    np.testing.assert_array_equal(tasks.goals, again.goals)
    assert len(tasks) == 40 and np.hypot(*(tasks.starts - tasks.goals).T[:2]).min() >= 2
    assert generate().fits(tasks.starts).all() and generate().fits(tasks.goals).all()
    with pytest.raises(InputError, match="least is 9; give a distance that start and goal in 3.6 × 1.8 m can be"):
        Tasks.draw(SMALL, 5, seed=0, least=9)


# Exploration


@draws
def test_exploration_is_the_same_whatever_the_number_of_robots_and_of_processes(envs, blind):
    first, other = explore(envs, 4, 6, seed=4), explore(blind, 4, 6, seed=4)
    assert first.frames.shape == (4, 7, SIDE, SIDE, 3) and first.odometry.shape == (4, 7, 6)
    assert first.actions.shape == (4, 6, 2) and first.poses.shape == (4, 7, 3)
    for name in ("frames", "odometry", "actions"):
        np.testing.assert_array_equal(getattr(first, name), getattr(other, name))
    again = envs.see(first.poses[2, [3]])[0]  # from rounded poses
    assert abs(first.frames[2, 3].astype(int) - again).mean() < 1
    assert not np.array_equal(explore(blind, 1, 2, seed=5).odometry, first.odometry[:1, :3])
    with pytest.raises(InputError, match="give 1 or more of each"):
        explore(blind, 0, 5, seed=0)


def test_random_actions_are_smooth_mostly_forward_and_cover_the_rooms():
    actions = wander(np.random.default_rng(0), 24, 120)
    assert actions.dtype == np.float32 and abs(actions).max() <= 1
    assert 0.6 < (actions[..., 0] > 0).mean() < 0.75 and abs(actions[..., 1].mean()) < 0.1
    assert abs(np.diff(actions, axis=1)).mean() < 0.35
    env = SafetyRoomsVectorEnv(24, layout=SMALL, images=False)
    env.reset(seed=0)
    places = np.array([env.step(actions[:, step])[4]["pose"][:, :2] for step in range(120)])
    env.close()
    cells = np.histogram2d(*places.reshape(-1, 2).T, bins=(12, 6), range=[[0, 3.6], [0, 1.8]])[0]
    free = SMALL.reachable.reshape(12, 6, 6, 6).mean((1, 3)) >= 0.5
    assert (cells[free] > 0).mean() > 0.95


# Gymnasium


@draws
def test_gymnasium_finds_nothing_wrong(env):
    check_env(env.unwrapped)


@draws
def test_it_is_registered_without_being_loaded_and_limits_itself_to_300_steps(env, envs):
    importlib.reload(sgm.envs)  # warnings are errors here
    assert gymnasium.spec(ID).max_episode_steps == safety.EPISODE_STEPS == 300
    assert isinstance(env, TimeLimit) and isinstance(env.unwrapped, SafetyRoomsEnv)
    assert isinstance(envs, SafetyRoomsVectorEnv) and env.unwrapped.layout is SMALL
    envs.reset(seed=5)
    assert envs.np_random_seed == (5, 6, 7)


@draws
def test_rendering_gives_larger_images(env, envs):
    env.reset(seed=1)
    envs.reset(seed=[1, 2, 1])
    images = envs.render()
    assert [image.shape for image in images] == [(256, 256, 3)] * 3
    np.testing.assert_array_equal(env.render(), images[0])
    np.testing.assert_array_equal(images[0], images[2])
    coarse = images[0][:240, :240].reshape(SIDE, 10, SIDE, 10, 3).mean((1, 3))
    assert np.corrcoef(coarse.ravel(), envs.look([0]).ravel())[0, 1] > 0.7  # the same view
    assert SafetyRoomsEnv.metadata["render_fps"] == 10


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": (0, 0, 0)}, r"starts\[0\] is x, y, heading = 0, 0, 0; give one within 3.6 × 1.8 m where the robot"),
        ({"starts": [HERE, (0.17, 0.9, np.pi)]}, r"starts\[1\] is x, y, heading = 0.17, 0.9, 3.14159; give"),
        ({"goals": [HERE, (9e9, 0, 0)]}, r"goals\[1\] is x, y, heading = 9e\+09, 0, 0"),
        ({"starts": (np.nan, 0, 0)}, r"starts\[0\] is x, y, heading = nan, 0, 0"),
        ({"starts": (1, 1)}, r"starts is \(1, 1\); give x and y in metres .* of shape \(3,\) or \(2, 3\)"),
        ({"goals": "there"}, "goals is 'there'; give x and y"),
        ({"start": HERE}, r"unknown options \['start'\]; accepted: starts, goals, reset_mask"),
        ({"reset_mask": [True]}, "reset_mask is"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused(blind, options, message):
    with pytest.raises(InputError, match=message):
        blind.reset(options=options)


@pytest.mark.parametrize("actions", [[0.0, 1.0], [FORWARD], [FORWARD, (np.nan, 0)], [(np.inf, 0), IDLE], [[0], [1]]])
def test_actions_that_are_none_are_refused(blind, actions):
    blind.reset()
    with pytest.raises(InputError, match=r"give \(2, 2\) force and turning rate, −1 to 1, or two nan"):
        blind.step(actions)


def test_actions_beyond_the_limits_are_clipped(blind):
    blind.reset(options={"starts": HERE})
    infos = blind.step([(1.0, 1.0), (50.0, 50.0)])[4]
    np.testing.assert_array_equal(*infos["pose"])


@pytest.mark.parametrize("rows", [[2], [-1], [0.5], [[0]], 0, ["a"]])
def test_rows_that_are_none_are_refused(blind, rows):
    blind.reset()
    with pytest.raises(InputError, match="give a list of numbers from 0 to 1"):
        blind.look(rows)


@pytest.mark.parametrize("poses", [[(0, 0)], HERE, [(np.nan, 0, 0)]])
def test_poses_that_are_none_are_refused(blind, poses):
    with pytest.raises(InputError, match=r"give \(m, 3\) finite x, y in metres and heading in radians"):
        blind.see(poses)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0; give a number of robots, 1 or more"),
        ({"size": 4}, "size is 4; give the side of images, 8 to 256 pixels"),
        ({"size": (64, 64)}, r"size is \(64, 64\); give"),
        ({"workers": 0}, "workers is 0; give a number of processes, 1 or more, or None"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0; give 1 or more, or None for no limit"),
        ({"render_mode": "human"}, "render_mode is 'human'; give None or 'rgb_array'"),
        ({"layout": "rooms"}, r"layout is 'rooms'; give a Layout: generate\(seed\) or"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_anything_starts(settings, message):
    with pytest.raises(InputError, match=message):
        SafetyRoomsVectorEnv(**settings)


def test_acting_before_a_reset_and_after_the_end_is_refused():
    env = SafetyRoomsEnv(SMALL)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(FORWARD)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.vector.look([0])
    with pytest.raises(InputError, match=r"unknown options \['starts'\]; accepted: start, goal"):
        env.reset(options={"starts": HERE})
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


@pytest.mark.parametrize("missing", ["mujoco", "OpenGL"])
def test_what_is_missing_is_said_with_how_to_get_it(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    spec = importlib.util.spec_from_file_location("sgm.envs.safety.again", safety.__file__)
    with pytest.raises(ImportError, match=rf"cannot import {missing}: .* 'sparse-graphical-memory\[safety\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


# Processes


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_process_is_an_error_and_the_next_reset_goes_on(how, monkeypatch):
    monkeypatch.setattr("sgm.envs.safety.pool.PATIENCE", 0.5 if how == signal.SIGSTOP else 60.0)
    monkeypatch.setattr("sgm.envs.safety.pool.FAREWELL", 0.5)
    env = SafetyRoomsVectorEnv(4, layout=SMALL, workers=2, images=False)
    env.reset(options={"starts": HERE})
    env.step([FORWARD] * 4) if how == signal.SIGKILL else None
    os.kill(env.workers.processes[1].pid, how)
    message = "died: it ended with .*-9.*; reset the environment" if how == signal.SIGKILL else "not answered for 0.5 s"
    with pytest.raises(WorkerDied, match=message):
        env.step([FORWARD] * 4)
    monkeypatch.setattr("sgm.envs.safety.pool.PATIENCE", 60.0)
    env.reset(options={"starts": HERE})
    np.testing.assert_allclose(*env.step([FORWARD] * 4)[4]["pose"][[0, 3]])
    env.close()


def test_a_process_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr("sgm.envs.safety.pool.WORKER", "sgm.envs.no_such_module")
    env = SafetyRoomsVectorEnv(1, layout=SMALL, images=False)
    env.reset(seed=0)
    with pytest.raises(WorkerDied, match="No module named sgm.envs.no_such_module"):
        env.step([FORWARD])
    env.close()


def test_processes_end_with_their_environment():
    env = SafetyRoomsVectorEnv(2, layout=SMALL, workers=2, images=False)
    env.reset(seed=0)
    env.step([FORWARD] * 2)
    processes = env.workers.processes
    assert [process.poll() for process in processes] == [None, None]
    del env
    gc.collect()
    assert [process.returncode for process in processes] == [0, 0]


@draws
def test_who_forgets_to_close_hears_nothing_about_it():
    code = (
        "import gymnasium, sgm.envs\n"  # no guard of __main__
        f"env = gymnasium.make('{ID}', size=16)\n"
        "env.reset(seed=0)\n"
        "print(env.step([1.0, 0.0])[0]['observation'].shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("(16, 16, 3)\n", "")


def test_the_scenery_needs_no_files_and_an_image_is_a_png(tmp_path):
    xml, files = scenery(SMALL, 32)
    assert {"floor.png"} < set(files) and all(data.startswith(b"\x89PNG") for data in files.values())
    assert mujoco.MjModel.from_xml_string(xml, files).ngeom < 20
    reader = pytest.importorskip("matplotlib.image")
    image = np.random.default_rng(0).integers(256, size=(5, 7, 3)).astype(np.uint8)
    (tmp_path / "image.png").write_bytes(png(image))
    np.testing.assert_array_equal(np.round(reader.imread(tmp_path / "image.png") * 255), image)
    bare = dataclasses.replace(SMALL, pillars=(), colours=(), hazards=())
    assert mujoco.MjModel.from_xml_string(*scenery(bare, 32)).ngeom < 15
