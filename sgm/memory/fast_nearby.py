"""Fast code: the decisions of fast_merges.py with distances between near pairs only.

The readable version is `SparseGraph.add` in reference.py. A memory of many nodes, whose distance can be searched,
computes the distances within MaxDist of a block of observations. A merge compares distances to the neighbours of a
candidate; most of them are computed already, and the others are computed pair by pair. So the cost of a block does not
depend on the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .adjacency import Adjacency
from .arrays import Bools, Ints, ragged
from .criteria import Floats, exceeds, within
from .fast_merges import NOVEL, bit_rows, first_match, has_distance, parts
from .graph import Graph
from .settings import Settings

Measure = Callable[[Ints, Ints, bool], Floats]  # (observations, nodes, outgoing) -> steps of each pair


class Nearby(NamedTuple):
    """A block of B observations, and the nodes near them.

    Attributes:
        start: (B + 1,) offsets into `node`: the nodes near observation i are node[start[i] : start[i + 1]].
        node: (m,) the nodes near, ascending for each observation; all within MaxDist in either direction are included.
        out: (m,) float32, d(observation, node).
        into: (m,) float32, d(node, observation).
        inside: (B, B) float32, d(one, other) within the block; may be infinite if it is more than MaxDist + τ_a.
        nodes: V, number of nodes before the block is added.
    """

    start: Ints
    node: Ints
    out: Floats
    into: Floats
    inside: Floats
    nodes: int


class _Way(NamedTuple):
    """Data of one consistency: C_out compares the distances from two observations, C_in the distances to them.

    Attributes:
        own: (m,) distances between the observations and the nodes near them, in this direction.
        opposite: (m,) the same in the other direction.
        inside: (B, B) distances within the block, in this direction.
        outgoing: whether this is C_out.
        edges: the edges of the graph at each candidate.
        others: (E,) the other end of each edge.
        distance: (E,) distance of each edge.
    """

    own: Floats
    opposite: Floats
    inside: Floats
    outgoing: bool
    edges: Adjacency
    others: NDArray[np.int32]
    distance: Floats


def decide_nearby(
    settings: Settings, graph: Graph, observation: Ints, candidate: Ints, near: Nearby, measure: Measure
) -> Ints:
    """Decide for each observation of a block the universe number that it merges into, or NOVEL: (B,) int64.

    Args:
        settings: settings of the memory.
        graph: graph of the existing nodes.
        observation: (p,) observations of the pairs within τ_p in feature space, ascending.
        candidate: (p,) universe number of each candidate, ascending for each observation; see fast_merges.py.
        near: distances between near pairs.
        measure: computes other distances.
    """
    size = len(near.inside)
    if settings.criterion in ("none", "uniform"):
        return np.full(size, NOVEL)
    if settings.criterion == "perceptual":
        return first_match(observation, candidate, [0] * len(observation), [-1] * len(observation), near.nodes, size)
    ways = _ways(settings, graph, near)
    passed = np.ones(len(observation), np.bool_)
    standing = candidate < near.nodes
    for way in ways:
        for of_nodes in (True, False):
            chosen = np.flatnonzero(passed & (standing if of_nodes else ~standing))
            pair = observation[chosen], candidate[chosen]
            failed = _fails(*pair, way, near, settings, measure, of_nodes)
            passed[chosen[failed]] = False
    observation, candidate = observation[passed], candidate[passed]
    breakers, witnesses = _bits(observation, candidate, ways, near, settings)
    return first_match(observation, candidate, breakers, witnesses, near.nodes, size)


def _ways(settings: Settings, graph: Graph, near: Nearby) -> list[_Way]:
    distance = graph.distance.values
    chosen = []
    if settings.criterion in ("two-way", "outgoing"):
        ends = graph.out_of(), graph.target.values
        chosen.append(_Way(near.out, near.into, near.inside, True, *ends, distance))
    if settings.criterion in ("two-way", "incoming"):
        ends = graph.into(), graph.source.values
        chosen.append(_Way(near.into, near.out, near.inside.T, False, *ends, distance))
    return chosen


def _fails(
    observation: Ints,
    candidate: Ints,
    way: _Way,
    near: Nearby,
    settings: Settings,
    measure: Measure,
    of_nodes: bool,
) -> Bools:
    """Whether the distances to some neighbour of the candidate differ by more than τ_a, for each pair.

    The neighbours are existing nodes. The candidates are existing nodes too if `of_nodes`, otherwise observations of
    the block.
    """
    if of_nodes:
        start, degree = way.edges.start[candidate].astype(np.int64), way.edges.length[candidate].astype(np.int64)
    else:
        member = candidate - near.nodes
        start, degree = near.start[member], near.start[member + 1] - near.start[member]
    failed = np.zeros(len(observation), np.bool_)
    low = 0
    # Most pairs differ at one of the first few neighbours; the other neighbours are compared only for the rest.
    for width in (4, 28, 1 << 62):
        alive = np.flatnonzero(~failed & (degree > low))
        lengths = np.minimum(degree[alive] - low, width)
        for part in parts(lengths):
            pairs = alive[part]
            place, owner = ragged(start[pairs] + low, lengths[part])
            if of_nodes:
                edge = way.edges.edge[place]
                theirs, node = way.distance[edge], way.others[edge].astype(np.int64)
            else:
                theirs, node = way.own[place], near.node[place]
            counts = np.flatnonzero((theirs < np.inf) & within(theirs, settings))
            theirs, node, owner = theirs[counts], node[counts], owner[counts]
            own = _look_up(observation[pairs][owner], node, way, near, measure)
            failed[pairs[owner[exceeds(np.abs(theirs - own), settings)]]] = True
        low += width
    return failed


def _look_up(observation: Ints, node: Ints, way: _Way, near: Nearby, measure: Measure) -> Floats:
    """Return the distance between each observation and node; it is computed if it is not in `near`."""
    owner = np.repeat(np.arange(len(near.inside)), np.diff(near.start))
    known, asked = owner * near.nodes + near.node, observation * near.nodes + node
    place = np.minimum(np.searchsorted(known, asked), max(0, len(known) - 1))
    have = known[place] == asked if len(known) else np.zeros(len(asked), np.bool_)
    steps = np.empty(len(asked), np.float32)
    steps[have] = way.own[place[have]]
    missing, which = np.unique(asked[~have], return_inverse=True)
    steps[~have] = measure(*np.divmod(missing, max(1, near.nodes)), way.outgoing)[which]
    return steps


def _bits(
    observation: Ints, candidate: Ints, ways: list[_Way], near: Nearby, settings: Settings
) -> tuple[list[int], list[int]]:
    """Make two bit sets over the block for each pair: observations at which it differs, neighbours of the candidate."""
    size = len(near.inside)
    breakers: list[int] = []
    witnesses: list[int] = []
    distinct, which = np.unique(candidate, return_inverse=True)
    columns = [_to_block(distinct, way, near) for way in ways]
    has = np.zeros(len(distinct), np.bool_)
    for way in ways:
        has |= _has_neighbour(distinct, way, near, settings)
    for part in parts(np.full(len(observation), size)):
        row, column = observation[part], which[part]
        breaks = np.zeros((len(row), size), np.bool_)
        neighbour = np.zeros((len(row), size), np.bool_)
        for way, to_block in zip(ways, columns, strict=True):
            of_candidate = to_block[column]
            close = within(of_candidate, settings)
            close[np.arange(size) + near.nodes == candidate[part][:, None]] = False
            neighbour |= close
            with np.errstate(invalid="ignore"):  # neither is near: both may be infinite
                breaks |= close & exceeds(np.abs(of_candidate - way.inside[row]), settings)
        breakers += bit_rows(breaks)
        known = zip(has[column], bit_rows(neighbour), strict=True)
        witnesses += [-1 if some else bits for some, bits in known]
    return breakers, witnesses


def _to_block(candidates: Ints, way: _Way, near: Nearby) -> Floats:
    """(c, B) distances between candidates and the observations of the block; infinite where they are not known."""
    size = len(near.inside)
    table = np.full((len(candidates), size), np.inf, np.float32)
    members = candidates >= near.nodes
    table[members] = way.inside[candidates[members] - near.nodes]
    place = np.searchsorted(candidates, near.node)
    found = np.flatnonzero(place < len(candidates))
    found = found[candidates[place[found]] == near.node[found]]
    owner = np.repeat(np.arange(size), np.diff(near.start))
    table[place[found], owner[found]] = way.opposite[found]
    return table


def _has_neighbour(candidates: Ints, way: _Way, near: Nearby, settings: Settings) -> Bools:
    """Whether each candidate has a neighbour among the existing nodes."""
    result = np.zeros(len(candidates), np.bool_)
    standing = candidates < near.nodes
    result[standing] = has_distance(way.edges, candidates[standing], way.distance)
    owner = np.repeat(np.arange(len(near.inside)), np.diff(near.start))
    close = np.bincount(owner[within(way.own, settings)], minlength=len(near.inside)) > 0
    result[~standing] = close[candidates[~standing] - near.nodes]
    return result
