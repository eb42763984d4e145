"""Fast code: decide with bit sets which observations of a block are novel, and into which node each other one merges.

The readable version is `SparseGraph.add` in reference.py, one observation and one node at a time. It is the oracle of
the tests, which compare the two bit for bit. `python -m speed.memory` measures the speed against the authors' pattern.

A block of B observations is compared with the V existing nodes and with itself. Together they are the universe of the
block: numbers 0 … V − 1 are the nodes, V … V + B − 1 the observations of the block, each of which may become a node.
The part of the test of a pair (observation, candidate) that does not depend on which observations become nodes is
computed for all pairs by array operations. The part that does is stored as one bit for each observation of the block.
One pass over the block in order then needs bit operations only.
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
_CHUNK = 1 << 21  # most elements of an intermediate array


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
    """Data of one consistency: C_out compares the distances from two observations, C_in the distances to them.

    Attributes:
        own: (B, V + B) distances between an observation of the block and x, in this direction.
        opposite: (B, V + B) the same in the other direction, so that opposite[m, x] is the own distance of x to m.
        edges: the edges of the graph at each candidate.
        others: (E,) the other end of each edge.
        distance: (E,) distance of each edge; infinite for edges that only an episode made, which are not compared.
    """

    own: Floats
    opposite: Floats
    edges: Adjacency
    others: NDArray[np.int32]
    distance: Floats


NodeRows = Callable[[Ints, bool], Floats]  # (node ids, outgoing) -> (n, V) distances from (or to) those nodes


def decide(
    settings: Settings, graph: Graph, node_features: Floats, features: Floats, block: Block, rows: NodeRows
) -> Ints:
    """Decide for each observation of a block the universe number that it merges into, or NOVEL: (B,) int64."""
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
    """Find the pairs that are consistent at all existing nodes and, with scope "memory", at the candidate itself."""
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
    """Whether the distances to some neighbour of the candidate, an existing node, differ too much, for each pair."""
    start = direction.edges.start[candidate].astype(np.int64)
    degree = direction.edges.length[candidate].astype(np.int64)
    failed = np.zeros(len(observation), np.bool_)
    low = 0
    # Most pairs differ at one of the first few neighbours; the other neighbours are compared only for the rest.
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
    """Whether the distances to some existing node differ too much, for each pair.

    The distances of the candidates are of_candidates[which]. With scope "memory" every node is compared (Eq. 3), and
    so is the candidate; `first_match` skips candidates of the block that do not become nodes. With "neighbors" the
    nodes within MaxDist of the candidate are compared.
    """
    nodes = direction.own.shape[1] - len(direction.own)
    failed = np.zeros(len(observation), np.bool_)
    if settings.scope == "memory":  # most pairs differ at the candidate itself
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
    """Make two bit sets over the block for each pair.

    The first: observations at which the pair differs too much, if they become nodes. The second: observations that are
    neighbours of the candidate, if they become nodes; all bits if it has a neighbour already. The second is needed
    because the authors' code never merges into a node without neighbours.
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
    """Whether each candidate has a neighbour among the existing nodes."""
    result = np.zeros(len(candidate), np.bool_)
    standing = candidate < block.nodes
    result[standing] = has_distance(direction.edges, candidate[standing], direction.distance)
    members, which = np.unique(candidate[~standing] - block.nodes, return_inverse=True)
    has = np.any(within(direction.own[members, : block.nodes], settings), axis=1)
    result[~standing] = has[which]
    return result


def has_distance(at_each: Adjacency, nodes: Ints, distance: Floats) -> Bools:
    """Whether each of (n,) nodes has an edge with a finite distance: (n,) bool."""
    distinct, which = np.unique(nodes, return_inverse=True)
    edges, owner = at_each.of(distinct)
    return np.bincount(owner[distance[edges] < np.inf], minlength=len(distinct))[which] > 0


def first_match(
    observation: Ints, candidate: Ints, breakers: list[int], witnesses: list[int], nodes: int, size: int
) -> Ints:
    """Match each observation of the block, in order, with the first candidate that is a node and is consistent."""
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
    """Convert rows of bits to Python integers, bit m for column m."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(bits, axis=1, bitorder="little")]


def parts(lengths: Ints) -> list[slice]:
    """Split runs of these lengths into parts of about _CHUNK elements, each of at least one run."""
    if not len(lengths):
        return []
    number = np.cumsum(lengths) // _CHUNK
    edges = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1, [len(lengths)]])
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
