"""The environments of the ogbench package: names, and episodes that repeat with their seed."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from sgm.envs.ogbench.names import POINT_MAZES, environment_of, maze_of
from sgm.envs.ogbench.package import OwnNumbers, make_vec

pytest.importorskip("ogbench")


@pytest.fixture(autouse=True)
def _headless(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("antmaze-giant-stitch-v0", "antmaze-giant-v0"),
        ("cube-single-play-v0", "cube-single-v0"),
        ("scene-noisy-v0", "scene-v0"),
        ("visual-puzzle-3x3-play-v0", "visual-puzzle-3x3-v0"),
        ("antmaze-giant-v0", "antmaze-giant-v0"),
    ],
)
def test_a_dataset_has_the_name_of_its_environment_and_the_kind_of_data(name, environment):
    assert environment_of(name) == environment


def test_point_mazes_are_told_apart():
    assert len(POINT_MAZES) == 8 and {maze_of(name) for name in POINT_MAZES} == {"medium", "large", "giant", "teleport"}
    assert maze_of("pointmaze-teleport-v0") == "teleport"
    assert maze_of("antmaze-medium-stitch-v0") is None and maze_of("pointmaze-bogus-stitch-v0") is None


def walk(seed: int) -> np.ndarray:
    """Starts, goals and the way of two ants in the teleport maze."""
    env = make_vec("antmaze-teleport-v0", 2)
    seen, info = env.reset(seed=[seed, seed + 1], options={"task_id": 2})
    found = [seen, info["goal"]]
    for _ in range(5):
        np.random.random(7)  # noqa: NPY002  # what else is drawn in this process changes nothing
        found.append(env.step(np.zeros((2, 8), np.float32))[0])
    env.close()
    return np.array(found)


def test_an_episode_repeats_with_its_seed_and_leaves_global_numbers_alone():
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = walk(0)
    np.random.seed(4)  # noqa: NPY002
    assert (walk(0) == first).all() and (walk(5) != first).any()
    env = make_vec("antmaze-teleport-v0", 1)
    np.random.seed(3)  # noqa: NPY002
    env.reset(seed=1)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert (first[0, 0] != first[0, 1]).any()  # every ant has numbers of its own
    env.close()


def test_without_a_seed_episodes_differ():
    env = OwnNumbers(gymnasium.make("pointmaze-medium-v0"))
    starts = {tuple(env.reset(options={"task_id": 1})[0]) for _ in range(3)}
    assert len(starts) == 3
    env.close()
