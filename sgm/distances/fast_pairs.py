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
    """Steps and actions for a few pairs of observation and goal.

    Attributes:
        actor: layers of the actor, as in sorb.py.
        critics: layers of the critics.
    """

    most = 6  # number of pairs above which torch is as fast

    def __init__(self, networks: GoalNetworks) -> None:
        """Copy the weights of these networks."""
        self.actor, self.critics = _arrays(networks.actor), _arrays(networks.critics)
        self._actions = networks.actor.third.shape[2]

    def act(self, observations: Floats, goals: Floats) -> Floats:
        """(n, o) observations and (n, o) goals to (n, a) actions in [−1, 1]."""
        actions = np.empty((len(observations), self._actions), np.float32)
        _act(self.actor, observations, goals, actions)
        return actions

    def steps(self, starts: Floats, goals: Floats, pessimistic: bool) -> Floats:
        """(n, o) and (n, o) to (n,) steps: the maximum over the critics if `pessimistic`, otherwise their mean."""
        steps = np.empty(len(starts), np.float32)
        _steps(self.critics, starts, goals, self.act(starts, goals), pessimistic, steps)
        return steps


def _arrays(layers: Layers) -> tuple[Any, ...]:
    return tuple(np.ascontiguousarray(layer.numpy(), np.float32) for layer in layers)


@njit(cache=True, nogil=True, inline="always")
def add(factor: Any, row: Any, hidden: Any) -> None:
    """Add a row, times a factor, to hidden units."""
    for unit in range(len(hidden)):
        hidden[unit] += factor * row[unit]


@njit(cache=True, nogil=True)
def _first(matrix: Any, start: Any, goal: Any, hidden: Any) -> None:
    """Compute the first layer of one pair into `hidden`."""
    size = len(start)
    hidden[:] = matrix[-1]
    for place in range(size):
        add(start[place], matrix[place], hidden)
        add(goal[place], matrix[size + place], hidden)


@njit(cache=True, nogil=True)
def _next(matrix: Any, before: Any, extra: Any, hidden: Any) -> None:
    """Compute a layer after a ReLU layer into `hidden`; units that are off are skipped."""
    hidden[:] = matrix[-1]
    for place in range(len(before)):
        if before[place] > 0:
            add(before[place], matrix[place], hidden)
    for place in range(len(extra)):
        add(extra[place], matrix[len(before) + place], hidden)


@njit(cache=True, nogil=True)
def _act(layers: Any, starts: Any, goals: Any, actions: Any) -> None:
    first, second, third = layers
    one, two = np.empty(first.shape[2], np.float32), np.empty(second.shape[2], np.float32)
    for pair in range(len(starts)):
        act_once(first[0], second[0], third[0], starts[pair], goals[pair], one, two, actions[pair])


@njit(cache=True, nogil=True)
def act_once(first: Any, second: Any, third: Any, start: Any, goal: Any, one: Any, two: Any, action: Any) -> None:
    """Write the action of one pair to `action`; `one` and `two` are buffers for the layers."""
    nothing = np.empty(0, np.float32)
    _first(first, start, goal, one)
    _next(second, one, nothing, two)
    _next(third, two, nothing, action)
    for place in range(len(action)):
        action[place] = np.tanh(action[place])


@njit(cache=True, nogil=True)
def expected(
    first: Any, second: Any, third: Any, start: Any, goal: Any, action: Any, one: Any, two: Any, logits: Any
) -> Any:
    """Expected steps of one pair by one critic; `one`, `two` and `logits` are buffers for its layers."""
    _first(first, start, goal, one)
    _next(second, one, action, two)
    _next(third, two, np.empty(0, np.float32), logits)
    return mean_steps(logits)


@njit(cache=True, nogil=True)
def mean_steps(logits: Any) -> Any:
    """Expected steps from the logits of a critic over 1…B."""
    highest = logits.max()
    mass = mean = np.float32(0)
    for place in range(len(logits)):
        share = np.exp(logits[place] - highest)
        mass += share
        mean += share * np.float32(place + 1)
    return mean / mass


@njit(cache=True, nogil=True)
def _steps(layers: Any, starts: Any, goals: Any, actions: Any, pessimistic: bool, result: Any) -> None:
    first, second, third = layers
    one, two = np.empty(first.shape[2], np.float32), np.empty(second.shape[2], np.float32)
    logits = np.empty(third.shape[2], np.float32)
    for pair in range(len(starts)):
        start, goal, action = starts[pair], goals[pair], actions[pair]
        most = total = np.float32(0)
        for critic in range(len(first)):
            says = expected(first[critic], second[critic], third[critic], start, goal, action, one, two, logits)
            most, total = max(most, says), total + says
        result[pair] = most if pessimistic else total / len(first)
