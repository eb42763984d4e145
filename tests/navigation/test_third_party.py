"""Other people's environments as they come: Gymnasium-Robotics' PointMaze and MiniGrid's images."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import sgm

robotics = pytest.importorskip("gymnasium_robotics")
minigrid = pytest.importorskip("minigrid")

OPEN = [[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1]]


def point_maze(continuing, limit=150):
    gymnasium.register_envs(robotics)
    return gymnasium.make(
        "PointMaze_UMaze-v3", maze_map=OPEN, continuing_task=continuing, max_episode_steps=limit, reset_target=False
    )


class Metres:
    """Steps as distance over speed; observations are (x, y, vx, vy), goals (x, y)."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)[:, :2]

    def embed_goal(self, goals):
        return np.asarray(goals, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=2) / np.float32(0.1)


def steer(observations, targets):
    """Push towards the target, against the speed."""
    return np.clip(8 * (targets - observations[:, :2]) - 2 * observations[:, 2:], -1, 1)


@pytest.fixture(scope="module")
def data():
    env = point_maze(True)
    return sgm.collect(env, 2_000, hold=20, episode_steps=100, seed=0, progress=False)


@pytest.fixture(scope="module")
def agent(data):
    memory = sgm.SparseGraphicalMemory(Metres(), tau_a=6.0, tau_p=None, max_dist=25.0, k=8, scope="memory")
    memory.extend(data)
    return sgm.Navigator(memory, steer)


def test_experience_has_goals_of_another_shape_and_nodes_keep_them(data, agent):
    assert data.observations.shape[1:] == (4,) and data.achieved_goals.shape[1:] == (2,)
    kept = agent.memory.attributes["achieved_goal"]
    np.testing.assert_allclose(kept, agent.memory.embeddings, atol=1e-6)
    assert agent.waypoints([0]).shape == (1, 2)


@pytest.mark.parametrize("continuing", [True, False])
def test_point_maze_succeeds_whether_or_not_the_task_continues(agent, continuing):
    result = sgm.evaluate(agent, point_maze(continuing), 6, seed=0)
    assert result.rate == 1.0


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_point_maze_in_every_autoreset_mode(agent, mode):
    env = SyncVectorEnv([lambda: point_maze(False)] * 2, autoreset_mode=mode)
    assert sgm.evaluate(agent, env, 5, seed=0).successes.all()
    env.close()


def test_a_memory_over_achieved_goals_needs_no_second_embedding(data):
    class Places(Metres):
        embed_goal = None

    memory = sgm.SparseGraphicalMemory(Places(), tau_a=6.0, tau_p=None, max_dist=25.0, k=8, keep_observations=True)
    memory.extend(data.achieved_goals, episode=data.episodes)
    agent = sgm.Navigator(memory, steer, goal_key="achieved_goal")
    assert sgm.evaluate(agent, point_maze(False), 4, seed=0).rate == 1.0


def test_goals_that_nothing_can_compare_are_named(data):
    class NoGoals(Metres):
        embed_goal = None

        def embed(self, observations):
            if np.shape(observations)[1] != 4:
                raise ValueError(f"expected (n, 4), got {np.shape(observations)}")
            return super().embed(observations)

    memory = sgm.SparseGraphicalMemory(NoGoals(), tau_a=6.0, tau_p=None, max_dist=25.0, k=8)
    memory.extend(data)
    with pytest.raises(sgm.InputError, match="embed_goal"):
        sgm.evaluate(sgm.Navigator(memory, steer), point_maze(False), 1)


# MiniGrid: images, discrete actions


class GoalImage(gymnasium.Wrapper):
    """What the goal cell looks like from above is the goal; reaching it ends the episode as MiniGrid ends it."""

    def __init__(self, env):
        super().__init__(env)
        image = env.observation_space["image"]
        self.observation_space = spaces.Dict({"observation": image, "achieved_goal": image, "desired_goal": image})

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        grid = self.env.unwrapped
        here, direction = grid.agent_pos, grid.agent_dir
        grid.agent_pos, grid.agent_dir = (grid.width - 2, grid.height - 2), 0
        self.goal = self.env.observation(grid.gen_obs())["image"]
        grid.agent_pos, grid.agent_dir = here, direction
        return self._goal_observation(observation), info

    def step(self, action):
        observation, *rest = self.env.step(action)
        return self._goal_observation(observation), *rest

    def _goal_observation(self, observation):
        image = observation["image"]
        return {"observation": image, "achieved_goal": image, "desired_goal": self.goal}


def grid_env():
    from minigrid.wrappers import RGBImgObsWrapper

    gymnasium.register_envs(minigrid)
    env = gymnasium.make("MiniGrid-Empty-Random-5x5-v0", max_steps=60)
    return GoalImage(RGBImgObsWrapper(env, tile_size=8))


class Pixels:
    """1 step if an action of the experience led from one image to another, otherwise the steps of the shortest walk."""

    def __init__(self, data):
        self.rows = {image.tobytes(): row for row, image in enumerate(np.unique(data.observations, axis=0))}
        nodes = np.array([self.rows[image.tobytes()] for image in data.observations])
        inside = data.episodes[1:] == data.episodes[:-1]
        pairs = zip(nodes[:-1][inside], nodes[1:][inside], strict=True)
        self.actions = dict(zip(pairs, data.actions[:-1][inside], strict=True))
        steps = np.full((len(self.rows), len(self.rows)), np.inf)
        np.fill_diagonal(steps, 0)
        steps[nodes[:-1][inside], nodes[1:][inside]] = np.where(nodes[:-1][inside] == nodes[1:][inside], 0, 1)
        for middle in range(len(steps)):
            steps = np.minimum(steps, steps[:, [middle]] + steps[middle])
        self.steps = np.where(np.isfinite(steps), steps, 99).astype(np.float32)

    def embed(self, images):
        return np.array([[self.rows[image.tobytes()]] for image in images], np.float32)

    def __call__(self, starts, goals):
        return self.steps[starts[:, 0].astype(int)][:, goals[:, 0].astype(int)]


def test_minigrid_images_with_discrete_actions():
    env = grid_env()
    data = sgm.collect(env, 4_000, seed=0, episode_steps=50, progress=False)
    distance = Pixels(data)

    def one_step(observations, targets):
        ends = (distance.embed(images)[:, 0].astype(int) for images in (observations, targets))
        return np.array([distance.actions.get(pair, 2) for pair in zip(*ends, strict=True)])

    memory = sgm.SparseGraphicalMemory(distance, tau_a=0.5, tau_p=None, max_dist=1.5, k=None, scope="memory")
    memory.extend(data)
    assert memory.attributes["achieved_goal"].shape[1:] == data.observations.shape[1:]
    vector = SyncVectorEnv([grid_env] * 3)
    result = sgm.evaluate(sgm.Navigator(memory, one_step, cutoff=0.5), vector, 10, seed=0)
    assert result.rate == 1.0
    with pytest.warns(UserWarning, match="none of 10 episodes succeeded"):
        assert sgm.evaluate(one_step, grid_env(), 10, seed=0).rate == 0.0
