"""The online build: exactly Algorithm 1 (its printed test corrected), whatever the block size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgm
from speed.reference import ReferenceMemory
from tests.conftest import plane, tables
from tests.memory.oracle import build_sparse_graph, edge_list

pytestmark = pytest.mark.usefixtures("decider")
CONSISTENCIES = ["two-way", "incoming", "outgoing"]


def memory_over(table, features=None, **settings) -> sgm.SparseGraphicalMemory:
    phi = None if features is None else (lambda rows: features[np.asarray(rows, int)])
    return sgm.SparseGraphicalMemory(sgm.TableDistance(table), phi, **settings)


@st.composite
def cases(draw):
    table = draw(tables())
    random = np.random.default_rng(draw(st.integers(0, 99)))
    settings = {
        "criterion": draw(st.sampled_from([*CONSISTENCIES, "perceptual", "none"])),
        "scope": draw(st.sampled_from(["neighbors", "memory"])),
        "tau_a": draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])),
        "tau_p": draw(st.sampled_from([0.0, 1.0, 2.0, np.inf])),
        "max_dist": draw(st.sampled_from([0.0, 1.0, 3.0, 10.0])),
        "k": draw(st.sampled_from([None, 1, 2, 5])),
        "feature_average": draw(st.sampled_from([0.0, 0.0, 0.05])),
    }
    features = random.integers(0, 4, (len(table), draw(st.integers(1, 3)))).astype(np.float32)
    return table, features, settings


@given(cases(), st.integers(1, 9))
def test_any_block_size_gives_the_graph_of_algorithm_1(case, block):
    table, features, settings = case
    memory = memory_over(table, features, **settings)
    report = memory.extend(np.arange(len(table)), block=block)
    graph, nearest = build_sparse_graph(range(len(table)), table, features, **settings)
    assert memory.nodes.tolist() == graph.nodes
    assert report.assignment.tolist() == memory.assignment.tolist() == graph.assignment
    assert edge_list(memory.edges(filtered=False)) == graph.edges()
    assert edge_list(memory.edges()) == nearest
    np.testing.assert_array_equal(memory.features, np.stack(graph.features))
    assert report.added == len(memory) and report.added + report.merged == len(table)


@given(cases(), st.lists(st.integers(0, 5), max_size=12))
def test_adding_later_or_one_at_a_time_changes_nothing(case, cuts):
    table, features, settings = case
    whole = memory_over(table, features, **settings)
    episode = np.arange(len(table)) // 5
    whole.extend(np.arange(len(table)), episode=episode)
    pieces = memory_over(table, features, **settings)
    position = 0
    for length in [*cuts, len(table)]:
        rows = np.arange(len(table))[position : position + length]
        if length == 1 and len(rows):
            pieces.add(rows[0], episode=int(episode[rows[0]]))
        else:
            pieces.extend(rows, episode=episode[rows])
        pieces.edges()
        position += length
    assert pieces.nodes.tolist() == whole.nodes.tolist()
    assert pieces.assignment.tolist() == whole.assignment.tolist()
    for filtered in (False, True):
        assert edge_list(pieces.edges(filtered)) == edge_list(whole.edges(filtered))


@pytest.mark.parametrize("scope", ["neighbors", "memory"])
@pytest.mark.parametrize("criterion", CONSISTENCIES)
def test_blocks_agree_on_a_world_larger_than_a_block(criterion, scope):
    points, table = plane(700, side=15)
    graphs = []
    for block in (None, 1, 50):
        memory = memory_over(table, points, criterion=criterion, scope=scope, tau_p=1.5, tau_a=2.5, max_dist=4.0)
        memory.extend(np.arange(700), block=block)
        graphs.append((memory.nodes.tolist(), edge_list(memory.edges(False)), edge_list(memory.edges())))
    assert graphs[0] == graphs[1] == graphs[2]
    assert 50 < len(graphs[0][0]) < 700


def test_the_graph_is_that_of_the_reference_pattern():
    points, table = plane(400)
    ensemble = np.stack([table, table * 0.9, table - 0.01]).clip(0)
    reference = ReferenceMemory(ensemble, points, tau_a=3.0, tau_p=2.0, max_dist=6.0, k=5)
    memory = memory_over(ensemble.max(axis=0), points, tau_a=3.0, tau_p=2.0, max_dist=6.0, k=5)
    memory.extend(np.arange(400))
    assert memory.nodes.tolist() == reference.nodes.tolist()
    expected = sorted((u, v, float(w)) for u, v, w in reference.graph.edges(data="weight"))
    assert edge_list(memory.edges()) == expected


def test_an_observation_reached_alike_but_left_differently_is_merged_by_incoming_only():
    # The paper's bottle: from the table (1) everything can be reached; the falling bottle (2) cannot be brought back.
    table = np.array([[0, 1, 1, 9], [1, 0, 1, 1], [9, 9, 0, 1], [1, 1, 1, 0]], np.float32)
    two_way = memory_over(table, tau_p=None, tau_a=2.0, max_dist=2.0, scope="memory")
    two_way.extend(np.arange(3))
    assert 2 in two_way.nodes
    incoming = memory_over(table, tau_p=None, tau_a=2.0, max_dist=2.0, scope="memory", criterion="incoming")
    incoming.extend(np.arange(3))
    assert 2 not in incoming.nodes


def test_a_node_without_neighbours_is_never_merged_into_under_the_authors_scope():
    table = np.array([[0, 50], [50, 0]], np.float32)
    memory = memory_over(table, tau_p=None, tau_a=100.0, max_dist=10.0)
    memory.extend([0, 0, 0])
    # The second observation is a neighbour (0 steps away), after which the third has something to agree with.
    assert memory.assignment.tolist() == [0, 1, 0]
    lonely = memory_over(table, tau_p=None, tau_a=100.0, max_dist=10.0)
    lonely.extend([0, 1, 1])
    assert lonely.assignment.tolist() == [0, 1, 2]


def test_authors_compare_strictly_and_the_equations_do_not():
    table = np.array([[0, 3, 3], [3, 0, 3], [3, 3, 0]], np.float32)
    authors = memory_over(table, tau_p=None, tau_a=3.0, max_dist=3.0, k=None)
    paper = memory_over(table, tau_p=None, tau_a=3.0, max_dist=3.0, k=None, scope="memory")
    authors.extend(np.arange(3))
    paper.extend(np.arange(3))
    assert len(authors) == 3 and len(authors.edges().source) == 0
    assert len(paper) == 1


def test_uniform_keeps_a_seeded_sample_of_the_given_size(world):
    _, table = world
    chosen = []
    for seed in (0, 0, 1):
        memory = memory_over(table, criterion="uniform", size=30, seed=seed, max_dist=6.0)
        report = memory.extend(np.arange(120))
        assert (report.added, report.merged, report.dropped) == (30, 0, 90)
        assert (report.assignment >= 0).sum() == 30
        assert memory.nodes.tolist() == np.flatnonzero(report.assignment >= 0).tolist()
        chosen.append(memory.nodes.tolist())
    assert chosen[0] == chosen[1] != chosen[2]
    assert memory.extend(np.arange(10)).dropped == 10
    small = memory_over(table, criterion="uniform", size=500)
    assert small.extend(np.arange(120)).added == 120


def test_a_merge_moves_the_feature_when_averaging_is_on(world):
    points, table = world
    settings = {"tau_p": 3.0, "tau_a": 4.0, "max_dist": 6.0, "feature_average": 0.05}
    memory = memory_over(table, points, **settings)
    memory.extend(np.arange(120))
    graph, _ = build_sparse_graph(range(120), table, points, **settings)
    assert memory.nodes.tolist() == graph.nodes and len(memory) < 120
    np.testing.assert_array_equal(memory.features, np.stack(graph.features))
    assert not np.array_equal(memory.features, points[memory.nodes])


def test_observations_are_not_needed_again_unless_kept():
    points, table = plane(50)
    plain = memory_over(table, points, tau_p=2.0)
    plain.extend(np.arange(50))
    with pytest.raises(sgm.InputError, match="keep_observations=True"):
        _ = plain.observations
    keeping = memory_over(table, points, tau_p=2.0, keep_observations=True)
    keeping.extend(np.arange(50))
    assert keeping.observations.tolist() == keeping.nodes.tolist()
    assert keeping.plan(3, 40).waypoints.tolist() == keeping.nodes[keeping.plan(3, 40).nodes].tolist()


def test_the_distance_is_asked_for_blocks_and_never_pair_by_pair(world):
    points, table = world
    calls = []

    class Counting(sgm.TableDistance):
        def __call__(self, starts, goals):
            calls.append((len(starts), len(goals)))
            return super().__call__(starts, goals)

    memory = sgm.SparseGraphicalMemory(Counting(table), lambda rows: points[rows], tau_p=2.0)
    memory.extend(np.arange(120), block=40)
    assert len(calls) <= 4 * 3


def test_time_joins_consecutive_observations_of_an_episode_after_merging():
    table = np.full((5, 5), 50, np.float32)
    table[0, 1] = table[1, 0] = 4.0
    np.fill_diagonal(table, 0)
    memory = memory_over(table, k=None, max_dist=10.0)
    memory.extend([0, 1, 2, 3, 4], episode=[7, 7, 7, 8, 8])
    assert edge_list(memory.edges()) == [(0, 1, 1.0), (1, 0, 4.0), (1, 2, 1.0), (3, 4, 1.0)]
    memory.add(0, episode=8)
    assert (4, 0, 1.0) in edge_list(memory.edges())
    assert memory.plan(0, 2).nodes.tolist() == [0, 1, 2]


def test_time_changes_nothing_about_merging(world):
    points, table = world
    plain = memory_over(table, points, tau_p=3.0, tau_a=3.0, max_dist=5.0)
    timed = memory_over(table, points, tau_p=3.0, tau_a=3.0, max_dist=5.0)
    plain.extend(np.arange(120))
    timed.extend(np.arange(120), episode=0)
    assert timed.nodes.tolist() == plain.nodes.tolist()
    assert len(timed.edges(False).source) > len(plain.edges(False).source)


def test_the_filter_can_be_changed_and_stays_true_while_growing(world):
    points, table = world
    memory = memory_over(table, points, tau_p=1.0, max_dist=8.0, k=None)
    memory.extend(np.arange(60))
    memory.filter(3)
    memory.extend(np.arange(60, 120))
    fresh = memory_over(table, points, tau_p=1.0, max_dist=8.0, k=3)
    fresh.extend(np.arange(120))
    assert edge_list(memory.edges()) == edge_list(fresh.edges())
    assert np.bincount(memory.edges().source).max() == 3
