"""OGBench's point mazes as arrays: the same as the package's environments, step by step."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import sgm
from sgm.envs.ogbench.env import NOISE, PointMazes
from sgm.navigation import PolicyAgent, evaluate

pytest.importorskip("ogbench")


@pytest.fixture(scope="module", autouse=True)
def _headless():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUJOCO_GL", "disabled")
        yield


def real(maze):
    return gymnasium.make(f"pointmaze-{maze}-v0", disable_env_checker=True)


@pytest.mark.parametrize("maze", ["medium", "large", "giant"])
def test_it_moves_exactly_as_the_package_does_also_along_walls(maze):
    theirs, ours, random = real(maze), PointMazes(3, maze), np.random.default_rng(0)
    begun = [theirs.reset(seed=task, options={"task_id": task}) for task in (1, 2, 3)]
    starts, goals = (np.stack(values) for values in ([o for o, _ in begun], [info["goal"] for _, info in begun]))
    actions = np.clip(random.uniform(-1.5, 1.5, (3, 6, 1, 2)) + random.normal(0, 0.2, (3, 6, 25, 2)), -1, 1)
    actions = actions.reshape(3, 150, 2)
    ours.reset(options={"starts": starts, "goals": goals})
    seen = np.stack([ours.step(actions[:, step])[0]["observation"] for step in range(150)], axis=1)
    assert ours.simulated > 50, "no wall was touched"
    for robot in range(3):
        theirs.reset(options={"task_id": robot + 1})
        theirs.unwrapped.set_goal(goal_xy=goals[robot])
        theirs.unwrapped.set_xy(starts[robot])
        path = np.stack([theirs.step(action)[0] for action in actions[robot]])
        assert (path == seen[robot]).all()


def test_success_ends_an_episode_within_1_of_the_goal_as_in_the_package():
    theirs, ours = real("medium"), PointMazes(1, "medium")
    observation, info = theirs.reset(seed=0, options={"task_id": 1})
    goal = observation + np.array([1.5, 0.0])
    theirs.unwrapped.set_goal(goal_xy=goal)
    ours.reset(options={"starts": observation[None], "goals": goal[None]})
    for _ in range(4):
        _, _, theirs_ended, _, info = theirs.step(np.array([1.0, 0.0]))
        shown, reward, ended, truncated, ours_info = ours.step(np.array([[1.0, 0.0]]))
        assert bool(ended[0]) == theirs_ended == bool(ours_info["success"][0]) == bool(info["success"])
        assert not truncated[0] and reward[0] == float(theirs_ended)
        if theirs_ended:
            break
    assert theirs_ended
    still = ours.step(np.array([[1.0, 0.0]]))[0]["observation"]
    assert (still == shown["observation"]).all(), "a robot that has arrived stays"


def test_tasks_are_the_packages_with_its_noise():
    theirs, ours = real("giant").unwrapped, PointMazes(200, "giant")
    tasks = np.arange(200) % 5 + 1
    shown, _ = ours.reset(seed=0, options={"task_id": tasks})
    for task, info in enumerate(theirs.task_infos, 1):
        for name, key in (("observation", "init_xy"), ("desired_goal", "goal_xy")):
            apart = shown[name][tasks == task] - np.array(info[key])
            assert np.abs(apart).max() <= NOISE and np.abs(apart).max() > 0.8 * NOISE
    again, _ = ours.reset(seed=0, options={"task_id": tasks})
    assert (again["observation"] == shown["observation"]).all()


def test_a_teleport_leads_to_one_of_the_exits_and_is_seen_a_step_later():
    ours = PointMazes(60, "teleport")
    door = ours.maze.doors[0]
    starts = np.tile(door + np.array([0.0, 1.6]), (60, 1))
    ours.reset(seed=0, options={"starts": starts, "goals": np.zeros((60, 2))})
    shown, *_, info = ours.step(np.tile([0.0, -1.0], (60, 1)))
    assert np.allclose(shown["observation"], starts - [0, 0.2])
    arrived = {tuple(place) for place in info["position"].tolist()}
    assert arrived == {tuple(place) for place in ours.maze.exits.tolist()}
    assert (real("teleport").unwrapped._teleport_info["teleport_in_xys"][0] == door).all()


def test_episodes_end_after_the_limit_and_without_options_begin_at_given_starts():
    ours = PointMazes(2, "medium", max_episode_steps=3)
    ours.reset(seed=0)
    ends = [ours.step(np.zeros((2, 2)))[3].tolist() for _ in range(4)]
    assert ends == [[False, False], [False, False], [True, True], [False, False]]
    starts = np.array([[0.0, 0.0], [4.0, 0.0]])
    shown, _ = PointMazes(20, "medium", starts=starts).reset(seed=0)
    assert {tuple(place) for place in shown["observation"].tolist()} == {(0.0, 0.0), (4.0, 0.0)}
    assert np.isnan(shown["desired_goal"]).all()


def test_evaluation_by_task_works_on_it():
    env = PointMazes(10, "medium", max_episode_steps=5)
    towards = PolicyAgent(lambda seen, goals: np.sign(goals - seen))
    found = evaluate(towards, env, options=[{"task_id": task} for task in range(1, 6)])
    assert list(found.by_task) == [1, 2, 3, 4, 5] and all(each.episodes == 2 for each in found.by_task.values())


def test_wrong_input_is_refused_with_what_is_accepted():
    with pytest.raises(sgm.InputError, match="maze is 'huge'; give one of medium, large"):
        PointMazes(1, "huge")
    env = PointMazes(2, "medium")
    with pytest.raises(sgm.InputError, match="task_id is 6; give whole numbers from 1 to 5"):
        env.reset(options={"task_id": 6})
    with pytest.raises(sgm.InputError, match="without a wall"):
        env.reset(options={"cells": np.zeros((2, 2, 2), int)})
    with pytest.raises(sgm.InputError, match="places in cells without a wall"):
        env.reset(options={"starts": np.full((2, 2), -4.0)})
    with pytest.raises(sgm.InputError, match=r"unknown options \['start'\]"):
        env.reset(options={"start": 1})
    env.reset(seed=0)
    with pytest.raises(sgm.InputError, match=r"expected \(2, 2\) numbers"):
        env.step(np.zeros((3, 2)))
