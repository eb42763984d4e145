"""Fast code, compiled with numba: many pairs through the networks, without the overhead of a framework.

The plain version is `GoalNetworks.steps` in sorb.py; the tests compare the two. Pairs of one start with goals that are
close together (a tile) share most of the work: most units of the first layer keep their sign over a tile. Units that
stay off add nothing, all units that stay on are one linear map, and only the others are computed pair by pair. Other
pairs are evaluated with matrix products (BLAS). `python -m speed.navigation` times the two uses: whether waypoints are
reached, and which node is the nearest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .fast_pairs import Floats, SinglePairs, act_once, add, expected, mean_steps

_ROUNDING = 1e-3  # steps that single precision may be off
_ROWS = 512  # pairs that go through the networks at once, so that activations stay in the cache
TILE = 24  # goals taken together with one start, at most
_WORTH_A_TILE = 10  # pairs of one start from which on tiles save work


def differ(networks: SinglePairs, starts: Floats, goals: Floats, steps: Floats, slack: float) -> NDArray[np.bool_]:
    """(n,) whether the maximum over the critics differs from (n,) `steps` by `slack` or more."""
    told = np.empty(len(starts), np.bool_)
    _differ(networks.actor, networks.critics, starts, goals, steps, np.float32(slack), told)
    return told


def first_critic(networks: SinglePairs, starts: Floats, goals: Floats) -> Floats:
    """(n, o) starts and (m, o) goals to the (n, m) steps of the first critic."""
    table = np.empty((len(starts), len(goals)), np.float32)
    if len(goals) >= len(starts):
        _first_critic(networks.actor, networks.critics, starts, goals, False, table)
    else:
        _first_critic(networks.actor, networks.critics, goals, starts, True, table.T)
    return table


@njit(cache=True, nogil=True)
def _first_critic(actor: Any, critics: Any, fixed: Any, others: Any, turned: bool, table: Any) -> None:
    """Fill the (n, m) table: steps from each fixed end to all others, or, if `turned`, from the others to it."""
    order = neighbours(others)
    others = others[order]
    first, second, third = critics
    rooms = _room(actor[0], fixed.shape[1]), _room(first, fixed.shape[1])
    for number in range(len(fixed)):
        for low in range(0, len(others), TILE):
            ends = others[low : low + TILE]
            actions = _tile_actions(actor, fixed[number], ends, turned, rooms[0])
            logits = _tile_outputs(first[0], second[0], third[0], fixed[number], ends, turned, actions, rooms[1])
            for place in range(len(ends)):
                table[number, order[low + place]] = mean_steps(logits[place])


@njit(cache=True, nogil=True)
def _differ(actor: Any, critics: Any, starts: Any, goals: Any, steps: Any, slack: Any, told: Any) -> None:
    """Fill `told`: consecutive pairs of one start are evaluated in tiles, all other pairs together."""
    if len(starts) == 1:
        told[0] = _differs(actor, critics, starts[0], goals[0], steps[0], slack)
        return
    rooms = _room(actor[0], starts.shape[1]), _room(critics[0], starts.shape[1])
    rest, left, low = np.empty(len(starts), np.int64), 0, 0
    while low < len(starts):
        high = low + 1
        while high < len(starts) and (starts[high] == starts[low]).all():
            high += 1
        if high - low >= _WORTH_A_TILE:
            part = slice(low, high)
            _differ_from_one(actor, critics, starts[low], goals[part], steps[part], slack, told[part], rooms)
        else:
            for pair in range(low, high):
                rest[left] = pair
                left += 1
        low = high
    for low in range(0, left, _ROWS):
        some = rest[low : min(low + _ROWS, left)]
        told[some] = _differ_block(actor, critics, starts[some], goals[some], steps[some], slack)


@njit(cache=True, nogil=True)
def _verdict(most: Any, theirs: Any, slack: Any, bins: int) -> Any:
    """Decide a pair from the maximum of the critics so far: it differs (1), it does not (0), or undecided (−1)."""
    if most - theirs >= slack:
        return 1
    if theirs + slack > bins + _ROUNDING and theirs - most < slack:
        return 0  # no critic exceeds the number of bins
    return -1


@njit(cache=True, nogil=True)
def _judge(logits: Any, left: Any, most: Any, steps: Any, slack: Any, told: Any) -> Any:
    """Update `most` and `told` with one critic's logits for the pairs `left`; (n,) which of them stay undecided."""
    undecided = np.zeros(len(left), np.bool_)
    for place in range(len(left)):
        pair = left[place]
        most[pair] = max(most[pair], mean_steps(logits[place]))
        verdict = _verdict(most[pair], steps[pair], slack, logits.shape[1])
        told[pair] = verdict == 1 if verdict >= 0 else steps[pair] - most[pair] >= slack
        undecided[place] = verdict < 0
    return undecided


