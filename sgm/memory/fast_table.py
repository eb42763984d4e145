"""Fast code, compiled by numba: merges and edges of a block of observations in one pass, from tables of distances.

The readable version is `SparseGraph.add` in reference.py; without numba a memory uses fast_merges.py. All three make
the same graph; the tests compare them bit for bit. `python -m speed.memory` measures the speed against the authors'
pattern.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def near_features(columns: Any, nodes: int, limit: float) -> Any:
    """Find the pairs (observation, earlier candidate) whose squared feature distance is at most `limit`.

    They are sorted by observation, then candidate. `columns`, (f, V + B), holds the features of the nodes, then those
    of the block.
    """
    width, size = columns.shape[0], columns.shape[1] - nodes
    first, second, number = np.empty(1024, np.int64), np.empty(1024, np.int64), 0
    for observation in range(size):
        mine = np.float64(columns[0, nodes + observation])
        for candidate in range(nodes + observation):
            gap = mine - np.float64(columns[0, candidate])
            square = gap * gap
            if square > limit:
                continue  # the first column rules out most pairs, so the other columns are hardly read
            for axis in range(1, width):
                gap = np.float64(columns[axis, nodes + observation]) - np.float64(columns[axis, candidate])
                square += gap * gap
            if square <= limit:
                if number == len(first):
                    first, second = np.concatenate((first, first)), np.concatenate((second, second))
                first[number], second[number] = observation, candidate
                number += 1
    return first[:number], second[:number]


@njit(cache=True, nogil=True)
def _tells_apart(
    start: Any, length: Any, edges: Any, others: Any, distance: Any, candidate: int, own: Any, node_at: Any, tau_a: Any,
    strict: bool,
) -> Any:  # fmt: skip
    """Whether an observation is inconsistent with an existing node at one of its neighbours in one direction.

    `own` holds the distances of the observation to (or from) the existing nodes, at the positions `node_at`. Also
    returns the number of neighbours compared.
    """
    neighbours = 0
    for place in range(start[candidate], start[candidate] + length[candidate]):
        theirs = distance[edges[place]]
        if theirs == np.inf:
            continue  # an edge that only an episode made
        neighbours += 1
        gap = abs(theirs - own[node_at[others[edges[place]]]])
        if gap > tau_a or (strict and gap == tau_a):
            return True, neighbours
    return False, neighbours


@njit(cache=True, nogil=True)
def _tells_apart_inside(
    head: Any, following: Any, others: Any, steps: Any, rank: Any, candidate: int, nodes: int, own: Any, node_at: Any,
    inside: Any, at: Any, tau_a: Any, strict: bool,
) -> Any:  # fmt: skip
    """Do the same for the edges made by the block so far; `inside` holds the distances within the block."""
    neighbours, edge = 0, head[candidate]
    while edge >= 0:
        theirs = steps[edge]
        if theirs < np.inf:
            neighbours += 1
            other = others[edge]
            mine = own[node_at[other]] if other < nodes else inside[at[rank[other - nodes]]]
            gap = abs(theirs - mine)
            if gap > tau_a or (strict and gap == tau_a):
                return True, neighbours
        edge = following[edge]
    return False, neighbours


@njit(cache=True, nogil=True)
def decide_and_join(
    out: Any, into: Any, inside: Any, at: Any, out_at: Any, into_at: Any, node_at: Any,
    pair_start: Any, candidates: Any, out_start: Any, out_length: Any, out_edges: Any, target: Any,
    into_start: Any, into_length: Any, into_edges: Any, source: Any, distance: Any,
    max_dist: Any, tau_a: Any, strict: bool, outgoing: bool, incoming: bool, reversible: bool,
) -> Any:  # fmt: skip
    """Decide what each observation of a block merges into, and make the edges of those that become nodes.

    Distances are float32: d(observation, node) is out[out_at[observation], node_at[node]], d(node, observation) is
    into[node_at[node], into_at[observation]], and d(one, other) within the block is inside[at[one], at[other]].
    `candidates` holds the universe numbers of the candidates within τ_p, ascending for each observation; those of
    observation i begin at `pair_start[i]`; see fast_merges.py. `out_start`, `out_length` and `out_edges` are the
    adjacency lists of the existing outgoing edges, the next three those of the incoming edges; `target`, `source` and
    `distance` are columns of the existing edges. `outgoing` and `incoming` select the consistencies that are tested;
    without them the first candidate that is a node is taken.

    Returns (B,) universe numbers, −1 for novel observations, and sources, targets and distances of the new edges, in
    the order of adding observations one by one.
    """
    size, nodes = len(at), len(node_at)
    matches = np.full(size, -1, np.int64)
    rank, added = np.empty(size, np.int64), 0  # observation of each new node
    number_of = np.full(size, -1, np.int64)  # new node of each observation
    sources, targets = np.empty(4096, np.int64), np.empty(4096, np.int64)
    steps, edges = np.empty(4096, np.float32), 0
    out_head, into_head = np.full(nodes + size, -1, np.int64), np.full(nodes + size, -1, np.int64)
    after_out, after_into = np.empty(4096, np.int64), np.empty(4096, np.int64)
    arriving = np.empty((size, nodes), np.float32)  # `into` transposed: values of an observation are adjacent
    for node in range(nodes):
        for number in range(size):
            arriving[number, node] = into[node_at[node], into_at[number]]
    here = np.arange(nodes)
    for number in range(size):
        own_out, own_into = out[out_at[number]], arriving[number]
        inside_out, inside_into = inside[at[number]], inside[:, at[number]]
        for pair in range(pair_start[number], pair_start[number + 1]):
            candidate = candidates[pair]
            node = candidate
            if candidate >= nodes:
                if number_of[candidate - nodes] < 0:
                    continue
                node = nodes + number_of[candidate - nodes]
            neighbours, apart = 0, False
            if outgoing:
                if node < nodes:
                    apart, some = _tells_apart(
                        out_start, out_length, out_edges, target, distance, node, own_out, node_at, tau_a, strict
                    )
                    neighbours += some
                if not apart:
                    apart, some = _tells_apart_inside(
                        out_head, after_out, targets, steps, rank, node, nodes, own_out, node_at, inside_out, at,
                        tau_a, strict,
                    )  # fmt: skip
                    neighbours += some
            if incoming and not apart:
                if node < nodes:
                    apart, some = _tells_apart(
                        into_start, into_length, into_edges, source, distance, node, own_into, here, tau_a, strict
                    )
                    neighbours += some
                if not apart:
                    apart, some = _tells_apart_inside(
                        into_head, after_into, sources, steps, rank, node, nodes, own_into, here, inside_into, at,
                        tau_a, strict,
                    )  # fmt: skip
                    neighbours += some
            if not apart and (neighbours or not (outgoing or incoming)):
                matches[number] = candidate
                break
        if matches[number] >= 0:
            continue
        if edges + 2 * (nodes + added) > len(sources):
            more = edges + 2 * (nodes + size)
            sources, targets = _longer(sources, edges, more), _longer(targets, edges, more)
            after_out, after_into = _longer(after_out, edges, more), _longer(after_into, edges, more)
            steps = _longer(steps, edges, more)
        for leaves in (False, True):
            for other in range(nodes + added):
                if other < nodes:
                    mine, back = own_into[other], own_out[node_at[other]]
                else:
                    mine, back = inside_into[at[rank[other - nodes]]], inside_out[at[rank[other - nodes]]]
                if leaves:
                    mine, back = back, mine
                near = mine < max_dist or (not strict and mine == max_dist)
                if not near:
                    if not (reversible and (back < max_dist or (not strict and back == max_dist))):
                        continue
                    mine = np.float32(np.inf)
                new = nodes + added
                sources[edges], targets[edges] = (new, other) if leaves else (other, new)
                steps[edges] = mine
                after_out[edges], after_into[edges] = out_head[sources[edges]], into_head[targets[edges]]
                out_head[sources[edges]] = into_head[targets[edges]] = edges
                edges += 1
        rank[added], number_of[number] = number, added
        added += 1
    return matches, sources[:edges], targets[:edges], steps[:edges]


@njit(cache=True, nogil=True)
def _longer(array: Any, used: int, more: int) -> Any:
    longer = np.empty(2 * more, array.dtype)
    longer[:used] = array[:used]
    return longer
