"""Fast code: which observations of a block are novel and which merge into what, with bit sets.

The plain version is `SparseGraph.add` in reference.py, one observation and one node at a time. It is the oracle of the
tests, which compare the two to the last bit. `python -m speed.memory` has the ratio to the authors' pattern.

A block of B observations is decided against the V nodes that stand before it and against itself. Its universe is
numbered 0 … V − 1 for those nodes and V … V + B − 1 for the observations of the block, any of which may turn out to be
a node. What can be said about a pair (observation, candidate) without knowing which observations become nodes is
worked out for all pairs with array operations; what depends on it is left as one bit per observation of the block;
and one pass over the block in order then needs only bit operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .adjacency import Adjacency
from .arrays import Bools, Ints, ragged
from .criteria import Floats, exceeds, perceptual_pairs, within
from .graph import Graph
from .settings import Settings

NOVEL = -1
_CHUNK = 1 << 21  # numbers held at once by the widest intermediate array


class Block(NamedTuple):
    """Distances between the observations of a block and its universe.

    Attributes:
        out: (B, V + B) float32, d(observation, x).
        into: (B, V + B) float32, d(x, observation).
        nodes: V.
    """

    out: Floats
    into: Floats
    nodes: int


class Direction(NamedTuple):
    """One of the two consistencies: C_out compares ways out of two observations, C_in ways into them.

    Attributes:
        own: (B, V + B), the way between an observation of the block and x, in this direction.
        opposite: (B, V + B), the same in the other direction, so that opposite[m, x] is x's own way to m.
        edges: the graph's edges at each candidate.
        others: (E,) the other end of all edges.
        distance: (E,) distances of all edges; infinite for those that only time made, which say nothing about it.
    """

    own: Floats
    opposite: Floats
    edges: Adjacency
    others: NDArray[np.int32]
    distance: Floats


NodeRows = Callable[[Ints, bool], Floats]  # (node ids, outgoing) -> (n, V): ways from (or to) those nodes


def decide(
    settings: Settings, graph: Graph, node_features: Floats, features: Floats, block: Block, rows: NodeRows
) -> Ints:
    """For each observation of a block the universe number it merges into, or NOVEL: (B,) int64."""
    if settings.criterion in ("none", "uniform"):
        return np.full(len(block.out), NOVEL)
    observation, candidate = perceptual_pairs(node_features, features, settings)
    if settings.criterion == "perceptual":
        nothing = [0] * len(observation)
        return first_match(observation, candidate, nothing, [-1] * len(observation), block.nodes, len(block.out))
    directions = _directions(settings, graph, block)
    consistent = _consistent_with_nodes(observation, candidate, directions, settings, block, rows)
    observation, candidate = observation[consistent], candidate[consistent]
    breakers, witnesses = _bits(observation, candidate, directions, settings, block)
    return first_match(observation, candidate, breakers, witnesses, block.nodes, len(block.out))


def _directions(settings: Settings, graph: Graph, block: Block) -> list[Direction]:
    distance = graph.distance.values
    chosen = []
    if settings.criterion in ("two-way", "outgoing"):
        chosen.append(Direction(block.out, block.into, graph.out_of(), graph.target.values, distance))
    if settings.criterion in ("two-way", "incoming"):
        chosen.append(Direction(block.into, block.out, graph.into(), graph.source.values, distance))
    return chosen


def _consistent_with_nodes(
    observation: Ints, candidate: Ints, directions: list[Direction], settings: Settings, block: Block, rows: NodeRows
) -> Bools:
    """Which pairs pass the test as far as the standing nodes and, over the whole memory, the candidate itself go."""
    passed = np.ones(len(observation), np.bool_)
    standing = candidate < block.nodes
    for direction in directions:
        for of_nodes in (True, False):
            chosen = np.flatnonzero(passed & (standing if of_nodes else ~standing))
            pair = (observation[chosen], candidate[chosen])
            if not of_nodes:
                failed = _fails_anywhere(*pair, pair[1] - block.nodes, direction.own, direction, settings)
            elif settings.scope == "memory":
                distinct, which = np.unique(pair[1], return_inverse=True)
                of_candidates = rows(distinct, direction.own is block.out)
                failed = _fails_anywhere(*pair, which, of_candidates, direction, settings)
            else:
                failed = _fails_at_neighbours(*pair, direction, settings)
            passed[chosen[failed]] = False
    return passed


def _fails_at_neighbours(observation: Ints, candidate: Ints, direction: Direction, settings: Settings) -> Bools:
    """Whether some neighbour of the candidate, a standing node, tells the pair apart."""
    start = direction.edges.start[candidate].astype(np.int64)
    degree = direction.edges.length[candidate].astype(np.int64)
    failed = np.zeros(len(observation), np.bool_)
    low = 0
    # Most pairs differ at one of the first few neighbours, so the rest is looked up only for those that do not.
    for width in (4, 28, 1 << 62):
        alive = np.flatnonzero(~failed & (degree > low))
        lengths = np.minimum(degree[alive] - low, width)
        for part in parts(lengths):
            pairs = alive[part]
            positions, owner = ragged(start[pairs] + low, lengths[part])
            edges = direction.edges.edge[positions]
            theirs = direction.distance[edges]
            own = direction.own[observation[pairs][owner], direction.others[edges]]
            apart = exceeds(np.abs(theirs - own), settings) & (theirs < np.inf)
            failed[pairs[owner[apart]]] = True
        low += width
    return failed


def _fails_anywhere(
    observation: Ints, candidate: Ints, which: Ints, of_candidates: Floats, direction: Direction, settings: Settings
) -> Bools:
    """Whether some standing node tells the pair apart; the candidate's own distances are of_candidates[which].

    With scope "memory" every node counts (Eq. 3), the candidate too: one of the block that becomes no node is passed
    over later on. With "neighbors" those within MaxDist of the candidate count.
    """
    nodes = direction.own.shape[1] - len(direction.own)
    failed = np.zeros(len(observation), np.bool_)
    if settings.scope == "memory":  # the candidate itself tells most pairs apart
        own = direction.own[observation, candidate]
        failed = exceeds(np.abs(of_candidates[which, candidate] - own), settings)
    for low, high in ((0, min(32, nodes)), (32, nodes)):
        alive = np.flatnonzero(~failed) if low < high else np.empty(0, np.int64)
        for part in parts(np.full(len(alive), high - low)):
            pairs = alive[part]
            theirs = of_candidates[which[pairs], low:high]
            apart = exceeds(np.abs(theirs - direction.own[observation[pairs], low:high]), settings)
            if settings.scope == "neighbors":
                apart &= within(theirs, settings)
            failed[pairs] = apart.any(axis=1)
    return failed


def _bits(
    observation: Ints, candidate: Ints, directions: list[Direction], settings: Settings, block: Block
) -> tuple[list[int], list[int]]:
    """Two bit sets over the block for each pair.

    The first: observations that, once nodes, tell the pair apart. The second: observations that, once nodes, are
    neighbours of the candidate; all bits if it has a neighbour already, since authors merge into no isolated node.
    """
    size, nodes = len(block.out), block.nodes
    breakers: list[int] = []
    witnesses: list[int] = []
    for part in parts(np.full(len(observation), size)):
        row, column = observation[part], candidate[part]
        breaks = np.zeros((len(row), size), np.bool_)
        neighbour = np.zeros((len(row), size), np.bool_)
        has_neighbour = np.zeros(len(row), np.bool_)
        for direction in directions:
            of_candidate = direction.opposite[:, column].T
            apart = exceeds(np.abs(of_candidate - direction.own[row, nodes:]), settings)
            if settings.scope == "neighbors":
                near = within(of_candidate, settings)
                near[np.arange(size) + nodes == column[:, None]] = False
                neighbour |= near
                apart &= near
                has_neighbour |= _has_neighbour(column, direction, settings, block)
            breaks |= apart
        breakers += bit_rows(breaks)
        if settings.scope == "memory":
            witnesses += [-1] * len(row)
        else:
            witnesses += [-1 if known else bits for known, bits in zip(has_neighbour, bit_rows(neighbour), strict=True)]
    return breakers, witnesses


def _has_neighbour(candidate: Ints, direction: Direction, settings: Settings, block: Block) -> Bools:
    """Whether candidates have a neighbour among the standing nodes."""
    result = np.zeros(len(candidate), np.bool_)
    standing = candidate < block.nodes
    result[standing] = has_distance(direction.edges, candidate[standing], direction.distance)
    members, which = np.unique(candidate[~standing] - block.nodes, return_inverse=True)
    has = np.any(within(direction.own[members, : block.nodes], settings), axis=1)
    result[~standing] = has[which]
    return result


def has_distance(at_each: Adjacency, nodes: Ints, distance: Floats) -> Bools:
    """Whether (n,) nodes have an edge that a distance made: (n,) bool."""
    distinct, which = np.unique(nodes, return_inverse=True)
    edges, owner = at_each.of(distinct)
    return np.bincount(owner[distance[edges] < np.inf], minlength=len(distinct))[which] > 0


def first_match(
    observation: Ints, candidate: Ints, breakers: list[int], witnesses: list[int], nodes: int, size: int
) -> Ints:
    """The pass over the block in order: the first candidate in node order that is a node and passes wins."""
    matches = np.full(size, NOVEL)
    ends = np.searchsorted(observation, np.arange(size + 1)).tolist()
    candidates = candidate.tolist()
    added = 0
    for number in range(size):
        for pair in range(ends[number], ends[number + 1]):
            member = candidates[pair] - nodes
            if member >= 0 and not added >> member & 1:
                continue
            witness = witnesses[pair]
            if breakers[pair] & added or not (witness == -1 or witness & added):
                continue
            matches[number] = candidates[pair]
            break
        else:
            added |= 1 << number
    return matches


def bit_rows(bits: Bools) -> list[int]:
    """Rows of bits as Python integers, bit m for column m."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(bits, axis=1, bitorder="little")]


def parts(lengths: Ints) -> list[slice]:
    """Cut a list of runs into parts of about _CHUNK numbers, each of at least one run."""
    if not len(lengths):
        return []
    number = np.cumsum(lengths) // _CHUNK
    edges = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1, [len(lengths)]])
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
