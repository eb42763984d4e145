"""Fast code, compiled by numba: shortest-path searches on adjacency rows, for large graphs.

`Planner` computes whole trees with SciPy if numba is missing or the graph is small; its trees are the oracle of the
tests. `python -m speed.planning` times both.

Rows are adjacency lists in one pool: the row of node n is at positions row[n] … row[n] + count[n] − 1. `into` rows hold
the incoming edges of a node, `out` rows the outgoing ones. A tree consists of three arrays: the label of each node,
which is the cost of the best path found so far, the next node on that path, and the state of the node. Label and next
node are undefined while the state is UNKNOWN, so that a new tree needs no initialisation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

UNKNOWN, OPEN, DONE, LOST = 0, 1, 2, 3  # no label; label fell since the expansion; expanded; label must be found again


# -- a heap of (key, node); outdated entries, of nodes whose label fell since, stay in it and are skipped -------------


@njit(cache=True, nogil=True)
def _push(keys: Any, nodes: Any, size: int, key: float, node: int) -> int:
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if keys[parent] <= key:
            break
        keys[place], nodes[place] = keys[parent], nodes[parent]
        place = parent
    keys[place], nodes[place] = key, node
    return size + 1


@njit(cache=True, nogil=True)
def _pop(keys: Any, nodes: Any, size: int) -> int:
    """Remove the smallest entry, which the caller has read at position 0, from the heap."""
    size -= 1
    key, node, place = keys[size], nodes[size], 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[place], nodes[place] = keys[child], nodes[child]
        place = child
    keys[place], nodes[place] = key, node
    return size


@njit(cache=True, nogil=True)
def _wider(keys: Any, nodes: Any) -> Any:
    more_keys, more_nodes = np.empty(2 * len(keys), np.float64), np.empty(2 * len(nodes), np.int32)
    more_keys[: len(keys)], more_nodes[: len(nodes)] = keys, nodes
    return more_keys, more_nodes


# -- searches ------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _bound(potentials: Any, columns: Any, begins: Any, node: int, slack: float) -> float:
    """Lower bound of the cost from the start to a node; `begins` holds the potentials of the start."""
    best = 0.0
    for place in range(len(columns)):
        column = columns[place]
        gap = begins[place] - potentials[node, column]
        if column % 2:  # odd columns are distances from a landmark, even ones to it
            gap = -gap
        if gap > best:
            best = gap
    return max(0.0, best - slack)


@njit(cache=True, nogil=True)
def _potential(row: Any, count: Any, other: Any, price: Any, potentials: Any, node: int, column: int) -> Any:
    """Return a potential; that of a new node follows from its neighbours."""
    best = potentials[node, column]
    if best == np.inf:
        for place in range(row[node], row[node] + count[node]):
            best = min(best, potentials[other[place], column] + price[place])
    return best


@njit(cache=True, nogil=True)
def choose_columns(
    into_row: Any, into_count: Any, into_other: Any, into_price: Any,
    out_row: Any, out_count: Any, out_other: Any, out_price: Any,
    potentials: Any, start: int, goal: int, number: int,
) -> Any:  # fmt: skip
    """Return the columns with the highest bounds of the cost from start to goal."""
    width = potentials.shape[1]
    gaps = np.zeros(width)
    for column in range(width):
        if column % 2:
            gap = _potential(into_row, into_count, into_other, into_price, potentials, goal, column)
            gap -= _potential(into_row, into_count, into_other, into_price, potentials, start, column)
        else:
            gap = _potential(out_row, out_count, out_other, out_price, potentials, start, column)
            gap -= _potential(out_row, out_count, out_other, out_price, potentials, goal, column)
        gaps[column] = gap if gap > 0 else 0.0
    return np.argsort(-gaps)[:number].astype(np.int64)


@njit(cache=True, nogil=True)
def search(
    row: Any, count: Any, other: Any, price: Any, cost: Any, following: Any, state: Any, frontier: Any,
    potentials: Any, columns: Any, start: int, slack: float,
) -> Any:  # fmt: skip
    """Grow a tree of paths to a goal until the path from `start` is known to be the shortest; −1: until all are.

    A* with landmarks, from the goal, in a form that is correct for any order of expansion: labels only fall, and a node
    whose label fell is open. The label of the start is final when no open node can lower it. Returns the open nodes
    that are left, and the number of expanded nodes.
    """
    size = 0
    keys, nodes = np.empty(4 * len(frontier) + 1024, np.float64), np.empty(4 * len(frontier) + 1024, np.int32)
    begins = np.empty(len(columns))
    if start >= 0:
        for place in range(len(columns)):
            begins[place] = potentials[start, columns[place]]
    for node in frontier:
        if state[node] == OPEN:
            size = _push(keys, nodes, size, cost[node] + _bound(potentials, columns, begins, node, slack), node)
    expanded = 0
    while size:
        key, node = keys[0], nodes[0]
        if start >= 0 and (key == np.inf or (state[start] != UNKNOWN and key >= cost[start])):
            break
        size = _pop(keys, nodes, size)
        if state[node] != OPEN:
            continue
        state[node] = DONE
        expanded += 1
        here = cost[node]
        for place in range(row[node], row[node] + count[node]):
            before, way = other[place], here + price[place]
            if way < np.inf and (state[before] == UNKNOWN or way < cost[before]):
                cost[before], following[before], state[before] = way, node, OPEN
                if size == len(keys):
                    keys, nodes = _wider(keys, nodes)
                key = way + _bound(potentials, columns, begins, before, slack)
                size = _push(keys, nodes, size, key, before)
    left = 0
    for place in range(size):
        node = nodes[place]
        if state[node] == OPEN:
            state[node] = LOST  # so that each node is listed once
            nodes[left] = node
            left += 1
    for place in range(left):
        state[nodes[place]] = OPEN
    return nodes[:left].copy(), expanded


@njit(cache=True, nogil=True)
def distances(row: Any, count: Any, other: Any, price: Any, root: int, result: Any) -> None:
    """Compute the costs of the shortest paths along these rows from one node, into (V,) `result`; infinite: no path."""
    keys, nodes = np.empty(4096, np.float64), np.empty(4096, np.int32)
    result[:] = np.inf
    result[root] = 0.0
    size = _push(keys, nodes, 0, 0.0, root)
    while size:
        here, node = keys[0], nodes[0]
        size = _pop(keys, nodes, size)
        if here > result[node]:
            continue
        for place in range(row[node], row[node] + count[node]):
            way = here + price[place]
            if way < result[other[place]]:
                result[other[place]] = way
                if size == len(keys):
                    keys, nodes = _wider(keys, nodes)
                size = _push(keys, nodes, size, way, other[place])


@njit(cache=True, nogil=True)
def lower(row: Any, count: Any, other: Any, price: Any, potentials: Any, column: int, ahead: Any, behind: Any) -> None:
    """Lower one column of potentials so that they are lower bounds again after the costs of edges fell.

    `ahead` and `behind` are the ends of these edges; the rows are those of the nodes ahead.
    """
    keys, nodes = np.empty(1024, np.float64), np.empty(1024, np.int32)
    size = 0
    for number in range(len(ahead)):
        base = potentials[ahead[number], column]
        if base == np.inf:
            continue
        for place in range(row[ahead[number]], row[ahead[number]] + count[ahead[number]]):
            if other[place] == behind[number] and base + price[place] < potentials[behind[number], column]:
                potentials[behind[number], column] = base + price[place]
                if size == len(keys):
                    keys, nodes = _wider(keys, nodes)
                size = _push(keys, nodes, size, base + price[place], behind[number])
    while size:
        here, node = keys[0], nodes[0]
        size = _pop(keys, nodes, size)
        if here > potentials[node, column]:
            continue
        for place in range(row[node], row[node] + count[node]):
            way = here + price[place]
            if way < potentials[other[place], column]:
                potentials[other[place], column] = way
                if size == len(keys):
                    keys, nodes = _wider(keys, nodes)
                size = _push(keys, nodes, size, way, other[place])


# -- repair --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def find(row: Any, count: Any, other: Any, node: int, end: int) -> int:
    """Return the position of an edge in the row of a node; −1 if it is not there."""
    for place in range(row[node], row[node] + count[node]):
        if other[place] == end:
            return place
    return -1


@njit(cache=True, nogil=True)
def _lose(lost: Any, number: int, node: int, state: Any) -> Any:
    state[node] = LOST
    if number == len(lost):
        lost = np.concatenate((lost, lost))
    lost[number] = node
    return lost, number + 1


@njit(cache=True, nogil=True)
def repair(
    into_row: Any, into_count: Any, into_other: Any, into_price: Any,
    out_row: Any, out_count: Any, out_other: Any, out_price: Any,
    cost: Any, following: Any, state: Any, frontier: Any, source: Any, target: Any,
) -> Any:  # fmt: skip
    """Repair a tree after the costs of edges, (m,) sources and targets, have changed; return its open nodes.

    Nodes whose path uses a changed edge lose their label, and get the best label from the rest of the tree.
    """
    lost, number = np.empty(1024, np.int32), 0
    for edge in range(len(source)):
        node = source[edge]
        if state[node] != UNKNOWN and state[node] != LOST and following[node] == target[edge]:
            lost, number = _lose(lost, number, node, state)
    looked = 0
    while looked < number:
        node = lost[looked]
        looked += 1
        for place in range(into_row[node], into_row[node] + into_count[node]):
            before = into_other[place]
            if state[before] != UNKNOWN and state[before] != LOST and following[before] == node:
                lost, number = _lose(lost, number, before, state)
    opened = np.empty(len(frontier) + number + len(source), np.int32)
    opened[: len(frontier)] = frontier
    size = len(frontier)
    for looked in range(number):
        node, best = lost[looked], np.inf
        for place in range(out_row[node], out_row[node] + out_count[node]):
            ahead = out_other[place]
            if state[ahead] == OPEN or state[ahead] == DONE:
                way = cost[ahead] + out_price[place]
                if way < best:
                    best, following[node] = way, ahead
        cost[node] = best
    for looked in range(number):
        node = lost[looked]
        state[node] = UNKNOWN
        if cost[node] < np.inf:
            state[node] = OPEN
            opened[size] = node
            size += 1
    for edge in range(len(source)):
        before, ahead = source[edge], target[edge]
        place = find(into_row, into_count, into_other, ahead, before)
        if place < 0 or state[ahead] == UNKNOWN or into_price[place] == np.inf:
            continue
        way = cost[ahead] + into_price[place]
        if state[before] == UNKNOWN or way < cost[before]:
            cost[before], following[before], state[before] = way, ahead, OPEN
            opened[size] = before
            size += 1
    return opened[:size]


@njit(cache=True, nogil=True)
def follow(following: Any, start: int, goal: int) -> Any:
    """Return the nodes from start to goal on a tree that contains the path."""
    length, node = 1, start
    while node != goal:
        node = following[node]
        length += 1
    path = np.empty(length, np.int64)
    node = start
    for place in range(length):
        path[place] = node
        node = following[node]
    return path


@njit(cache=True, nogil=True)
def leads_round(row: Any, count: Any, other: Any, price: Any, source: int, target: int, without: Any) -> bool:
    """Whether a path leads from source to target over edges of finite cost, without the edges of `without`, (m, 2)."""
    seen = np.zeros(len(count), np.bool_)
    queue = np.empty(len(count), np.int32)
    queue[0], head, tail = target, 0, 1
    seen[target] = True
    while head < tail:
        node = queue[head]
        head += 1
        for place in range(row[node], row[node] + count[node]):
            before = other[place]
            if seen[before] or price[place] == np.inf:
                continue
            left_out = False
            for edge in range(len(without)):
                left_out |= without[edge, 0] == before and without[edge, 1] == node
            if left_out:
                continue
            if before == source:
                return True
            seen[before] = True
            queue[tail] = before
            tail += 1
    return False


# -- rows ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def find_many(row: Any, count: Any, other: Any, nodes: Any, ends: Any) -> Any:
    """Call `find` for (n,) nodes and (n,) other ends."""
    places = np.empty(len(nodes), np.int64)
    for number in range(len(nodes)):
        places[number] = find(row, count, other, nodes[number], ends[number])
    return places


@njit(cache=True, nogil=True)
def put(
    row: Any, count: Any, room: Any, other: Any, distance: Any, hops: Any, edge: Any, used: int,
    first: int, nodes: Any, ends: Any, new_distance: Any, new_hops: Any, new_edge: Any,
) -> Any:  # fmt: skip
    """Add edges to rows, or set the costs of existing ones, from number `first` on.

    A row without room moves to the end of the pool. Returns the used length of the pool, and the number of edges
    processed, which is smaller than the number given if the pool is too short.
    """
    for number in range(first, len(nodes)):
        node = nodes[number]
        place = find(row, count, other, node, ends[number])
        if place < 0:
            if count[node] == room[node]:
                wanted = max(8, 2 * room[node])
                if used + wanted > len(other):
                    return used, number
                for offset in range(count[node]):
                    old, new = row[node] + offset, used + offset
                    other[new], edge[new] = other[old], edge[old]
                    distance[new], hops[new] = distance[old], hops[old]
                row[node], room[node] = used, wanted
                used += wanted
            place = row[node] + count[node]
            count[node] += 1
            other[place] = ends[number]
        edge[place], distance[place], hops[place] = new_edge[number], new_distance[number], new_hops[number]
    return used, len(nodes)


@njit(cache=True, nogil=True)
def take_out(
    row: Any, count: Any, other: Any, distance: Any, hops: Any, edge: Any, nodes: Any, ends: Any
) -> None:  # fmt: skip
    """Remove edges from rows; missing ones are ignored."""
    for number in range(len(nodes)):
        node = nodes[number]
        place = find(row, count, other, node, ends[number])
        if place >= 0:
            last = row[node] + count[node] - 1
            other[place], edge[place] = other[last], edge[last]
            distance[place], hops[place] = distance[last], hops[last]
            count[node] -= 1


@njit(cache=True, nogil=True)
def keep_nearest(
    start: Any, length: Any, edges: Any, sources: Any, distance: Any, temporal: Any, target: Any, k: int, kept: Any,
    grown: bool,
) -> None:  # fmt: skip
    """Keep the k outgoing edges of least weight of each of these nodes.

    Of edges with equal weights, those with the lower target are kept. With `grown`, edges were only added since the
    last filter, and are marked as kept. An edge that was not among the k nearest before cannot be now, so its weight is
    not read.
    """
    best = np.empty(k, np.int64)
    weight = np.empty(k, np.float32)
    for source in sources:
        number = 0
        for place in range(start[source], start[source] + length[source]):
            edge = edges[place]
            if grown and not kept[edge]:
                continue
            kept[edge] = False
            own = distance[edge]
            if temporal[edge] > 0:
                own = min(own, np.float32(temporal[edge]))
            at = number
            while at > 0 and (own < weight[at - 1] or (own == weight[at - 1] and target[edge] < target[best[at - 1]])):
                at -= 1
            if at == k:
                continue
            number = min(number + 1, k)
            for later in range(number - 1, at, -1):
                best[later], weight[later] = best[later - 1], weight[later - 1]
            best[at], weight[at] = edge, own
        for place in range(number):
            kept[best[place]] = True


@njit(cache=True, nogil=True)
def append_edges(
    start: Any, length: Any, room: Any, edges: Any, used: int, ends: Any, first: int, number: int
) -> Any:  # fmt: skip
    """Add edges to the runs of their ends, from `first` on; `number` is the edge number of ends[0].

    A run without room moves to the end of `edges`. Returns the used length of `edges`, the number of places that runs
    have left, and the number of edges processed, which is smaller than the number given if `edges` is too short.
    """
    moved = 0
    for place in range(first, len(ends)):
        node = ends[place]
        if length[node] == room[node]:
            wanted = length[node] + 1 + max(2, length[node] // 2)
            if used + wanted > len(edges):
                return used, moved, place
            for offset in range(length[node]):
                edges[used + offset] = edges[start[node] + offset]
            moved += room[node]
            start[node], room[node] = used, wanted
            used += wanted
        edges[start[node] + length[node]] = number + place
        length[node] += 1
    return used, moved, len(ends)


@njit(cache=True, nogil=True)
def copy_runs(start: Any, length: Any, edges: Any, new_start: Any, new_edges: Any) -> None:
    """Copy the runs of all nodes to new offsets in another array."""
    for node in range(len(start)):
        for offset in range(length[node]):
            new_edges[new_start[node] + offset] = edges[start[node] + offset]


@njit(cache=True, nogil=True)
def compare(
    row: Any, count: Any, other: Any, distance: Any, hops: Any, start: Any, length: Any, edges: Any, passing: Any,
    target: Any, temporal: Any, inner: Any, sources: Any,
) -> Any:  # fmt: skip
    """Compare the outgoing edges of some nodes that pass the filter with the contents of the rows.

    `start`, `length` and `edges` are the adjacency lists of the graph, `target` and `temporal` columns of all edges.
    Returns the edges that pass and are not in the rows, or whose weight may have changed because an episode went along
    them; whether each is in the rows; its costs there, infinite if it is not; and the ends, in the numbers of the rows,
    of edges that are in the rows and do not pass.
    """
    most = gone = 0
    for source in sources:
        most += length[source]
        gone += count[inner[source]]
    found, known, before = np.empty(most, np.int64), np.zeros(most, np.bool_), np.full((2, most), np.inf)
    left, lefts, number = np.empty((2, gone), np.int64), 0, 0
    stays = np.zeros(gone + 1, np.bool_)
    for source in sources:
        node = inner[source]
        stays[: count[node]] = False
        for place in range(start[source], start[source] + length[source]):
            edge = edges[place]
            if not passing[edge]:
                continue
            at = find(row, count, other, node, inner[target[edge]])
            if at >= 0:
                stays[at - row[node]] = True
                if temporal[edge] == 0:
                    continue
                known[number], before[0, number], before[1, number] = True, distance[at], hops[at]
            found[number] = edge
            number += 1
        for offset in range(count[node]):
            if not stays[offset]:
                left[0, lefts], left[1, lefts] = node, other[row[node] + offset]
                lefts += 1
    return found[:number], known[:number], before[:, :number], left[:, :lefts]