# -- one pair ------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _differs(actor: Any, critics: Any, start: Any, goal: Any, theirs: Any, slack: Any) -> Any:
    """Whether one pair differs."""
    first, second, third = critics
    one, two = np.empty(first.shape[2], np.float32), np.empty(second.shape[2], np.float32)
    logits, action = np.empty(third.shape[2], np.float32), np.empty(actor[2].shape[2], np.float32)
    act_once(actor[0][0], actor[1][0], actor[2][0], start, goal, one, two, action)
    most = np.float32(0)
    for critic in range(len(first)):
        says = expected(first[critic], second[critic], third[critic], start, goal, action, one, two, logits)
        most = max(most, says)
        verdict = _verdict(most, theirs, slack, len(logits))
        if verdict >= 0:
            return verdict == 1
    return theirs - most >= slack


# -- pairs that have nothing in common -----------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _differ_block(actor: Any, critics: Any, starts: Any, goals: Any, steps: Any, slack: Any) -> Any:
    """(n,) which pairs differ; only undecided pairs are evaluated by the next critic."""
    left, told, most = np.arange(len(starts)), np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.float32)
    nothing = np.empty((len(starts), 0), np.float32)
    actions = np.tanh(_block_outputs(actor[0][0], actor[1][0], actor[2][0], starts, goals, nothing))
    first, second, third = critics
    for critic in range(len(first)):
        logits = _block_outputs(first[critic], second[critic], third[critic], starts, goals, actions)
        undecided = _judge(logits, left, most, steps, slack, told)
        left, starts, goals, actions = left[undecided], starts[undecided], goals[undecided], actions[undecided]
        if not len(left):
            break
    return told


@njit(cache=True, nogil=True)
def _block_outputs(first: Any, second: Any, third: Any, starts: Any, goals: Any, extra: Any) -> Any:
    """(n, outputs) outputs of one network."""
    size, hidden = starts.shape[1], first.shape[1]
    one = np.empty((len(starts), hidden), np.float32)
    for pair in range(len(starts)):
        one[pair] = first[-1]
        for place in range(size):
            add(starts[pair, place], first[place], one[pair])
            add(goals[pair, place], first[size + place], one[pair])
        _rectify(one[pair])
    two = np.dot(one, second[:hidden])
    for pair in range(len(starts)):
        add(np.float32(1), second[-1], two[pair])
        for place in range(extra.shape[1]):
            add(extra[pair, place], second[hidden + place], two[pair])
        _rectify(two[pair])
    return np.dot(two, third[:hidden]) + third[hidden]


@njit(cache=True, nogil=True)
def _rectify(row: Any) -> None:
    for unit in range(len(row)):
        row[unit] = max(row[unit], np.float32(0))


# -- one start and goals close together, or one goal and starts ----------------------------------------------------


@njit(cache=True, nogil=True)
def _differ_from_one(
    actor: Any, critics: Any, start: Any, goals: Any, steps: Any, slack: Any, told: Any, rooms: Any
) -> None:  # fmt: skip
    """Fill `told` with which pairs of one start differ, tile by tile."""
    first, second, third = critics
    order, most = neighbours(goals), np.zeros(len(goals), np.float32)
    for low in range(0, len(goals), TILE):
        left = order[low : low + TILE]
        actions = _tile_actions(actor, start, goals[left], False, rooms[0])
        for critic in range(len(first)):
            layers = first[critic], second[critic], third[critic]
            logits = _tile_outputs(*layers, start, goals[left], False, actions, rooms[1])
            undecided = _judge(logits, left, most, steps, slack, told)
            left, actions = left[undecided], actions[undecided]
            if not len(left):
                break


