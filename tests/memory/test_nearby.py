"""Building from what is near gives the graph of Algorithm 1, with compiled code and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm
from sgm.memory import build, compiled, index
from tests.memory.oracle import build_sparse_graph, edge_list
from tests.memory.searchable import Leaning


@pytest.fixture(params=["compiled", "plain"], autouse=True)
def path(request, monkeypatch):
    """With numba, and with NumPy and SciPy alone; memories are searched from the first node on."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setenv(compiled.SWITCH, "0")
    monkeypatch.setattr(build, "ENOUGH", 1)
    monkeypatch.setattr(index, "SMALL", 8)
    return request.param


@st.composite
def cases(draw):
    """Points of a small lattice, so that every comparison can tie."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, number = draw(st.integers(1, 3)), draw(st.integers(1, 60))
    high = draw(st.sampled_from([3, 8]))
    points = random.integers(0, high, (number, size)).astype(np.float32)
    distance = Leaning(size, draw(st.sampled_from([0.0, 0.5, 1.0])), draw(st.booleans()))
    own = random.integers(0, 4, (number, draw(st.integers(1, 3)))).astype(np.float32) if draw(st.booleans()) else None
    given_settings = {
        "criterion": draw(st.sampled_from(["two-way", "two-way", "incoming", "outgoing", "perceptual", "none"])),
        "scope": draw(st.sampled_from(["neighbors", "neighbors", "memory"])),
        "tau_a": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])),
        "tau_p": draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, np.inf])),
        "max_dist": draw(st.sampled_from([0.0, 1.0, 2.0, 3.0, 10.0])),
        "k": draw(st.sampled_from([None, 1, 2, 5])),
    }
    return distance, points, own, given_settings


def memory_of(distance, own, given_settings, **more):
    phi = None if own is None else (lambda rows: own[rows[:, -1].astype(int)])
    return sgm.SparseGraphicalMemory(Numbered(distance), phi, **given_settings, **more)


class Numbered:
    """A distance of observations whose last number says which they are, so that features can be looked up."""

    def __init__(self, distance):
        self.distance = distance
        self.pairs, self.keys = distance.pairs, distance.keys
        self.probes, self.reach = distance.probes, distance.reach

    def embed(self, observations):
        return np.asarray(observations, np.float32)[:, :-1]

    def __call__(self, starts, goals):
        return self.distance(starts, goals)


def numbered(points):
    return np.column_stack([points, np.arange(len(points))]).astype(np.float32)


@given(cases(), st.integers(1, 9))
@settings(max_examples=150)
def test_any_block_size_gives_the_graph_of_algorithm_1(case, block):
    distance, points, own, given_settings = case
    memory = memory_of(distance, own, given_settings)
    memory.extend(numbered(points), block=block)
    features = points if own is None else own
    graph, nearest = build_sparse_graph(range(len(points)), distance(points, points), features, **given_settings)
    assert memory.nodes.tolist() == graph.nodes
    assert memory.assignment.tolist() == graph.assignment
    assert edge_list(memory.edges(filtered=False)) == graph.edges()
    assert edge_list(memory.edges()) == nearest


@given(cases(), st.lists(st.integers(0, 9), max_size=12), st.sampled_from([None, 1.5]))
@settings(max_examples=80)
def test_edges_in_time_and_back_are_those_of_a_build_that_asks_for_everything(case, cuts, reversible):
    distance, points, own, given_settings = case
    episode = np.arange(len(points)) // 5
    rows, position = numbered(points), 0
    pieces = memory_of(distance, own, given_settings, reversible=reversible)
    for length in [*cuts, len(points)]:
        some = slice(position, position + length)
        pieces.extend(rows[some], episode=episode[some])
        pieces.edges()
        position += length
    whole = memory_of(distance, own, given_settings, reversible=reversible)
    whole._builder._look_around = lambda _: None
    whole.extend(rows, episode=episode)
    assert whole._builder.neighbourhood is None
    assert pieces.assignment.tolist() == whole.assignment.tolist()
    for filtered in (False, True):
        assert edge_list(pieces.edges(filtered)) == edge_list(whole.edges(filtered))
    if not cuts:
        np.testing.assert_array_equal(pieces._graph.source.values, whole._graph.source.values)


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
@pytest.mark.parametrize("criterion", ["two-way", "incoming", "outgoing", "perceptual", "none"])
def test_a_world_of_many_blocks(criterion):
    random = np.random.default_rng(0)
    points = random.uniform(0, 20, (900, 2)).astype(np.float32)
    walk = np.cumsum(random.normal(0, 0.4, (900, 2)), axis=0).astype(np.float32)
    for observations in (points, walk):
        given_settings = {"criterion": criterion, "tau_p": 1.5, "tau_a": 1.2, "max_dist": 3.0}
        memory = sgm.SparseGraphicalMemory(Leaning(2), **given_settings)
        memory.extend(observations)
        table = Leaning(2)(observations, observations)
        graph, nearest = build_sparse_graph(range(900), table, observations, **given_settings)
        assert memory._builder.neighbourhood is not None
        assert memory.assignment.tolist() == graph.assignment
        assert edge_list(memory.edges(filtered=False)) == graph.edges()
        assert edge_list(memory.edges()) == nearest
        assert criterion == "none" or len(memory) < 900


def test_a_batch_that_fails_leaves_the_memory_as_it_was_and_goes_on_from_there():
    random = np.random.default_rng(1)
    points = random.uniform(0, 12, (600, 2)).astype(np.float32)
    whole = sgm.SparseGraphicalMemory(Leaning(2), tau_p=1.0, max_dist=2.0)
    whole.extend(points)

    class Failing(Leaning):
        left = 3

        def embed(self, observations):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
            return super().embed(observations)

    memory = sgm.SparseGraphicalMemory(Failing(2), tau_p=1.0, max_dist=2.0)
    memory.extend(points[:200])
    before = memory.nodes.tolist(), edge_list(memory.edges()), edge_list(memory.edges(False))
    with pytest.raises(KeyboardInterrupt):
        memory.extend(points[200:], block=100)
    assert (memory.nodes.tolist(), edge_list(memory.edges()), edge_list(memory.edges(False))) == before
    memory.extend(points[200:])
    assert edge_list(memory.edges()) == edge_list(whole.edges())
    assert memory.assignment.tolist() == whole.assignment.tolist()
