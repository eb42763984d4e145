"""The readable Algorithm 1: what it does to small worlds that can be worked out by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgm.memory.reference import SparseGraph, build_sparse_graph, k_nearest
from speed.reference import ReferenceMemory
from tests.conftest import plane, tables

LINE = np.abs(np.subtract.outer(np.arange(6), np.arange(6))).astype(np.float32)  # six states a step apart
NOTHING = np.zeros((6, 1), np.float32)  # features that tell no state apart


def build(d=LINE, phi=NOTHING, buffer=None, **settings) -> SparseGraph:
    graph, _ = build_sparse_graph(range(len(d)) if buffer is None else buffer, d, phi, **settings)
    return graph


def test_a_state_is_novel_when_it_agrees_with_no_node_though_line_5_says_the_opposite():
    graph = build(scope="memory", tau_a=1.0)
    # As printed, every state would be novel that is within 1 of all nodes, and the far end never.
    assert graph.nodes == [0, 2, 4]
    assert graph.assignment == [0, 0, 1, 1, 2, 2]


def test_the_oldest_node_that_agrees_takes_a_state_in():
    graph = build(scope="memory", tau_a=2.0, buffer=[0, 3, 1, 2])
    assert graph.nodes == [0, 3]
    assert graph.assignment == [0, 1, 0, 0]


def test_equations_allow_equality_and_the_authors_do_not():
    # State 1 is exactly a step away from state 0 as seen from 3, the only neighbour there is.
    assert build(scope="memory", tau_a=1.0, buffer=[0, 3, 1]).assignment == [0, 1, 0]
    assert build(scope="neighbors", tau_a=1.0, buffer=[0, 3, 1]).assignment == [0, 1, 2]
    assert build(scope="neighbors", tau_a=1.1, buffer=[0, 3, 1]).assignment == [0, 1, 0]
    assert (0, 1, 1.0) in build(scope="memory", criterion="none", max_dist=1.0).edges()
    assert build(scope="neighbors", criterion="none", max_dist=1.0).edges() == []


def test_with_the_authors_a_node_without_neighbours_takes_in_nothing():
    buffer = [0, 0, 0]
    assert build(scope="memory", tau_a=1.0, buffer=buffer).assignment == [0, 0, 0]
    # The second visit of state 0 finds no neighbour to agree on and becomes one, so that the third is merged.
    assert build(scope="neighbors", tau_a=1.0, buffer=buffer).assignment == [0, 1, 0]


def test_incoming_and_outgoing_are_the_two_halves_of_two_way_consistency():
    # The paper's bottle: it falls off the table (2) as easily from either place, and nothing brings it back.
    d = np.array([[0, 1, 1], [1, 0, 1], [9, 9, 0]], np.float32)
    settings = {"phi": NOTHING[:3], "scope": "memory", "tau_a": 2.0}
    assert build(d, criterion="incoming", **settings).nodes == [0]
    assert build(d, criterion="outgoing", **settings).nodes == [0, 2]
    assert build(d, criterion="two-way", **settings).nodes == [0, 2]


def test_only_neighbours_are_asked_by_the_authors_and_all_nodes_by_the_equations():
    # States 0 and 1 are as far from their neighbour 2, but not from 3, which is no neighbour.
    d = np.array([[0, 8, 1, 6], [1, 0, 1, 9], [8, 8, 0, 8], [8, 8, 8, 0]], np.float32)
    settings = {"phi": NOTHING[:4], "criterion": "outgoing", "tau_a": 2.0, "max_dist": 4.0, "buffer": [0, 2, 3, 1]}
    assert build(d, scope="neighbors", **settings).assignment == [0, 1, 2, 0]
    assert build(d, scope="memory", **settings).assignment == [0, 1, 2, 3]


def test_the_perceptual_check_comes_first_and_is_a_criterion_of_its_own():
    phi = np.arange(6, dtype=np.float32)[:, None]
    assert build(phi=phi, criterion="perceptual", tau_p=2.0).assignment == [0, 0, 1, 1, 2, 2]
    assert build(phi=phi, scope="memory", tau_a=9.0, tau_p=1.0).assignment == [0, 0, 1, 1, 2, 2]
    assert build(phi=phi, scope="memory", tau_a=9.0, tau_p=0.5).nodes == [0, 1, 2, 3, 4, 5]
    assert build(phi=phi, scope="memory", tau_a=9.0).nodes == [0]


def test_a_merge_moves_the_feature_of_the_node_by_a_share():
    phi = np.arange(6, dtype=np.float32)[:, None]
    graph = build(phi=phi, criterion="perceptual", tau_p=2.0, feature_average=0.5, buffer=[0, 1])
    assert [feature.tolist() for feature in graph.features] == [[0.5]]
    assert phi[0] == 0.0


def test_none_and_uniform_keep_every_state_they_are_given():
    for criterion in ("none", "uniform"):
        assert build(criterion=criterion, buffer=[3, 3, 1]).nodes == [3, 3, 1]


def test_nodes_are_joined_within_max_dist_by_their_distance_in_each_direction():
    d = np.array([[0, 2, 9], [3, 0, 4], [1, 9, 0]], np.float32)
    edges = build(d, criterion="none", scope="memory", max_dist=4.0).edges()
    assert edges == [(0, 1, 2.0), (1, 0, 3.0), (1, 2, 4.0), (2, 0, 1.0)]


def test_the_filter_keeps_the_k_nearest_successors_and_of_equals_the_lower():
    edges = [(0, 1, 2.0), (0, 2, 1.0), (0, 3, 1.0), (1, 0, 5.0), (2, 3, 1.0), (2, 0, 1.0)]
    assert k_nearest(edges, 1) == [(0, 2, 1.0), (1, 0, 5.0), (2, 0, 1.0)]
    assert k_nearest(edges, 2) == [(0, 2, 1.0), (0, 3, 1.0), (1, 0, 5.0), (2, 0, 1.0), (2, 3, 1.0)]
    assert k_nearest(edges, None) == sorted(edges)
    assert k_nearest([], 3) == []


@pytest.mark.parametrize("k", [None, 5])
def test_it_is_what_the_authors_pattern_builds(k):
    points, table = plane(150)
    theirs = ReferenceMemory(table[None], points, tau_a=3.0, tau_p=2.0, max_dist=6.0, k=k)
    graph, edges = build_sparse_graph(range(150), table, points, tau_a=3.0, tau_p=2.0, max_dist=6.0, k=k)
    assert graph.nodes == theirs.nodes.tolist() and len(graph.nodes) < 150
    assert edges == sorted((u, v, float(w)) for u, v, w in theirs.graph.edges(data="weight"))


@given(tables(most=12), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_each_state_is_within_tau_a_of_its_node_and_of_no_older_one(d, tau_a):
    """Eq. 3 in one line of arrays, over the nodes there were when the state came."""
    graph = build(d, phi=NOTHING[:1].repeat(len(d), 0), scope="memory", tau_a=tau_a)
    for s, taken_in in enumerate(graph.assignment):
        older = [node for node in graph.nodes if node < s]
        agrees = [
            max(np.abs(d[c, older] - d[s, older]).max(), np.abs(d[older, c] - d[older, s]).max()) <= np.float32(tau_a)
            for c in older
        ]
        assert taken_in == (agrees.index(True) if any(agrees) else len(older))


@given(tables(most=12), st.sampled_from(["neighbors", "memory"]), st.integers(1, 4))
def test_the_filter_keeps_at_most_k_edges_of_a_node_and_none_longer_than_one_left_out(d, scope, k):
    graph = build(d, phi=NOTHING[:1].repeat(len(d), 0), criterion="none", scope=scope, max_dist=3.0)
    kept = k_nearest(graph.edges(), k)
    left_out = set(graph.edges()) - set(kept)
    for source, edges in itertools.groupby(kept, key=lambda edge: edge[0]):
        weights = [weight for _, _, weight in edges]
        assert len(weights) <= k
        assert max(weights) <= min((weight for u, _, weight in left_out if u == source), default=math.inf)
