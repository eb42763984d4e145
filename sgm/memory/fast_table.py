"""Fast code, compiled by numba: merges and edges of a block of observations in one pass, from tables of distances.

The readable version is `SparseGraph.add` in reference.py; without numba a memory uses fast_merges.py. All three make
the same graph; the tests compare them bit for bit. `python -m speed.memory` measures the speed against the authors'
pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_TILE = 16  # nodes whose distances to a block are transposed together, so that whole cache lines are written


@njit(cache=True, nogil=True)
def near_features(columns: Any, nodes: int, limit: float) -> Any:
    """Find the pairs (observation, earlier candidate) whose squared feature distance is at most `limit`.

    They are sorted by observation, then candidate. `columns`, (f, V + B), holds the features of the nodes, then those
    of the block. Only candidates in neighbouring cells of a grid over the first two axes are compared.
    """
    axes, total = columns.shape
    row, rows = _bins(columns[0], limit)
    column, width = _bins(columns[min(1, axes - 1)], limit)
    last, before = np.full((rows + 2) * (width + 2), -1), np.empty(total, np.int64)  # with a border of empty cells
    first, second, number = np.empty(1024, np.int64), np.empty(1024, np.int64), 0
    for own in range(total):
        cell, begin = (row[own] + 1) * (width + 2) + column[own] + 1, number
        if own >= nodes:
            for around in range(9):
                candidate = last[cell + (around // 3 - 1) * (width + 2) + around % 3 - 1]
                while candidate >= 0:
                    if _squared_gap(columns, candidate, own, axes) <= limit:
                        if number == len(first):
                            first, second = np.concatenate((first, first)), np.concatenate((second, second))
                        first[number], second[number] = own - nodes, candidate
                        number += 1
                    candidate = before[candidate]
        if number > begin + 1:
            second[begin:number].sort()
        before[own], last[cell] = last[cell], own
    return first[:number], second[:number]


@njit(cache=True, nogil=True)
def _bins(values: Any, limit: float) -> Any:
    """(n,) cell of each number along an axis, and the number of cells; numbers within √limit are at most one apart."""
    cells, low, high = np.zeros(len(values), np.int64), np.inf, -np.inf
    for value in values:
        low, high = min(low, np.float64(value)), max(high, np.float64(value))
    most = 2 * np.sqrt(len(values)) + 1  # so that there are not many more cells than numbers
    width = max(np.sqrt(limit) * (1 + 1e-6), (high - low) / most)
    if width == 0:
        return cells, 1  # all numbers are equal, and only equal ones are near
    for place in range(len(values)):
        cells[place] = int((np.float64(values[place]) - low) / width)
    return cells, int((high - low) / width) + 1


@njit(cache=True, nogil=True)
def _squared_gap(columns: Any, candidate: int, own: int, axes: int) -> Any:
    square = 0.0
    for axis in range(axes):
        gap = np.float64(columns[axis, own]) - np.float64(columns[axis, candidate])
        square += gap * gap
    return square


@njit(cache=True, nogil=True)
def decide_and_join(
    tables: Any, pair_start: Any, candidates: Any, leaving: Any, arriving: Any, distance: Any, limits: Any, ways: Any,
    reversible: bool,
) -> Any:  # fmt: skip
    """Decide what each observation of a block merges into, and make the edges of those that become nodes.

    Args:
        tables: distances, float32, and the positions in them: out, into, inside, at, out_at, into_at, node_at.
            d(observation, node) is at out[out_at[observation], node_at[node]], d(node, observation) at
            into[node_at[node], into_at[observation]], d(one, other) within the block at inside[at[one], at[other]].
        pair_start: (B + 1,) where the candidates of each observation begin.
        candidates: universe numbers of the candidates within τ_p, ascending for each observation; see fast_merges.py.
        leaving: adjacency lists of the existing outgoing edges: (V,) start and (V,) length of each list, the edges, and
            (E,) the targets of all edges.
        arriving: the same for incoming edges, with the sources.
        distance: (E,) distances of the existing edges; infinite for edges that only an episode made.
        limits: MaxDist, τ_a, and whether comparisons are strict.
        ways: whether C_out and C_in are tested; without both the first candidate that is a node is taken.
        reversible: whether to make an edge also if only the reverse direction is within MaxDist.

    Returns (B,) universe numbers, −1 for novel observations, and sources, targets and distances of the new edges, in
    the order of adding observations one by one.
    """
    out, into, inside, at, out_at, into_at, node_at = tables
    _, tau_a, strict = limits
    size, nodes, added = len(at), len(node_at), 0
    matches, number_of = np.full(size, -1), np.full(size, -1)  # number_of: new node of each observation
    at_new = np.empty(size, np.int64)  # positions of the new nodes, in order
    from_new = np.empty((size, size + _TILE), np.float32)  # padded, so that a column does not compete for one cache set
    here, to_block = np.arange(max(nodes, size)), _by_observation(into, node_at, into_at)
    heads, edges = np.full((2, nodes + size), -1), 0  # the last new edge at each node, and those before it
    ends, before, steps = np.empty((2, 4096), np.int64), np.empty((2, 4096), np.int64), np.empty(4096, np.float32)
    for number in range(size):
        own_out, own_into = out[out_at[number]], to_block[number]
        new_out, new_into = inside[at[number]], from_new[:, number]
        for pair in range(pair_start[number], pair_start[number + 1]):
            candidate = candidates[pair]
            node = candidate if candidate < nodes else nodes + number_of[candidate - nodes]
            if node < nodes and candidate >= nodes:
                continue  # this candidate was merged into a node
            apart, looked, more = False, 0, 0
            if ways[0]:
                made = heads[0], before[0], ends[1]
                apart, looked = _told_apart(
                    node, leaving, distance, made, steps, own_out, node_at, new_out, at_new, tau_a, strict
                )
            if ways[1] and not apart:
                made = heads[1], before[1], ends[0]
                apart, more = _told_apart(
                    node, arriving, distance, made, steps, own_into, here, new_into, here, tau_a, strict
                )
            if not apart and (looked + more > 0 or not (ways[0] or ways[1])):
                matches[number] = candidate
                break
        if matches[number] >= 0:
            continue
        if edges + 2 * (nodes + added) > len(steps):
            more = edges + 2 * (nodes + size)
            ends, before, steps = _longer(ends, more), _longer(before, more), _longer(steps, more)
        out_ways = _all_ways(own_out, node_at, new_out, at_new, added)
        into_ways = _all_ways(own_into, here[:nodes], new_into, here, added)
        new, store = nodes + added, (heads, before, ends, steps)
        edges = _join(into_ways, out_ways, new, False, limits, reversible, store, edges)
        edges = _join(out_ways, into_ways, new, True, limits, reversible, store, edges)
        number_of[number], at_new[added] = added, at[number]
        for later in range(number + 1, size):
            from_new[added, later] = inside[at[number], at[later]]
        added += 1
    return matches, ends[0, :edges], ends[1, :edges], steps[:edges]


@njit(cache=True, nogil=True)
def _by_observation(into: Any, node_at: Any, into_at: Any) -> Any:
    """(B, V) d(node, observation): the distances of an observation are adjacent."""
    nodes = len(node_at)
    turned = np.empty((len(into_at), nodes), np.float32)
    for low in range(0, nodes, _TILE):
        for number in range(len(into_at)):
            for node in range(low, min(low + _TILE, nodes)):
                turned[number, node] = into[node_at[node], into_at[number]]
    return turned


@njit(cache=True, nogil=True)
def _told_apart(
    node: int, standing: Any, distance: Any, made: Any, steps: Any, own: Any, node_at: Any, own_new: Any, at_new: Any,
    tau_a: Any, strict: bool,
) -> Any:  # fmt: skip
    """Whether an observation is inconsistent with a node at one of its neighbours, and the number of these compared.

    `standing` holds the existing edges in one direction, see `decide_and_join`; `made` those of this block as linked
    lists: the last edge of each node, the one before each edge, and their other ends. The distances of the observation
    in that direction are own[node_at[x]] for existing nodes and own_new[at_new[x]] for new ones.
    """
    start, length, edges, others = standing
    last, before, new_others = made
    nodes, looked = len(start), 0
    if node < nodes:
        for place in range(start[node], start[node] + length[node]):
            theirs = distance[edges[place]]
            if theirs < np.inf:  # otherwise only an episode made the edge
                looked += 1
                if _exceeds(abs(theirs - own[node_at[others[edges[place]]]]), tau_a, strict):
                    return True, looked
    edge = last[node]
    while edge >= 0:
        if steps[edge] < np.inf:
            looked += 1
            other = new_others[edge]
            mine = own[node_at[other]] if other < nodes else own_new[at_new[other - nodes]]
            if _exceeds(abs(steps[edge] - mine), tau_a, strict):
                return True, looked
        edge = before[edge]
    return False, looked


@njit(cache=True, nogil=True, inline="always")
def _exceeds(gap: Any, limit: Any, strict: bool) -> Any:
    return gap > limit or (strict and gap == limit)


@njit(cache=True, nogil=True)
def _all_ways(own: Any, node_at: Any, own_new: Any, at_new: Any, added: int) -> Any:
    """(V + added,) distances of an observation in one direction."""
    nodes = len(node_at)
    ways = np.empty(nodes + added, np.float32)
    for node in range(nodes):
        ways[node] = own[node_at[node]]
    for node in range(added):
        ways[nodes + node] = own_new[at_new[node]]
    return ways


@njit(cache=True, nogil=True)
def _join(
    ways: Any, back: Any, new: int, leaves: bool, limits: Any, reversible: bool, store: Any, edges: int
) -> int:  # fmt: skip
    """Make the edges of a new node in one direction; return the new number of edges."""
    max_dist, _, strict = limits
    heads, before, ends, steps = store
    for other in range(len(ways)):
        near = ways[other] < max_dist or (not strict and ways[other] == max_dist)
        if not near and not (reversible and (back[other] < max_dist or (not strict and back[other] == max_dist))):
            continue
        ends[0, edges], ends[1, edges] = (new, other) if leaves else (other, new)
        steps[edges] = ways[other] if near else np.float32(np.inf)
        for end in range(2):
            node = ends[end, edges]
            before[end, edges], heads[end, node] = heads[end, node], edges
        edges += 1
    return edges


@njit(cache=True, nogil=True)
def _longer(array: Any, more: int) -> Any:
    """Copy an array into one with room for 2 × `more` along the last axis."""
    longer = np.empty((*array.shape[:-1], 2 * more), array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer
