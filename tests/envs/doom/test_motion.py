"""Dead reckoning in ViZDoom: by the actions alone it goes where the engine goes, as long as no wall is in the way."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.navigation import dead_reckon

pytest.importorskip("vizdoom")
from sgm.envs.doom import mazes
from sgm.envs.doom.env import DoomMazeVectorEnv, explore
from sgm.envs.doom.motion import FROZEN, reckon


def test_four_tics_forwards_from_rest_lead_so_far():
    idle = [4] * (-(-FROZEN // 4))
    place = reckon([*idle, 0, 0, 0, 0, 0, 0])[len(idle) :, 0]
    # docs: 14, 31, 43, 51, 56, 59 units a step
    assert np.diff(place).round().tolist() == [14, 31, 43, 51, 56, 59]


def test_turning_is_slow_at_first_and_forgets_when_it_is_interrupted():
    turn = np.degrees(np.diff(reckon([4, 4, 5, 5, 5, 4, 5, 6])[:, 2]))
    slow, fast = 320 / 65536 * 360, 1280 / 65536 * 360
    assert np.allclose(turn, [0, 0, 4 * slow, slow + 3 * fast, 4 * fast, 0, 4 * slow, -slow - 3 * fast])


def test_many_episodes_are_reckoned_at_once_as_one_by_one():
    actions = np.random.default_rng(0).integers(7, size=(5, 40))
    assert np.array_equal(reckon(actions), np.stack([reckon(row) for row in actions]))
    data = sgm.data.from_episodes(np.zeros((5, 41, 1)), actions)
    assert np.array_equal(dead_reckon(data, reckon), reckon(actions).reshape(-1, 3))


@pytest.mark.parametrize("actions", [[7], [-1], [0.5], [[[1]]]])
def test_other_actions_are_refused(actions):
    with pytest.raises(sgm.InputError, match="whole numbers from 0 to 6"):
        reckon(actions)


def test_it_goes_where_the_engine_goes():
    env = DoomMazeVectorEnv(2, doom_map=mazes.generate(0))
    try:
        found = explore(env, 4, 60, seed=3)
    finally:
        env.close()
    true, own = found.poses.astype(np.float64), reckon(found.actions)
    turned = np.radians(true[:, :, 2] - true[:, :1, 2]) - own[..., 2]
    assert np.abs((turned + np.pi) % (2 * np.pi) - np.pi).max() < 1e-5
    begin = np.radians(true[:, :1, 2])
    x, y = own[..., 0], own[..., 1]
    moved = np.stack([x * np.cos(begin) - y * np.sin(begin), x * np.sin(begin) + y * np.cos(begin)], axis=-1)
    off = np.linalg.norm(np.diff(true[..., :2] - moved, axis=1), axis=-1)  # of each step
    assert np.median(off) < 0.5 and (off > 5).mean() < 0.4  # walls are in the way of the others
