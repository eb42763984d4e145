"""Dead reckoning in ViZDoom: poses of the player from its actions alone, with the engine's motion without walls.

In each tic thrust is added to the velocity, the player moves by the velocity, and friction reduces it. Turning is slow
at first and fast from the sixth tic on. The player cannot act in the first tics of an episode. Headings are exact;
positions are wrong after the player pushes against a wall, because it is assumed to move.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError

from .driver import ACTIONS, REPEAT

THRUST, SIDE = 50 * 2048 / 65536, 40 * 2048 / 65536  # acceleration of running, map units per tic in each tic
FRICTION = 0xE800 / 65536  # share of the velocity that is left after a tic
SLOW, FAST = np.radians(320 / 65536 * 360), np.radians(1280 / 65536 * 360)  # turning, radians per tic
RAMP = 6  # tic of turning from which it is fast
FROZEN = 7  # tics at the start of an episode in which the player cannot act
_FORWARD, _BACK, _LEFT, _RIGHT, _IDLE, _TURN_LEFT, _TURN_RIGHT = range(len(ACTIONS))


def reckon(actions: ArrayLike) -> NDArray[np.float64]:
    """Compute poses from the actions of whole episodes: (t,) or (episodes, t) to (t + 1, 3) or (episodes, t + 1, 3).

    Poses are x, y in map units and heading in radians, relative to the first pose: at the origin, heading along x. This
    is a motion model for `sgm.navigation.dead_reckon`.
    """
    given = np.asarray(actions)
    known = (
        given.ndim in (1, 2) and given.dtype.kind in "iu" and (not given.size or 0 <= given.min() <= given.max() <= 6)
    )
    if not known:
        raise InputError(
            f"actions are {given.dtype} of shape {given.shape}: expected (t,) or (episodes, t) whole numbers from 0 to "
            f"{len(ACTIONS) - 1}, from the first action of an episode on"
        )
    rows = np.atleast_2d(given)
    poses = np.zeros((len(rows), rows.shape[1] + 1, 3))
    player = _Player(len(rows))
    for step in range(rows.shape[1]):
        player.act(rows[:, step])
        poses[:, step + 1, :2], poses[:, step + 1, 2] = player.place, player.heading
    return poses if given.ndim == 2 else poses[0]


class _Player:
    """State of several players, from the start of an episode on, advanced together."""

    def __init__(self, number: int) -> None:
        self.place, self.velocity = np.zeros((2, number, 2))
        self.heading = np.zeros(number)
        self.turning = np.zeros(number, np.int64)  # tics
        self.tics = 0

    def act(self, actions: NDArray[np.integer]) -> None:
        """Take one action each, for four tics."""
        ahead = THRUST * ((actions == _FORWARD) * 1.0 - (actions == _BACK))
        left = SIDE * ((actions == _LEFT) * 1.0 - (actions == _RIGHT))
        turn = (actions == _TURN_LEFT) * 1.0 - (actions == _TURN_RIGHT)
        for _ in range(REPEAT):
            self.turning = np.where(turn != 0, self.turning + 1, 0)
            if self.tics >= FROZEN:
                self.heading = self.heading + turn * np.where(self.turning < RAMP, SLOW, FAST)
                cos, sin = np.cos(self.heading), np.sin(self.heading)
                self.velocity = self.velocity + np.stack([ahead * cos - left * sin, ahead * sin + left * cos], axis=1)
            self.place = self.place + self.velocity
            self.velocity = self.velocity * FRICTION
            self.tics += 1
