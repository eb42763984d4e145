"""Fast code, compiled with numba: evaluates the networks on single pairs without the overhead of a framework.

The plain version is `GoalNetworks.steps` and `act` in sorb.py; the tests check that the numbers are the same up to
rounding. A call of torch costs as much as the arithmetic of a dozen pairs, so this is faster for one robot, not for
many. `python -m speed.navigation` prints the ratio of the times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .sorb import GoalNetworks, Layers

Floats = NDArray[np.float32]


class SinglePairs:
    """Steps and actions for a few pairs of observation and goal."""

    most = 6  # number of pairs above which torch is as fast

    def __init__(self, networks: GoalNetworks) -> None:
        """Copy the weights of these networks."""
        self._actor, self._critics = _arrays(networks.actor), _arrays(networks.critics)
        self._actions = networks.actor.third.shape[2]

    def act(self, observations: Floats, goals: Floats) -> Floats:
        """(n, o) observations and (n, o) goals to (n, a) actions in [−1, 1]."""
        actions = np.empty((len(observations), self._actions), np.float32)
        _act(self._actor, observations, goals, actions)
        return actions

    def steps(self, starts: Floats, goals: Floats, pessimistic: bool) -> Floats:
        """(n, o) and (n, o) to (n,) steps: the maximum over the critics if `pessimistic`, otherwise their mean."""
        steps = np.empty(len(starts), np.float32)
        _steps(self._critics, starts, goals, self.act(starts, goals), pessimistic, steps)
        return steps


def _arrays(layers: Layers) -> tuple[Any, ...]:
    return tuple(np.ascontiguousarray(layer.numpy(), np.float32) for layer in layers)


@njit(cache=True, nogil=True, inline="always")
def _add(factor: Any, row: Any, hidden: Any) -> None:
    for unit in range(len(hidden)):
        hidden[unit] += factor * row[unit]


@njit(cache=True, nogil=True)
def _first(matrix: Any, start: Any, goal: Any, hidden: Any) -> None:
    """Compute the first layer of one pair into `hidden`."""
    size = len(start)
    hidden[:] = matrix[-1]
    for place in range(size):
        _add(start[place], matrix[place], hidden)
        _add(goal[place], matrix[size + place], hidden)


@njit(cache=True, nogil=True)
def _next(matrix: Any, before: Any, extra: Any, hidden: Any) -> None:
    """Compute a layer after a ReLU layer into `hidden`; units that are off are skipped."""
    hidden[:] = matrix[-1]
    for place in range(len(before)):
        if before[place] > 0:
            _add(before[place], matrix[place], hidden)
    for place in range(len(extra)):
        _add(extra[place], matrix[len(before) + place], hidden)


@njit(cache=True, nogil=True)
def _act(layers: Any, starts: Any, goals: Any, actions: Any) -> None:
    first, second, third = layers
    one, two = np.empty(first.shape[2], np.float32), np.empty(second.shape[2], np.float32)
    nothing = np.empty(0, np.float32)
    for pair in range(len(starts)):
        _first(first[0], starts[pair], goals[pair], one)
        _next(second[0], one, nothing, two)
        _next(third[0], two, nothing, actions[pair])
        for place in range(actions.shape[1]):
            actions[pair, place] = np.tanh(actions[pair, place])


@njit(cache=True, nogil=True)
def _steps(layers: Any, starts: Any, goals: Any, actions: Any, pessimistic: bool, result: Any) -> None:
    first, second, third = layers
    one, two = np.empty(first.shape[2], np.float32), np.empty(second.shape[2], np.float32)
    logits = np.empty(third.shape[2], np.float32)
    nothing = np.empty(0, np.float32)
    for pair in range(len(starts)):
        most = total = np.float32(0)
        for critic in range(len(first)):
            _first(first[critic], starts[pair], goals[pair], one)
            _next(second[critic], one, actions[pair], two)
            _next(third[critic], two, nothing, logits)
            highest = logits.max()
            mass = mean = np.float32(0)
            for place in range(len(logits)):
                share = np.exp(logits[place] - highest)
                mass += share
                mean += share * np.float32(place + 1)
            most, total = max(most, mean / mass), total + mean / mass
        result[pair] = most if pessimistic else total / len(first)