@njit(cache=True, nogil=True)
def neighbours(points: Any) -> Any:
    """Order (n, o) points so that each `TILE` consecutive ones are close together: (n,) indexes.

    The points are halved across their longest side, recursively.
    """
    order = np.arange(len(points))
    todo = [(0, len(points))]
    while len(todo):
        low, high = todo.pop()
        if high - low <= TILE:
            continue
        part = order[low:high].copy()
        widest, width = 0, np.float32(-1)
        for axis in range(points.shape[1]):
            values = points[part, axis]
            if values.max() - values.min() > width:
                widest, width = axis, values.max() - values.min()
        order[low:high] = part[np.argsort(points[part, widest])]
        middle = low + TILE * (((high - low + TILE - 1) // TILE) // 2)
        todo.append((low, middle))
        todo.append((middle, high))
    return order


@njit(cache=True, nogil=True)
def _room(first: Any, size: int) -> Any:
    """Buffers for a tile in a network with this first layer: two rows, the linear map, and both layers."""
    hidden = first.shape[2]
    one, two = np.empty((TILE, hidden), np.float32), np.empty((TILE, hidden), np.float32)
    return (
        np.empty(hidden, np.float32),
        np.empty(hidden, np.float32),
        np.empty((size + 1, hidden), np.float32),
        one,
        two,
    )


@njit(cache=True, nogil=True)
def _tile_actions(actor: Any, fixed: Any, ends: Any, turned: bool, room: Any) -> Any:
    nothing = np.empty((len(ends), 0), np.float32)
    return np.tanh(_tile_outputs(actor[0][0], actor[1][0], actor[2][0], fixed, ends, turned, nothing, room))


@njit(cache=True, nogil=True)
def _tile_outputs(
    first: Any, second: Any, third: Any, fixed: Any, ends: Any, turned: bool, extra: Any, room: Any
) -> Any:  # fmt: skip
    """(n, outputs) of one network for the (o,) start `fixed` and (n, o) goals `ends`, or, `turned`, the other way."""
    base, on, fold, one, two = room
    size, hidden, number = len(fixed), first.shape[1], len(ends)
    own, other = (size, 0) if turned else (0, size)
    base[:], on[:], fold[:] = first[-1], 0, 0
    for place in range(size):
        add(fixed[place], first[own + place], base)
    for pair in range(number):
        one[pair] = base
        for place in range(size):
            add_row(ends[pair, place], first, other + place, one, pair)
        for unit in range(hidden):
            on[unit] += np.float32(one[pair, unit] > 0)
    steady, unsteady = (on == number).nonzero()[0], ((on > 0) & (on < number)).nonzero()[0]
    _add_rows(base[steady], steady, len(steady), second, fold, 0)  # these units are linear in the other end
    for place in range(size):
        _add_rows(first[other + place][steady], steady, len(steady), second, fold, 1 + place)
    factors, units = np.empty(len(unsteady), np.float32), np.empty(len(unsteady), np.int64)
    for pair in range(number):
        found = 0
        for unit in unsteady:
            factors[found], units[found] = one[pair, unit], unit
            found += one[pair, unit] > 0
        two[pair] = second[-1]
        for place in range(extra.shape[1]):
            add_row(extra[pair, place], second, hidden + place, two, pair)
        add_row(np.float32(1), fold, 0, two, pair)
        for place in range(size):
            add_row(ends[pair, place], fold, 1 + place, two, pair)
        _add_rows(factors, units, found, second, two, pair)
        _rectify(two[pair])
    return np.dot(two[:number], third[:hidden]) + third[hidden]


@njit(cache=True, nogil=True, inline="always")
def add_row(factor: Any, source: Any, row: int, target: Any, to: int) -> None:
    """Add a row of a matrix, times a factor, to a row of another one; slices would be slower."""
    for unit in range(source.shape[1]):
        target[to, unit] += factor * source[row, unit]


@njit(cache=True, nogil=True)
def _add_rows(factors: Any, rows: Any, number: int, source: Any, target: Any, to: int) -> None:
    """Add the first `number` rows of a list, times factors, to a row of another matrix, four at a time."""
    done = number - number % 4
    for place in range(0, done, 4):
        one, two, three, four = factors[place], factors[place + 1], factors[place + 2], factors[place + 3]
        a, b, c, d = rows[place], rows[place + 1], rows[place + 2], rows[place + 3]
        for unit in range(source.shape[1]):
            sums = one * source[a, unit] + two * source[b, unit] + three * source[c, unit] + four * source[d, unit]
            target[to, unit] += sums
    for place in range(done, number):
        add_row(factors[place], source, rows[place], target, to)
