"""Fast code, compiled with numba: the outputs of a network over a box of starts, as lines in the start ± an error.

The plain version is `lines` in fast_bounds.py; the tests compare the two. Goals that lie close together share most of
the work, as in fast_blocks.py: a unit of the first layer that stays on in the whole box for all of them adds the same
slopes to each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .fast_blocks import TILE, add_row, neighbours


@njit(cache=True, nogil=True)
def lines(
    first: Any, second: Any, third: Any, start: Any, goals: Any, radius: Any, middle: Any, slope: Any, error: Any
) -> Any:  # fmt: skip
    """(m, outputs) middle, (m, o, outputs) slope and (m, outputs) error of one network, for starts in a box.

    The box is within `radius` of the (o,) start, sup norm; goals are (m, o). `middle`, `slope` and `error` are those
    of the extra inputs of the second layer.
    """
    size, hidden = len(start), first.shape[1]
    shape = len(goals), third.shape[1]
    found = np.empty(shape, np.float32), np.empty((shape[0], size, shape[1]), np.float32), np.empty(shape, np.float32)
    room = (
        np.empty((TILE, hidden), np.float32), np.empty((1 + 2 * size, hidden), np.float32),
        np.empty((TILE, hidden), np.float32), np.empty((TILE * size, hidden), np.float32),
        np.empty((TILE, hidden), np.float32),
    )  # fmt: skip
    order = neighbours(goals)
    for low in range(0, len(goals), TILE):
        some = order[low : low + TILE]
        _first_layer(first, second, start, goals[some], radius, room)
        _second_layer(second[hidden:], middle[some], slope[some], error[some], radius, room, size)
        _outputs(third, some, room, size, found)
    return found


@njit(cache=True, nogil=True)
def _first_layer(first: Any, second: Any, start: Any, goals: Any, radius: Any, room: Any) -> None:
    """The inputs of the second layer from the first one, into `room`: values, slopes and errors of a tile."""
    inputs, fold, middle, slope, error = room
    size, hidden, number = len(start), first.shape[1], len(goals)
    fold[:], error[:number] = 0, 0
    base, reach = first[-1].copy(), np.zeros(hidden, np.float32)
    for place in range(size):
        for unit in range(hidden):
            base[unit] += start[place] * first[place, unit]
            reach[unit] += radius * abs(first[place, unit])
    for pair in range(number):
        inputs[pair] = base
        for place in range(size):
            add_row(goals[pair, place], first, size + place, inputs, pair)
    least, most = _range(inputs, number)
    for unit in range(hidden):
        if least[unit] >= reach[unit]:  # it stays on, and is linear in start and goal
            add_row(base[unit], second, unit, fold, 0)
            for place in range(2 * size):
                add_row(first[place, unit], second, unit, fold, 1 + place)
    for pair in range(number):
        middle[pair] = fold[0]
        for place in range(size):
            add_row(goals[pair, place], fold, 1 + size + place, middle, pair)
            slope[pair * size + place] = fold[1 + place]
    for unit in range(hidden):
        if least[unit] < reach[unit] and most[unit] > -reach[unit]:
            for pair in range(number):
                line, off = _relu_line(inputs[pair, unit], reach[unit])
                if line > 0:
                    add_row(line * inputs[pair, unit] + off, second, unit, middle, pair)
                    for place in range(size):
                        add_row(line * first[place, unit], second, unit, slope, pair * size + place)
                if off > 0:
                    _add_magnitudes(off, second, unit, error, pair)


@njit(cache=True, nogil=True)
def _second_layer(weights: Any, middle: Any, slope: Any, error: Any, radius: Any, room: Any, size: int) -> None:
    """Add extra inputs and bias, whose weights these are, and rectify, in `room`."""
    _, _, values, slopes, errors = room
    reach, line = np.empty(values.shape[1], np.float32), np.empty(values.shape[1], np.float32)
    for pair in range(len(middle)):
        add_row(np.float32(1), weights, len(weights) - 1, values, pair)
        for extra in range(middle.shape[1]):
            add_row(middle[pair, extra], weights, extra, values, pair)
            for place in range(size):
                add_row(slope[pair, place, extra], weights, extra, slopes, pair * size + place)
            _add_magnitudes(error[pair, extra], weights, extra, errors, pair)
        reach[:] = errors[pair]
        for place in range(size):
            for unit in range(len(reach)):
                reach[unit] += radius * abs(slopes[pair * size + place, unit])
        for unit in range(len(reach)):
            line[unit], off = _relu_line(values[pair, unit], reach[unit])
            values[pair, unit] = line[unit] * values[pair, unit] + off
            errors[pair, unit] = line[unit] * errors[pair, unit] + off
        for place in range(size):
            for unit in range(len(line)):
                slopes[pair * size + place, unit] *= line[unit]


@njit(cache=True, nogil=True)
def _outputs(third: Any, some: Any, room: Any, size: int, found: Any) -> None:
    """The third layer, to where the pairs of a tile have their lines."""
    _, _, values, slopes, errors = room
    weights, number = third[:-1], len(some)
    middle, slope = np.dot(values[:number], weights) + third[-1], np.dot(slopes[: number * size], weights)
    error = np.dot(errors[:number], np.abs(weights))
    for pair in range(number):
        found[0][some[pair]], found[2][some[pair]] = middle[pair], error[pair]
        for place in range(size):
            found[1][some[pair], place] = slope[pair * size + place]


@njit(cache=True, nogil=True)
def _range(values: Any, number: int) -> Any:
    """The least and the greatest of each column of the first rows."""
    least, most = values[0].copy(), values[0].copy()
    for row in range(1, number):
        for column in range(len(least)):
            least[column] = min(least[column], values[row, column])
            most[column] = max(most[column], values[row, column])
    return least, most


@njit(cache=True, nogil=True, inline="always")
def _relu_line(middle: Any, reach: Any) -> Any:
    """`relu_lines` of fast_bounds.py for one unit."""
    line = min(max((middle + reach) / max(np.float32(2) * reach, np.float32(1e-30)), np.float32(0)), np.float32(1))
    return line, max(line * (reach - middle) / np.float32(2), np.float32(0))


@njit(cache=True, nogil=True, inline="always")
def _add_magnitudes(factor: Any, source: Any, row: int, target: Any, to: int) -> None:
    for unit in range(source.shape[1]):
        target[to, unit] += factor * abs(source[row, unit])
