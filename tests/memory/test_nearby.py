"""Building from what is near gives the graph of Algorithm 1, with compiled code and without."""

from __future__ import annotations

import copy
import pickle

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
                raise RuntimeError("no more")
            return super().embed(observations)

    memory = sgm.SparseGraphicalMemory(Failing(2), tau_p=1.0, max_dist=2.0)
    memory.extend(points[:200])
    before = memory.nodes.tolist(), edge_list(memory.edges()), edge_list(memory.edges(False))
    with pytest.raises(RuntimeError, match="no more"):
        memory.extend(points[200:], block=100)
    assert (memory.nodes.tolist(), edge_list(memory.edges()), edge_list(memory.edges(False))) == before
    memory.extend(points[200:])
    assert edge_list(memory.edges()) == edge_list(whole.edges())
    assert memory.assignment.tolist() == whole.assignment.tolist()


class Unsearchable(Leaning):
    """The same distance, which does not say how it can be searched."""

    keys = probes = reach = None


def curled(number=1500):
    """Points of a plane in order of a walk that covers it."""
    return np.random.default_rng(3).uniform(0, 20, (number, 2)).astype(np.float32)


def test_enough_candidates_give_the_graph_that_asking_for_everything_gives():
    points = curled()
    settings = {"tau_p": 0.6, "tau_a": 1.2, "max_dist": 2.0}
    exact = sgm.SparseGraphicalMemory(Unsearchable(2), **settings)
    exact.extend(points)
    assert exact.stats().index == "every node"
    some = sgm.SparseGraphicalMemory(Unsearchable(2), candidates=200, **settings)
    some.extend(points)
    assert some.assignment.tolist() == exact.assignment.tolist()
    assert edge_list(some.edges(False)) == edge_list(exact.edges(False))
    assert some.stats().index == "200 nearest candidates" and some.settings.candidates == 200
    for memory in (some, exact):
        found = memory.audit(100)
        assert found.edge_recall == found.merge_recall == 1.0 and found.edges == found.edges_found > 0


def test_the_audit_says_what_few_candidates_missed():
    memory = sgm.SparseGraphicalMemory(Unsearchable(2), candidates=4, tau_p=0.6, tau_a=1.2, max_dist=2.0, k=None)
    memory.extend(curled())
    found = memory.audit(10_000)
    assert found.nodes == len(memory)
    graph, points = memory._graph, memory.embeddings
    table = Unsearchable(2)(points, points)
    np.fill_diagonal(table, 99)
    # Each edge is seen from both of its ends.
    assert found.edges == 2 * np.count_nonzero(table < 2.0) > found.edges_found == 2 * len(graph)
    assert found.edge_recall == found.edges_found / found.edges < 0.9
    assert found.merge_recall is not None and 0 < found.merge_recall <= 1
    assert found.asdict()["nodes"] == len(memory)


@pytest.mark.parametrize("more", [{"scope": "memory"}, {"tau_p": None}, {"feature_average": 0.1}, {"candidates": 0}])
def test_candidates_are_refused_where_they_would_mean_something_else(more):
    with pytest.raises(sgm.InputError, match="candidates"):
        sgm.SparseGraphicalMemory(Unsearchable(2), **{"candidates": 5, **more})


def test_stats_say_how_nodes_are_found_and_count_the_index(monkeypatch):
    memory = sgm.SparseGraphicalMemory(Leaning(2), tau_p=0.6, tau_a=1.2, max_dist=2.0)
    memory.extend(curled())
    assert memory.stats().index == "cells"
    held = memory._nodes.nbytes + memory._graph.nbytes + memory._log.nbytes
    assert memory.nbytes == memory.stats().bytes > held


def test_a_file_keeps_how_many_candidates_there_are(tmp_path):
    memory = sgm.SparseGraphicalMemory(Unsearchable(2), candidates=7, tau_p=0.6)
    memory.extend(curled(50))
    memory.save(tmp_path / "some.sgm")
    assert sgm.SparseGraphicalMemory.load(tmp_path / "some.sgm", Unsearchable(2)).settings.candidates == 7


def test_a_copy_has_an_index_of_its_own():
    points = curled(900)
    memory = sgm.SparseGraphicalMemory(Leaning(2), tau_p=0.6, tau_a=1.2, max_dist=2.0)
    memory.extend(points[:500])
    for copied in (copy.deepcopy(memory), pickle.loads(pickle.dumps(memory))):
        copied.extend(points[500:])
        assert len(copied) > len(memory)
    memory.extend(points[500:])
    assert copied.assignment.tolist() == memory.assignment.tolist()
    assert edge_list(copied.edges()) == edge_list(memory.edges())
