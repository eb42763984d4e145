"""PointMaze: how the point moves, which goals it gets, and that many at once are the same as each alone."""

from __future__ import annotations

import importlib
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm.envs
from sgm.envs.point.env import PointMazeEnv, PointMazeVectorEnv, move
from sgm.envs.point.mazes import load_maze

ID = "sgm/PointMaze-v0"
SMALL = {"maze": "FourRooms", "resize": 2, "thin": True}
NORTH, EAST = np.array([-1.0, 0.0]), np.array([0.0, 1.0])


def quiet(**settings) -> PointMazeEnv:
    """A small environment without noise."""
    return PointMazeEnv(**{**SMALL, "action_noise": 0.0, **settings})


def one_by_one(maze, position, action):
    """One step of one point, as the rules say it."""
    position = list(position)
    for _ in range(10):
        for axis in (0, 1):
            there = list(position)
            there[axis] += action[axis] / 10
            inside = 0 <= there[0] < maze.height and 0 <= there[1] < maze.width
            if inside and not maze.walls[int(there[0]), int(there[1])]:
                position = there
    return position


def assert_same(one, other):
    """Equal to the last bit: arrays, and tuples and dicts of them."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple) or (isinstance(one, np.ndarray) and one.dtype == object):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    else:
        np.testing.assert_array_equal(one, other, strict=True)


# How it moves


def test_a_free_point_moves_by_its_action():
    env = quiet()
    env.reset(options={"start": (2.5, 2.5), "goal": (20.5, 20.5)})
    _, _, _, _, info = env.step([0.5, -1.0])
    np.testing.assert_allclose(info["position"], [3.0, 1.5])


def test_a_wall_stops_one_axis_and_lets_the_other_slide():
    env = quiet(maze="U", resize=1)
    env.reset(options={"start": (2.5, 3.75), "goal": (8.5, 8.5)})
    _, _, _, _, info = env.step([0.5, 1.0])
    np.testing.assert_allclose(info["position"], [3.0, 3.95])


def test_the_edge_of_the_map_is_a_wall():
    env = quiet(maze="U", resize=1)
    env.reset(options={"start": (0.25, 0.5), "goal": (8.5, 8.5)})
    for _ in range(3):
        _, _, _, _, info = env.step(NORTH)
    np.testing.assert_allclose(info["position"], [0.05, 0.5])


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_batch_moves_as_the_rules_move_each_point(seed, thin):
    maze = load_maze("Random7+2", 2, thin, seed=seed % 5)
    rng = np.random.default_rng(seed)
    positions = maze.cells[rng.integers(len(maze.cells), size=50)] + rng.random((50, 2))
    actions = rng.uniform(-1, 1, (50, 2)).round(rng.integers(1, 8))
    expected = [one_by_one(maze, *pair) for pair in zip(positions, actions, strict=True)]
    np.testing.assert_array_equal(move(maze, positions, actions), expected)


@given(
    st.sampled_from(["FourRooms", "Spiral5", "Random7", "Tree"]),
    st.booleans(),
    st.integers(0, 2**32),
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=30),
)
@settings(max_examples=40, deadline=None)
def test_the_point_is_never_in_a_wall(maze, thin, seed, actions):
    env = PointMazeEnv(maze=maze, resize=2, thin=thin)
    env.reset(seed=seed)
    for action in actions:
        observation, _, _, _, info = env.step(action)
        assert env.maze.is_free(info["position"])
        assert env.observation_space.contains(observation)


def test_shared_noise_is_one_sample_and_independent_noise_two():
    for noise, same in (("shared", True), ("independent", False)):
        env = PointMazeEnv("U", thin=False, action_noise=0.1, noise=noise)
        env.reset(seed=0, options={"start": (10.5, 10.5), "goal": (0.5, 0.5)})
        _, _, _, _, info = env.step([0.0, 0.0])
        shift = info["position"] - 10.5
        assert (abs(shift[0] - shift[1]) < 1e-12) == same


def test_noise_has_the_given_deviation_and_actions_are_clipped_after_it():
    env = PointMazeVectorEnv(4000, "U", thin=False, action_noise=0.2, noise="independent")
    env.reset(seed=0, options={"start": (10.5, 10.5), "goal": (0.5, 0.5)})
    _, _, _, _, infos = env.step(np.full((4000, 2), [0.0, 3.0]))
    shift = infos["position"] - 10.5
    np.testing.assert_allclose(shift[:, 0].std(), 0.2, atol=0.01)
    np.testing.assert_allclose(shift[:, 1], 1.0)


# What the agent sees and gets


def test_observations_are_positions_in_the_unit_square():
    env = quiet(maze="Tree", resize=3)
    observation, info = env.reset(options={"start": (1.5, 0.5), "goal": (25.5, 22.5)})
    np.testing.assert_allclose(observation["observation"], [1.5 / 27, 0.5 / 45], rtol=1e-6)
    np.testing.assert_allclose(observation["desired_goal"], [25.5 / 27, 22.5 / 45], rtol=1e-6)
    np.testing.assert_array_equal(observation["achieved_goal"], observation["observation"])
    np.testing.assert_allclose(env.to_cells(observation["desired_goal"]), [25.5, 22.5], rtol=1e-6)
    assert all(value.dtype == np.float32 for value in observation.values())
    assert info["distance"] == env.maze.distance((1.5, 0.5), (25.5, 22.5))


def test_reaching_the_goal_ends_the_episode_with_reward_zero():
    env = quiet()
    env.reset(options={"start": (2.5, 2.5), "goal": (2.5, 4.75)})
    _, reward, terminated, truncated, info = env.step(EAST)
    assert (reward, terminated, truncated, info["success"], info["is_success"]) == (-1.0, False, False, False, False)
    _, reward, terminated, truncated, info = env.step(EAST)
    assert (reward, terminated, truncated, info["success"], info["is_success"]) == (0.0, True, False, True, True)


def test_the_success_radius_is_measured_in_cells():
    for radius, reached in ((2.0, False), (2.3, True)):
        env = quiet(success_radius=radius)
        _, info = env.reset(options={"start": (2.5, 2.5), "goal": (2.5, 4.75)})
        assert info["success"] == reached


def test_rewards_can_be_computed_again_for_a_batch_of_other_goals():
    env = PointMazeEnv(**SMALL)
    observation, _ = env.reset(seed=1)
    achieved, desired, rewards, ends = [], [], [], []
    for _ in range(60):
        observation, reward, terminated, _, _ = env.step(env.action_space.sample())
        achieved.append(observation["achieved_goal"])
        desired.append(observation["desired_goal"])
        rewards.append(reward)
        ends.append(terminated)
    np.testing.assert_array_equal(env.compute_reward(np.array(achieved), np.array(desired), [{}] * 60), rewards)
    np.testing.assert_array_equal(env.compute_terminated(np.array(achieved), np.array(desired), {}), ends)
    assert env.compute_reward(achieved[0], achieved[0], {}) == 0.0
    assert not env.compute_truncated(achieved[0], desired[0], {})
    assert env.compute_truncated(np.array(achieved), desired[0], {}).tolist() == [False] * 60


def test_nothing_returned_changes_later():
    env = quiet()
    observation, info = env.reset(options={"start": (2.5, 2.5), "goal": (2.5, 8.5)})
    before = observation["observation"].copy(), info["position"].copy()
    env.step(EAST)
    np.testing.assert_array_equal(observation["observation"], before[0])
    np.testing.assert_array_equal(info["position"], before[1])


# Gymnasium


def test_gymnasium_finds_nothing_wrong():
    check_env(gymnasium.make(ID).unwrapped)
    check_env(gymnasium.make(ID, maze="Random9", thin=False, noise="independent", render_mode="rgb_array").unwrapped)


def test_the_registered_episode_has_20_steps_and_evaluation_asks_for_more():
    for limit, asked in ((20, {}), (37, {"max_episode_steps": 37})):
        env = gymnasium.make(ID, **SMALL, **asked)
        assert isinstance(env, TimeLimit)
        envs = gymnasium.make_vec(ID, num_envs=2, **SMALL, **asked)
        assert isinstance(envs, PointMazeVectorEnv)
        options = {"start": (0.5, 0.5), "goal": (20.5, 20.5)}
        env.reset(seed=0, options=options)
        envs.reset(seed=0, options=options)
        for step in range(1, limit + 1):
            assert env.step(np.zeros(2, np.float32))[2:4] == (False, step == limit)
            assert envs.step(np.zeros((2, 2), np.float32))[3].tolist() == [step == limit] * 2


def test_an_environment_constructed_directly_limits_itself_when_asked():
    env = quiet(max_episode_steps=2)
    env.reset(options={"start": (2.5, 2.5), "goal": (2.5, 8.5)})
    assert [env.step(NORTH)[3] for _ in range(2)] == [False, True]


def test_importing_the_package_is_light_and_registers_once():
    heavy = {"torch", "matplotlib", "sgm.envs.point.env", "sgm.envs.point.mazes"}
    code = f"import sys, sgm.envs; print(*{heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""
    importlib.reload(sgm.envs)  # warnings are errors here
    assert ID in gymnasium.registry


def test_one_seed_gives_one_trajectory():
    runs = []
    for _ in range(2):
        env = PointMazeEnv(**SMALL)
        env.reset(seed=5)
        env.action_space.seed(5)
        runs.append([env.step(env.action_space.sample())[4]["position"] for _ in range(100)])
        env.reset(seed=5)  # a seed forgets noise that was drawn ahead
        env.action_space.seed(5)
        runs.append([env.step(env.action_space.sample())[4]["position"] for _ in range(100)])
    assert_same(np.array(runs[0]), np.array(runs[1]))
    assert_same(np.array(runs[0]), np.array(runs[2]))


# Starts and goals


def drawn_distances(count, options=None, **settings):
    """Starts, goals and distances of many episodes."""
    env = PointMazeVectorEnv(count, **{**SMALL, **settings})
    _, infos = env.reset(seed=0, options=options)
    np.testing.assert_array_equal(infos["distance"], env.maze.distance(env.positions, env.goals))
    return env, infos["distance"]


@pytest.mark.parametrize("difficulty", [0.0, 0.3, 0.5, 0.95, 1.0])
def test_difficulty_is_a_share_of_the_largest_distance(difficulty):
    env, distances = drawn_distances(300, {"difficulty": difficulty})
    shares = distances / env.maze.diameter
    assert (abs(shares - difficulty) <= 0.05 + 1e-9).all()
    assert len(np.unique(distances)) > 1


def test_the_papers_difficulty_on_the_papers_maze():
    env = PointMazeEnv()
    assert repr(env.maze) == "Maze('FourRooms ×5 thin', 55 × 55, 2952 free cells)"
    distances = [env.reset(seed=seed, options={"difficulty": 0.95})[1]["distance"] for seed in range(50)]
    assert 60 <= min(distances) <= max(distances) <= 66


def test_distances_are_drawn_between_the_bounds_given():
    _, distances = drawn_distances(300, {"min_distance": 3, "max_distance": 5.5})
    assert set(distances) == {3.0, 4.0, 5.0}
    assert drawn_distances(300, {"min_distance": 20})[1].min() >= 20
    assert drawn_distances(300, {"max_distance": 0})[1].max() == 0


def test_starts_are_uniform_over_cells_with_an_admissible_goal_and_goals_over_the_admissible():
    env, _ = drawn_distances(20_000, {"min_distance": 12}, maze="U", resize=1)
    table = env.maze.distances
    counts = np.zeros_like(table, dtype=float)
    np.add.at(counts, (env.maze.cell_ids(env.positions), env.maze.cell_ids(env.goals)), 1)
    admissible = table >= 12
    per_start = admissible.sum(axis=1, keepdims=True)
    expected = 20_000 * admissible / np.maximum(per_start, 1) / (per_start > 0).sum()
    assert (counts[~admissible] == 0).all()
    chi_square = ((counts - expected)[admissible] ** 2 / expected[admissible]).sum()
    freedom = admissible.sum() - 1
    assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)


def test_a_training_goal_is_near_four_times_in_five():
    env, distances = drawn_distances(4000, resize=3)
    everywhere = (env.maze.distances <= 4).mean()
    assert abs((distances <= 4).mean() - (0.8 + 0.2 * everywhere)) < 0.03


def test_uniform_goals_are_anywhere():
    env, distances = drawn_distances(4000, {"uniform": True})
    assert abs(distances.mean() - env.maze.distances.mean()) < 0.5


def test_one_end_may_be_given_and_the_other_drawn():
    for given_end, drawn_end in (("start", "goals"), ("goal", "positions")):
        env, distances = drawn_distances(50, {given_end: (0.5, 0.5), "min_distance": 8, "max_distance": 9})
        assert set(distances) == {8.0, 9.0}
        assert len(np.unique(getattr(env, drawn_end), axis=0)) == 50


def test_options_can_be_those_of_every_episode():
    env = PointMazeVectorEnv(20, **SMALL, reset_options={"difficulty": 0.9}, max_episode_steps=1)
    env.reset(seed=0)
    env.step(np.zeros((20, 2)))
    *_, infos = env.step(np.zeros((20, 2)))
    assert infos["_distance"].all()
    assert infos["distance"].min() >= 0.85 * env.maze.diameter


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dificulty": 0.5}, r"unknown options \['dificulty'\]; accepted: difficulty, min_distance"),
        ({"difficulty": 1.5}, "difficulty is 1.5; give a share"),
        ({"difficulty": "hard"}, "difficulty is 'hard'; give a share"),
        ({"difficulty": 0.5, "uniform": True}, "give difficulty, uniform, or"),
        ({"difficulty": 0.5, "min_distance": 1}, "give difficulty, uniform, or"),
        ({"min_distance": -1}, "min_distance is -1; give a distance"),
        ({"max_distance": float("nan")}, "max_distance is nan; give a distance"),
        ({"min_distance": 5, "max_distance": 4}, "no two cells are from 5 to 4 cells apart"),
        ({"min_distance": 2.2, "max_distance": 2.8}, "whole numbers from 0 to"),
        ({"min_distance": 1000}, r"no two cells .*Maze\('FourRooms ×2 thin'"),
        ({"start": (10.5, 10.5)}, r"start \(10.5, 10.5\) is in a wall or outside"),
        ({"goal": (0.5, -3.0)}, "goal .* is in a wall or outside"),
        ({"start": (1.0, 2.0, 3.0)}, r"start is \(1.0, 2.0, 3.0\); give \(row, column\)"),
        ({"start": (0.5, 0.5), "goal": (1.5, 1.5), "difficulty": 0.5}, "nothing to draw"),
        ({"start": (5.5, 5.5), "difficulty": 1.0}, r"no cell is .* from \(5.5, 5.5\): the farthest is"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PointMazeEnv(**SMALL).reset(seed=0, options=options)
    with pytest.raises(ValueError, match=message):
        PointMazeVectorEnv(3, **SMALL).reset(seed=0, options=options)


@pytest.mark.parametrize(
    "settings",
    [
        {"noise": "none"},
        {"action_noise": -1.0},
        {"success_radius": 0.0},
        {"prob_near": 2},
        {"near": "4"},
        {"max_episode_steps": 0},
        {"render_mode": "human"},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ValueError, match=f"{name} is {value!r}; give"):
        PointMazeEnv(**SMALL, **settings)


@pytest.mark.parametrize("action", [[0.0, np.nan], [0.0], [[0.0, 0.0]], 1.0])
def test_an_action_that_is_none_is_refused(action):
    env = quiet()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action is .*; give finite displacements"):
        env.step(action)


def test_a_step_before_a_reset_is_refused():
    for env, action in ((quiet(), EAST), (PointMazeVectorEnv(2, **SMALL), np.tile(EAST, (2, 1)))):
        with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
            env.step(action)


# Many at once


@pytest.mark.parametrize("noise", ["shared", "independent"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_environment_is_its_single_environments_bit_for_bit(noise, mode):
    count, chosen = 7, {**SMALL, "noise": noise, "max_episode_steps": 15}
    ours = gymnasium.make_vec(ID, num_envs=count, autoreset_mode=mode, **chosen)
    singles = gymnasium.make_vec(
        ID, num_envs=count, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **chosen
    )
    assert ours.metadata["autoreset_mode"] == mode
    assert ours.observation_space == singles.observation_space
    assert ours.action_space == singles.action_space
    assert_same(ours.reset(seed=3), singles.reset(seed=3))
    rng = np.random.default_rng(0)
    for _ in range(150):  # past several episodes and two chunks of noise
        actions = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
        assert_same(ours.step(actions), singles.step(actions))
    assert_same(ours.reset(options={"difficulty": 0.5}), singles.reset(options={"difficulty": 0.5}))


def test_a_sub_environment_does_not_depend_on_the_others():
    alone, many = PointMazeVectorEnv(1, **SMALL), PointMazeVectorEnv(9, **SMALL)
    alone.reset(seed=13)
    many.reset(seed=10)
    for _ in range(80):
        observation, *_ = alone.step(np.full((1, 2), 0.3))
        observations, *_ = many.step(np.full((9, 2), 0.3))
        assert_same({key: value[3:4] for key, value in observations.items()}, observation)


def test_some_sub_environments_can_be_reset_alone():
    env = PointMazeVectorEnv(4, **SMALL, autoreset_mode="Disabled", action_noise=0.0)
    env.reset(seed=0)
    before = env.positions
    mask = np.array([True, False, True, False])
    starts = np.array([[0.5, 0.5], [np.nan, np.nan], [3.5, 3.5], [10.5, 10.5]])  # rows outside the mask do not matter
    options = {"reset_mask": mask, "start": starts, "goal": (20.5, 20.5)}
    observations, infos = env.reset(options=options)
    np.testing.assert_array_equal(env.positions, np.where(mask[:, None], starts, before))
    np.testing.assert_array_equal(env.goals[mask], np.full((2, 2), 20.5))
    np.testing.assert_array_equal(observations["observation"], env.to_observation(env.positions))
    np.testing.assert_array_equal(infos["_distance"], mask)
    assert set(options) == {"reset_mask", "start", "goal"}


def test_without_autoreset_a_finished_point_waits_for_a_new_goal_or_a_reset():
    env = PointMazeVectorEnv(2, **SMALL, autoreset_mode=AutoresetMode.DISABLED, action_noise=0.0)
    env.reset(options={"start": (2.5, 2.5), "goal": [[2.5, 4.25], [2.5, 9.5]]})
    east = np.tile(EAST, (2, 1))
    _, rewards, terminated, _, _ = env.step(east)
    assert (rewards.tolist(), terminated.tolist()) == ([0.0, -1.0], [True, False])
    _, rewards, terminated, _, infos = env.step(east)
    assert (rewards.tolist(), terminated.tolist()) == ([0.0, -1.0], [True, False])
    np.testing.assert_allclose(infos["position"], [[2.5, 3.5], [2.5, 4.5]])
    observations = env.set_goals([[2.5, 9.5], [np.nan, np.nan]], mask=np.array([True, False]))
    np.testing.assert_allclose(env.to_cells(observations["desired_goal"]), [[2.5, 9.5], [2.5, 9.5]], rtol=1e-6)
    _, rewards, terminated, _, infos = env.step(east)
    assert (rewards.tolist(), terminated.tolist()) == ([-1.0, -1.0], [False, False])
    np.testing.assert_allclose(infos["position"], [[2.5, 4.5], [2.5, 5.5]])


def test_a_new_goal_does_not_buy_time():
    env = PointMazeVectorEnv(1, **SMALL, autoreset_mode="Disabled", max_episode_steps=1, action_noise=0.0)
    env.reset(options={"start": (2.5, 2.5), "goal": (2.5, 9.5)})
    env.step(EAST[None])
    env.set_goals((2.5, 8.5))
    _, _, _, truncated, infos = env.step(EAST[None])
    assert truncated.all()
    np.testing.assert_allclose(infos["position"], [[2.5, 3.5]])


@pytest.mark.parametrize(
    ("mask", "message"),
    [([True], "shape"), (np.zeros(3, dtype=bool), "at least one"), (np.array([1, 0, 1]), "boolean")],
)
def test_a_bad_mask_is_refused(mask, message):
    with pytest.raises(ValueError, match=f"reset_mask is .*{message}"):
        PointMazeVectorEnv(3, **SMALL).reset(options={"reset_mask": mask})


def test_seeds_may_be_listed_and_must_be_as_many_as_sub_environments():
    env = PointMazeVectorEnv(2, **SMALL)
    listed, _ = env.reset(seed=[4, 5])
    assert env.np_random_seed == (4, 5)
    assert_same(listed, env.reset(seed=4)[0])
    with pytest.raises(ValueError, match=r"seed is .*a list of 2"):
        env.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="autoreset_mode is 'Never'; give one of"):
        PointMazeVectorEnv(2, **SMALL, autoreset_mode="Never")


# Images


def test_a_frame_shows_walls_the_point_and_its_goal():
    env = quiet(maze="U", resize=1, render_mode="rgb_array")
    env.reset(options={"start": (0.5, 0.5), "goal": (8.5, 8.5)})
    frame = env.render()
    scale = frame.shape[0] // 9
    middle = lambda row, column: frame[int((row + 0.5) * scale), int((column + 0.5) * scale)].tolist()  # noqa: E731
    assert frame.dtype == np.uint8
    assert frame.shape == (9 * scale, 9 * scale, 3)
    colours = {tuple(middle(*cell)) for cell in ((0, 4), (4, 0), (0, 0), (8, 8))}
    assert len(colours) == 4
    assert middle(3, 4) == middle(0, 4)
    assert quiet().render() is None


def test_a_vector_environment_renders_what_each_would():
    envs = PointMazeVectorEnv(2, **SMALL, render_mode="rgb_array")
    env = PointMazeEnv(**SMALL, render_mode="rgb_array")
    envs.reset(seed=1)
    env.reset(seed=2)
    np.testing.assert_array_equal(envs.render()[1], env.render())
