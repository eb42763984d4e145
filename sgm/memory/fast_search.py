"""Fast code: search for near vectors with cells and with a cover tree, compiled by numba (extra `fast`).

The readable version is brute force, `near_by_product` in index.py. The tests compare their results.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_HASH = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio
_LEAST_LEVEL = -126  # lowest level of a node of a cover tree


# -- cells ---------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _cell(place: Any, side: float, axes: int) -> Any:
    """Number of the cell that contains a point; cells far apart may have the same number."""
    number = np.int64(0)
    for axis in range(axes):
        number = number * 2097152 + (np.int64(math.floor(place[axis] / side)) & 2097151)
    return number


@njit(cache=True)
def _slot(cells: Any, cell: int) -> Any:
    """Return the slot of a cell in the hash table, or the free slot where it belongs."""
    mask = np.uint64(len(cells) - 1)
    slot = np.int64((np.uint64(cell) * np.uint64(_HASH)) >> np.uint64(20) & mask)
    while cells[slot] != -1 and cells[slot] != cell:
        slot = (slot + 1) & np.int64(mask)
    return slot


@njit(cache=True)
def fill_cells(places: Any, first: int, side: float, axes: int, cells: Any, heads: Any, following: Any) -> int:
    """Add the points from `first` on to their cells; return the number of cells that were empty before."""
    used = 0
    for number in range(first, len(places)):
        cell = _cell(places[number], side, axes)
        slot = _slot(cells, cell)
        if cells[slot] == -1:
            cells[slot] = cell
            used += 1
        following[number] = heads[slot]
        heads[slot] = number
    return used


@njit(cache=True)
def _grown(array: Any) -> Any:
    larger = np.empty(2 * len(array), array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True)
def search_cells(
    wanted: Any, radius: float, places: Any, side: float, axes: int, cells: Any, heads: Any, following: Any
) -> Any:
    """Find the points within a radius of each of n queries.

    Returns (m,) int64 point numbers, ascending for each query, and (n + 1,) offsets of the queries in them.
    """
    found = np.empty(64 + 32 * len(wanted), np.int64)
    starts = np.zeros(len(wanted) + 1, np.int64)
    size, limit = 0, radius * radius
    corner = np.empty(axes, np.int64)
    low = np.empty(axes, np.int64)
    high = np.empty(axes, np.int64)
    for query in range(len(wanted)):
        place = wanted[query]
        for axis in range(axes):
            low[axis] = math.floor((place[axis] - radius) / side)
            high[axis] = math.floor((place[axis] + radius) / side)
            corner[axis] = low[axis]
        while True:
            cell = np.int64(0)
            for axis in range(axes):
                cell = cell * 2097152 + (corner[axis] & 2097151)
            slot = _slot(cells, cell)
            number = heads[slot] if cells[slot] == cell else -1
            while number >= 0:
                square = 0.0
                for axis in range(places.shape[1]):
                    gap = np.float64(places[number, axis]) - place[axis]
                    square += gap * gap
                if square <= limit:
                    if size == len(found):
                        found = _grown(found)
                    found[size] = number
                    size += 1
                number = following[number]
            axis = axes - 1
            while axis >= 0 and corner[axis] == high[axis]:
                corner[axis] = low[axis]
                axis -= 1
            if axis < 0:
                break
            corner[axis] += 1
        found[starts[query] : size].sort()
        starts[query + 1] = size
    return found[:size], starts


# -- cover tree ----------------------------------------------------------------------------------------------------


@njit(cache=True)
def _apart(a: Any, b: Any) -> float:
    square = 0.0
    for axis in range(len(a)):
        gap = np.float64(a[axis]) - np.float64(b[axis])
        square += gap * gap
    return math.sqrt(square)


@njit(cache=True)
def grow_tree(keys: Any, first: int, level: Any, child: Any, sibling: Any, to_parent: Any, span: Any) -> None:
    """Add the keys from `first` on to a cover tree, whose root is key 0.

    A key descends from the root to the nearest child that covers it, that is, whose distance is at most 2^level of the
    child. It becomes a child of the last such node. `span` is the largest distance of a node to its descendants, by
    which a search skips subtrees.
    """
    for number in range(first, len(keys)):
        child[number] = sibling[number] = -1
        span[number] = to_parent[number] = 0.0
        if number == 0:
            level[0] = _LEAST_LEVEL
            continue
        node = 0
        apart = _apart(keys[0], keys[number])
        if apart > 2.0 ** level[0]:
            level[0] = math.ceil(math.log2(apart))
        while True:
            span[node] = max(span[node], apart)
            best, nearest = -1, np.inf
            one = child[node]
            while one >= 0 and level[node] > _LEAST_LEVEL:
                reach = 2.0 ** level[one]
                if abs(apart - to_parent[one]) <= reach:
                    other = _apart(keys[one], keys[number])
                    if other <= reach and other < nearest:
                        best, nearest = one, other
                one = sibling[one]
            if best < 0:
                break
            node, apart = best, nearest
        level[number] = max(level[node] - 1, _LEAST_LEVEL)
        to_parent[number] = apart
        sibling[number] = child[node]
        child[node] = number


@njit(cache=True)
def search_tree(wanted: Any, radius: float, keys: Any, child: Any, sibling: Any, to_parent: Any, span: Any) -> Any:
    """Like `search_cells`, in a cover tree; also returns the number of keys compared."""
    found = np.empty(64 + 32 * len(wanted), np.int64)
    starts = np.zeros(len(wanted) + 1, np.int64)
    stack = np.empty(1024, np.int64)
    apart = np.empty(1024, np.float64)
    size = looked = 0
    for query in range(len(wanted)):
        top = 0
        if len(keys):
            stack[0], apart[0] = 0, _apart(keys[0], wanted[query])
            top = 1
            looked += 1
        while top:
            top -= 1
            node, mine = stack[top], apart[top]
            if mine <= radius:
                if size == len(found):
                    found = _grown(found)
                found[size] = node
                size += 1
            one = child[node]
            while one >= 0:
                # The slack allows for rounding in the sums of squares.
                reach = (radius + span[one]) * (1 + 1e-9)
                if abs(mine - to_parent[one]) <= reach + 1e-9 * mine:
                    other = _apart(keys[one], wanted[query])
                    looked += 1
                    if other <= reach:
                        if top == len(stack):
                            stack, apart = _grown(stack), _grown(apart)
                        stack[top], apart[top] = one, other
                        top += 1
                one = sibling[one]
        found[starts[query] : size].sort()
        starts[query + 1] = size
    return found[:size], starts, looked
