"""Dead reckoning: poses integrated from the actions of an agent, each episode in its own frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.data import Experience
from sgm.errors import InputError

Floats = NDArray[np.float64]
Motion = Callable[[NDArray[Any]], ArrayLike]  # (t, ...) actions of an episode to (t + 1, 2 or 3) poses


def dead_reckon(data: Experience, motion: Motion) -> Floats:
    """Compute poses from actions, each episode in its own frame: (n, 3) x, y and heading in radians, or (n, 2).

    Args:
        data: experience with actions and with every step of its episodes.
        motion: (t, ...) actions of one episode to its (t + 1, 3) poses, x, y and heading in radians, or (t + 1, 2)
            positions if all episodes share a compass. For example a `LinearMotion`.
    """
    if data.actions is None:
        raise InputError("the experience has no actions: dead reckoning integrates them; give poses from odometry")
    steps = np.diff(data.steps)[np.diff(data.episodes) == 0]
    if (steps != 1).any():
        raise InputError(
            "the experience leaves out steps within an episode: expected all of them, because actions are integrated "
            "one by one; dead-reckon the whole experience first, then select rows"
        )
    found = []
    for rows in data.rows_by_episode():
        poses = np.asarray(motion(data.actions[rows][:-1]), np.float64)
        length = rows.stop - rows.start
        if poses.ndim != 2 or len(poses) != length or poses.shape[1] not in (2, 3) or not np.isfinite(poses).all():
            raise InputError(
                f"the motion model returned an array of shape {poses.shape} for {length - 1} actions: expected "
                f"({length}, 3) finite poses, or 2 columns without a heading"
            )
        found.append(poses)
    return np.concatenate(found) if found else np.empty((0, 3))


@dataclasses.dataclass(frozen=True)
class LinearMotion:
    """Motion in the frame of the robot, linear in its last few actions; fitted to recorded odometry.

    Attributes:
        coefficients: (memory × a + 1, 3) from the last `memory` actions (newest first, a numbers each) and a constant
            to the motion of one step: forwards and to the left (units of the odometry), and the turn (radians).
        memory: number of actions on which a step depends, because of momentum.
        kinds: number of discrete actions; 0 if actions are vectors.
        error: (3,) root mean square residual of the fit in one step.
    """

    coefficients: Floats
    memory: int
    kinds: int
    error: Floats

    @classmethod
    def fit(cls, actions: ArrayLike, poses: ArrayLike, episodes: ArrayLike, memory: int = 8) -> LinearMotion:
        """Fit by least squares.

        Args:
            actions: (n,) whole numbers or (n, a) vectors; the last row of an episode is ignored.
            poses: (n, 3) x, y and heading in radians by odometry.
            episodes: (n,) episode of each row.
            memory: number of last actions on which a step depends.
        """
        acts, track, labels = np.asarray(actions), np.asarray(poses, np.float64), np.asarray(episodes)
        if track.shape != (len(acts), 3) or labels.shape != (len(acts),) or memory < 1 or len(acts) < 2:
            raise InputError(
                f"actions, poses and episodes have shapes {acts.shape}, {track.shape} and {labels.shape}, memory is "
                f"{memory}: expected (n,) or (n, a), (n, 3) and (n,) of two rows or more, and a memory of 1 or more"
            )
        kinds = int(acts.max()) + 1 if acts.ndim == 1 and acts.dtype.kind in "iu" else 0
        inside = labels[1:] == labels[:-1]
        inputs = _history(_vectors(acts, kinds)[:-1], labels[:-1], memory)[inside]
        moved = to_own_frame(track[:-1], track[1:])[inside]
        coefficients = np.linalg.lstsq(inputs, moved, rcond=None)[0]
        error = np.sqrt(np.mean((moved - inputs @ coefficients) ** 2, axis=0))
        return cls(coefficients, memory, kinds, error)

    def __call__(self, actions: ArrayLike) -> Floats:
        """Integrate (t, ...) actions of one episode to (t + 1, 3) poses, beginning at the origin."""
        vectors = _vectors(np.asarray(actions), self.kinds)
        moved = _history(vectors, np.zeros(len(vectors), np.int64), self.memory) @ self.coefficients
        heading = np.concatenate([[0.0], np.cumsum(moved[:, 2])])
        cos, sin = np.cos(heading[:-1]), np.sin(heading[:-1])
        steps = np.stack([moved[:, 0] * cos - moved[:, 1] * sin, moved[:, 0] * sin + moved[:, 1] * cos], axis=1)
        return np.column_stack([np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)]), heading])


def to_own_frame(poses: Floats, others: Floats) -> Floats:
    """Return `others` in the frames of `poses`: (..., 3) and (..., 3) to (..., 3) forwards, left and turn in ±π."""
    ahead = others - poses
    cos, sin = np.cos(poses[..., 2]), np.sin(poses[..., 2])
    forwards, left = ahead[..., 0] * cos + ahead[..., 1] * sin, ahead[..., 1] * cos - ahead[..., 0] * sin
    return np.stack([forwards, left, wrapped(ahead[..., 2])], axis=-1)


def wrapped(angle: Floats) -> Floats:
    """Wrap angles to ±π."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _vectors(actions: NDArray[Any], kinds: int) -> Floats:
    """Return actions as vectors; (n,) discrete ones as (n, kinds) one-hot vectors."""
    if not kinds:
        return np.asarray(actions, np.float64).reshape(len(actions), int(np.prod(np.shape(actions)[1:])))
    if len(actions) and int(actions.max()) >= kinds:
        raise InputError(f"an action is {int(actions.max())}: the motion model was fitted on actions under {kinds}")
    return np.eye(kinds)[actions]


def _history(vectors: Floats, episodes: NDArray[np.int64], memory: int) -> Floats:
    """Return the last actions at each step, newest first, and a constant 1; zeros before the first of an episode."""
    columns = [vectors]
    for lag in range(1, min(memory, len(vectors)) if len(vectors) else memory):
        earlier = np.zeros_like(vectors)
        same = episodes[lag:] == episodes[:-lag]
        earlier[lag:][same] = vectors[:-lag][same]
        columns.append(earlier)
    missing = np.zeros((len(vectors), vectors.shape[1] * (memory - len(columns))))
    return np.concatenate([*columns, missing, np.ones((len(vectors), 1))], axis=1)
