"""A memory without some edges, as if they had never been made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm


class Line:
    """Distance on a line."""

    def embed(self, observations):
        return np.asarray(observations, np.float32).reshape(len(observations), -1)

    def __call__(self, starts, goals):
        return np.abs(starts - goals.T)


def line(places, **how):
    memory = sgm.SparseGraphicalMemory(Line(), criterion="none", max_dist=5.0, **how)
    memory.extend(np.asarray(places, np.float32)[:, None], attributes={"place": np.asarray(places, np.float64)})
    return memory


def pairs(edges):
    return set(zip(edges.source.tolist(), edges.target.tolist(), strict=True))


def test_longer_edges_take_the_places_of_those_left_out():
    memory = line([0, 1, 3, 6], k=1)
    assert pairs(memory.edges()) == {(0, 1), (1, 0), (2, 1), (3, 2)}
    pruned = memory.pruned([0, 2], [1, 1])
    assert pairs(pruned.edges()) == {(0, 2), (1, 0), (2, 0), (3, 2)}
    memory.remove(0, 1)
    assert (0, 2) not in pairs(memory.edges())  # removed ones keep theirs
    assert (0, 1) not in pairs(pruned.edges(filtered=False))


def test_the_memory_itself_stays_as_it_is_and_evidence_stays_behind():
    memory = line([0, 1, 2], k=2)
    memory.record(0, 1, reached=True)
    before = pairs(memory.edges())
    pruned = memory.pruned([0], [2])
    pruned.extend(np.array([[3.0]], np.float32), attributes={"place": np.array([3.0])})
    assert pairs(memory.edges()) == before and len(memory) == 3 and memory.evidence(0, 1).successes == 1
    assert pruned.evidence(0, 1).attempts == 0
    np.testing.assert_array_equal(pruned.attributes["place"], [0, 1, 2, 3])
    assert (2, 3) in pairs(pruned.edges())


def test_edges_of_a_reversible_memory_go_both_ways():
    memory = line([0, 1, 2], k=2, reversible=True)
    assert not {(0, 1), (1, 0)} & pairs(memory.pruned([0], [1]).edges(filtered=False))


def test_a_pruned_memory_is_saved_and_loaded(tmp_path):
    pruned = line([0, 1, 3, 6], k=1).pruned([0], [1])
    pruned.save(tmp_path / "memory.sgm")
    loaded = sgm.SparseGraphicalMemory.load(tmp_path / "memory.sgm", Line())
    assert pairs(loaded.edges(filtered=False)) == pairs(pruned.edges(filtered=False))
    assert pairs(loaded.edges()) == pairs(pruned.edges())


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ([0], [3], "no edge from 0 to 3"),
        ([0], [9], "no edge from 0 to 9"),
        ([-1], [0], "no edge from -1 to 0"),
        ([0, 1], [1], "two lists of node numbers"),
        ([0.5], [1], "two lists of node numbers"),
    ],
)
def test_what_is_no_edge_is_refused(source, target, message):
    with pytest.raises(sgm.InputError, match=message):
        line([0, 1, 2, 40]).pruned(source, target)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.integers(0, 30), min_size=2, max_size=12, unique=True), st.integers(1, 4))
def test_what_is_left_are_the_k_nearest_of_the_edges_that_were_kept(data, places, k):
    memory = line(places, k=k)
    edges = memory.edges(filtered=False)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(edges.source), max_size=len(edges.source))), bool)
    pruned = memory.pruned(edges.source[mask], edges.target[mask])
    for node in range(len(memory)):
        mine = ~mask & (edges.source == node)
        kept = pruned.edges()
        got = np.sort(kept.weight[kept.source == node])
        np.testing.assert_array_equal(got, np.sort(edges.weight[mine])[:k])
