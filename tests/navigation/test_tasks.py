"""Episodes with reset options of their own, goals from info, and results by task."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

import sgm
from sgm.navigation import Cleaner, wilson
from tests.navigation.test_rollout import LENGTH, Line, corridor

STARTS = {1: 0, 2: 6, 3: 11}
TASKS = [{"task_id": task} for task in STARTS]
MODES = list(AutoresetMode)


class Told(gymnasium.Env):
    """A corridor whose observations are plain numbers; info tells the goal when an episode begins, and success."""

    observation_space = spaces.Box(0, LENGTH, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, limit=15, name="goal", wall=None):
        self.limit, self.name, self.wall = limit, name, wall

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        task = (options or {}).get("task_id", 2)
        self.place, self.target, self.elapsed = STARTS[task], 3 * task, 0
        return self._see(), {self.name: np.array([self.target], np.float32), "task": task}

    def step(self, action):
        there = int(np.clip(self.place + action - 1, 0, LENGTH - 1))
        self.place = self.place if there == self.wall else there
        self.elapsed += 1
        done = self.place == self.target
        return self._see(), 0.0, done, self.elapsed >= self.limit, {"success": float(done)}

    def _see(self):
        return np.array([self.place], np.float32)


def towards(observations, targets):
    return np.sign(targets[:, 0] - observations[:, 0]).astype(np.int64) + 1


def make(shape, mode=AutoresetMode.DISABLED, **settings):
    if shape == "single":
        return Told(**settings)
    kind = SyncVectorEnv if shape == "sync" else AsyncVectorEnv
    return kind([lambda: Told(**settings)] * 2, autoreset_mode=mode)


def agent():
    return sgm.Navigator(corridor(), towards)


@pytest.mark.parametrize(
    ("shape", "mode"), [("single", MODES[0]), *((shape, mode) for shape in ("sync", "async") for mode in MODES)]
)
def test_each_episode_has_its_task_and_the_goal_that_info_told(shape, mode):
    env = make(shape, mode)
    result = sgm.evaluate(agent(), env, 7, options=TASKS, traces=7)
    env.close()
    assert result.tasks.tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert [float(trace.goal[0]) for trace in result.traces] == [3, 6, 9, 3, 6, 9, 3]
    assert [float(trace.observations[0][0]) for trace in result.traces] == [0, 6, 11, 0, 6, 11, 0]
    assert result.successes.all() and result.steps.tolist() == [3, 1, 2, 3, 1, 2, 3]


def test_results_are_told_by_task_where_there_are_several():
    result = sgm.evaluate(agent(), Told(wall=2), 10, options=TASKS)  # the way from 0 to 3 is blocked
    assert {task: tuple(each) for task, each in result.by_task.items()} == {
        1: (0, 4, wilson(0, 4)),
        2: (3, 3, wilson(3, 3)),
        3: (3, 3, wilson(3, 3)),
    }
    assert "by task 1: 0/4, 2: 3/3, 3: 3/3" in repr(result)
    written = json.loads(json.dumps(result.asdict()))
    assert written["by_task"]["1"] == {"successes": 0, "episodes": 4, "ci95": list(wilson(0, 4))}
    alone = sgm.evaluate(agent(), Told(), 2)
    assert "task" not in repr(alone) and "by_task" not in alone.asdict() and len(alone.by_task) == 1


def test_tasks_without_a_number_are_called_by_their_place():
    options = [{"name": "left"}, {"name": "right"}]
    assert sgm.evaluate(agent(), Told(), 4, options=options).tasks.tolist() == [0, 1, 0, 1]
    assert sgm.evaluate(agent(), Told(), 2, options={"task_id": 3}).tasks.tolist() == [3, 3]


def test_the_goal_may_have_another_name():
    env = Told(name="wanted")
    with pytest.raises(sgm.InputError, match="info has no goal .* goal_from= names another entry"):
        sgm.evaluate(agent(), env, 1)
    assert sgm.evaluate(agent(), env, 3, options=TASKS, goal_from="wanted").rate == 1
    with pytest.raises(sgm.InputError, match="goal_from is 3"):
        sgm.evaluate(agent(), env, 1, goal_from=3)


class Native(VectorEnv):
    """A native vector environment: what SyncVectorEnv does, and nothing that tells so."""

    def __init__(self, mode):
        self.inner = SyncVectorEnv([Told] * 2, autoreset_mode=mode)
        self.num_envs, self.metadata = 2, {"autoreset_mode": mode}
        self.single_observation_space = self.inner.single_observation_space
        self.single_action_space = self.inner.single_action_space

    def reset(self, *, seed=None, options=None):
        return self.inner.reset(seed=seed, options=options)

    def step(self, actions):
        return self.inner.step(actions)


def test_a_native_environment_takes_a_list_only_if_it_can_be_told_to_begin():
    result = sgm.evaluate(agent(), Native(AutoresetMode.DISABLED), 5, options=TASKS)
    assert result.tasks.tolist() == [1, 2, 3, 1, 2] and result.rate == 1 and result.steps.tolist() == [3, 1, 2, 3, 1]
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        assert sgm.evaluate(agent(), Native(mode), 5).rate == 1
        with pytest.raises(sgm.InputError, match="resets itself, always with the same options"):
            sgm.evaluate(agent(), Native(mode), 5, options=TASKS)


def test_cleanup_begins_its_episodes_with_the_options_in_turn():
    begun = []

    class Noting(Told):
        def reset(self, *, seed=None, options=None):
            begun.append((options or {}).get("task_id"))
            return super().reset(seed=seed, options=options)

    cleaner = Cleaner(sgm.Navigator(corridor(), towards, clean=True), Noting(), options=TASKS, seed=1)
    cleaner.run(40)
    assert begun[:6] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("options", [[], "fast", [3], 7])
def test_options_that_are_none_are_named(options):
    with pytest.raises(sgm.InputError, match="expected reset options, a dict, or a list of them"):
        sgm.evaluate(agent(), Told(), 1, options=options)


def test_ogbench_tells_tasks_and_goals_its_own_way(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    ogbench = pytest.importorskip("ogbench")
    env = ogbench.make_env_and_datasets("pointmaze-medium-stitch-v0", env_only=True)
    inner = env.unwrapped
    cells = np.argwhere(np.asarray(inner.maze_map) == 0)
    places = np.array([inner.ij_to_xy(tuple(cell)) for cell in cells], np.float32)

    class Cells(Line):
        def embed(self, observations):
            return np.asarray(observations, np.float32)

        def __call__(self, starts, goals):
            return np.linalg.norm(starts[:, None] - goals, axis=2) / 0.2  # units to steps

    memory = sgm.SparseGraphicalMemory(Cells(), criterion="none", max_dist=21.0, k=None, keep_observations=True)
    memory.extend(places)

    def steer(observations, targets):
        gap = targets - observations
        return (gap / np.maximum(np.linalg.norm(gap, axis=1, keepdims=True), 1e-6)).astype(np.float32)

    walker = sgm.Navigator(memory, steer, arrival="distance", cutoff=4.0)
    result = sgm.evaluate(walker, env, 5, options=[{"task_id": task} for task in range(1, 6)], traces=5)
    env.close()
    assert result.tasks.tolist() == [1, 2, 3, 4, 5] and result.rate == 1
    assert len({tuple(np.round(trace.goal)) for trace in result.traces}) >= 4
