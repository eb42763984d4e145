"""`memory.bridge` lets in edges beyond the k nearest where they join parts of the graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import sgm


class Euclid:
    """Steps are lengths."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


def make(places, k=2, **settings):
    memory = sgm.SparseGraphicalMemory(Euclid(), criterion="none", max_dist=3.0, k=k, **settings)
    memory.extend(np.asarray(places, np.float32))
    return memory


def clusters():
    """The corners of two small squares, 2 apart: the two nearest successors of each are corners of its own square."""
    square = np.array([[0, 0], [0.1, 0], [0, 0.1], [0.1, 0.1]])
    return np.concatenate([square, square + np.array([2, 0.03])])


def parts(size, edges):
    graph = coo_array((np.ones(len(edges.source)), (edges.source, edges.target)), shape=(size, size))
    return connected_components(graph, connection="strong")[1]


def same(one, other):
    """Whether two labellings say the same."""
    return np.array_equal(one[:, None] == one, other[:, None] == other)


def test_the_shortest_edge_each_way_joins_two_groups():
    memory = make(clusters())
    with pytest.raises(sgm.NoPath):
        memory.plan_nodes(0, 7)
    assert memory.bridge() == 2
    assert memory.largest_part() == len(memory) == 8
    assert memory.stats().spare_edges == 2
    assert memory.evidence(1, 4).spare and memory.evidence(4, 1).spare
    assert memory.plan_nodes(0, 7).nodes[-1] == 7
    assert memory.bridge() == 0


def test_a_removed_edge_is_no_bridge_and_a_bridge_can_be_removed():
    memory = make(clusters(), policy="first-failure")
    memory.remove(1, 4)
    assert memory.bridge() == 2
    assert not memory.evidence(1, 4).spare
    u, v = next((u, v) for u in range(4) for v in range(4, 8) if memory.evidence(u, v).spare)
    memory.record(u, v, reached=False)
    with pytest.raises(sgm.NoPath):
        memory.plan_nodes(0, 7)


def test_groups_that_no_edges_join_stay_apart():
    memory = make(np.concatenate([clusters(), clusters() + np.array([0, 50])]))
    assert memory.bridge() == 4
    assert memory.largest_part() == 8


def test_a_memory_without_a_filter_or_nodes_needs_no_bridges():
    assert make(clusters(), k=None).bridge() == 0
    assert sgm.SparseGraphicalMemory(Euclid(), criterion="none", max_dist=3.0, k=2).bridge() == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 4))
def test_bridged_graphs_are_as_connected_as_those_without_a_filter(seed, size, k):
    random = np.random.default_rng(seed)
    memory = make(random.uniform(0, 8, (size, 2)), k=k)
    for edge in random.permutation(len(memory.edges(filtered=False).source))[: size // 4]:
        every = memory.edges(filtered=False)
        if edge < len(every.source):
            memory.remove(int(every.source[edge]), int(every.target[edge]))
    before = memory.edges()
    added = memory.bridge()
    after = memory.edges()
    assert len(after.source) == len(before.source) + added
    assert set(zip(before.source, before.target, strict=True)) <= set(zip(after.source, after.target, strict=True))
    assert same(parts(size, after), parts(size, memory.edges(filtered=False)))


def test_bridges_are_in_the_file_and_in_the_history(tmp_path):
    path = tmp_path / "memory.sgm"
    with sgm.SparseGraphicalMemory.open(path, Euclid(), criterion="none", max_dist=3.0, k=2) as memory:
        memory.extend(clusters())
        memory.bridge()
        edges = memory.edges()
    loaded = sgm.SparseGraphicalMemory.load(path, Euclid())
    assert all(np.array_equal(one, other) for one, other in zip(edges, loaded.edges(), strict=True))
    assert list(loaded.events().kind) == ["spare", "spare"]
    assert loaded.at(0).largest_part() == 4 and loaded.at(2).largest_part() == 8
