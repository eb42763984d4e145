"""Plans on many nodes: found one at a time, and as short as those of whole trees, to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgm
from sgm.memory import adjacency, graph, planner, searches
from sgm.memory import memory as memory_module
from sgm.memory.planner import MODES, Planner
from tests.conftest import plane
from tests.memory.searchable import Leaning

pytest.importorskip("numba")
POLICIES = ["first-failure", "guarded", "second-failure", "belief", sgm.FirstFailure(guard=True, spares=True)]
EDITS = ["fail", "succeed", "remove", "restore", "restore one", "add", "filter", "prepare"]


@pytest.fixture(autouse=True, scope="module")
def _follow_always():
    """Small graphs are made anew where large ones are followed: not here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_SHARE", 1)
        patch.setattr(searches, "_STALE", 100)
        patch.setattr(adjacency, "_MANY", 0)
        yield


def build(n: int, seed: int, ties: bool = False, **settings) -> sgm.SparseGraphicalMemory:
    """A memory whose planner takes it for a large one."""
    points, table = plane(n, seed)
    table = np.round(table) if ties else table
    options = {"tau_p": 1.0, "tau_a": 2.0, "max_dist": 4.0, "k": 5, **settings}
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[np.asarray(rows)], **options)
    memory._planner.many = 0
    memory.extend(np.arange(n // 2))
    return memory


def edit(memory: sgm.SparseGraphicalMemory, what: str, random: np.random.Generator) -> None:
    edges, removed = memory.edges(), memory.removed()
    pick = random.integers(max(1, len(edges.source)))
    if what in ("fail", "succeed") and len(edges.source):
        memory.record(edges.source[pick], edges.target[pick], what == "succeed")
    elif what == "remove" and len(edges.source):
        memory.remove(edges.source[pick], edges.target[pick])
    elif what == "restore one" and len(removed.source):
        memory.restore(removed.source[0], removed.target[0])
    elif what == "restore":
        memory.restore()
    elif what == "add":
        memory.add(int(random.integers(len(memory.distance.matrix))))
    elif what == "filter":
        memory.filter(int(random.integers(1, 7)))
    elif what == "prepare":
        memory._planner.prepare(MODES[random.integers(2)])


@given(st.integers(0, 10_000), st.sampled_from(POLICIES), st.booleans(), st.lists(st.sampled_from(EDITS), max_size=20))
def test_ways_are_as_short_as_those_of_whole_trees_whatever_happens_to_edges(seed, policy, ties, edits):
    random = np.random.default_rng(seed)
    memory = build(80, seed, ties, policy=policy)
    for what in ["prepare", *edits, "fail"]:
        edit(memory, what, random)
        if random.integers(2):
            continue  # nobody plans between this edit and the next one
        plain = Planner(memory._graph, memory.policy)
        plain.many = math.inf
        prices = plain.matrix("distance"), plain.matrix("hops")
        for start, goal in random.integers(0, len(memory), (4, 2)).tolist():
            for by, matrix in zip(MODES, prices, strict=True):
                expected = plain.cost(start, goal, by)
                assert memory._planner.cost(start, goal, by) == expected
                if expected < math.inf:
                    route = memory._planner.route(start, goal, by)
                    legs = [matrix[v, u] for u, v in zip(route.nodes, route.nodes[1:], strict=False)]
                    assert route.nodes[0] == start and route.nodes[-1] == goal
                    assert sum(reversed(legs)) == route.cost == expected
    assert memory._planner._large is not None


@given(st.integers(0, 10_000), st.sampled_from(POLICIES), st.lists(st.sampled_from(EDITS), min_size=1, max_size=12))
def test_a_repaired_tree_is_the_tree_from_scratch(seed, policy, edits):
    random = np.random.default_rng(seed)
    memory = build(60, seed, policy=policy)
    goals = random.integers(0, len(memory), 3).tolist()
    for what in edits:
        for goal in goals[:2]:
            memory._planner.tree(goal, "distance")
            memory._planner.tree(goal, "hops")
        memory._planner.cost(int(random.integers(len(memory))), goals[2], "distance")  # a part of a tree
        edit(memory, what, random)
    plain = Planner(memory._graph, memory.policy)
    plain.many = math.inf
    for goal in goals:
        for by in MODES:
            ours, theirs = memory._planner.tree(goal, by), plain.tree(goal, by)
            np.testing.assert_array_equal(ours.cost, theirs.cost)
            matrix = plain.matrix(by)
            for node in np.flatnonzero(np.isfinite(ours.cost)).tolist():
                ahead = int(ours.next[node])
                assert (ahead < 0) == (node == goal)
                assert node == goal or ours.cost[node] == ours.cost[ahead] + matrix[ahead, node]


def test_an_edge_that_is_removed_right_after_an_observation_was_added_is_not_planned_over():
    memory = build(200, 0, policy="first-failure")
    path = memory.plan_nodes(0, 40).nodes
    far = int(np.argmax(memory.distance.matrix[memory.nodes[path[0]]]))
    memory.add(far)
    memory.remove(path[0], path[1])
    assert memory.plan_nodes(0, 40).nodes[1] != path[1]


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=6), st.integers(0, 60))
def test_edges_at_each_node_are_the_same_taken_in_by_compiled_code(batches, cut):
    ours, plain, ends = adjacency.Adjacency(), adjacency.Adjacency(), np.empty(0, np.int32)
    for number, batch in enumerate(batches):
        ends = np.append(ends, np.array(batch, np.int32))
        ours.sync(10, ends)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(adjacency, "_MANY", 10**9)
            plain.sync(10, ends)
        if number == 3:
            for one in (ours, plain):
                one.cut(10, min(cut, len(ends)), ends)
            ends = ends[:cut]
        for node in range(10):
            expected = np.flatnonzero(ends == node).tolist()
            assert ours.at(node).tolist() == plain.at(node).tolist() == expected


def test_trees_are_repaired_and_rows_followed_not_made_anew():
    memory = build(200, 0)
    plans = memory._planner
    plans.tree(5, "distance")
    large = plans._large
    trees = large.searches["distance"].trees
    (key,) = trees
    tree = trees[key]
    edges, ways = memory.edges(), plans.tree(5, "distance")
    used = np.flatnonzero(ways.next[edges.source] == edges.target)[0]
    memory.record(edges.source[used], edges.target[used], False)
    plans.tree(5, "distance")
    assert trees[key] is tree
    memory.add(150)
    plans.tree(5, "distance")
    assert plans._large is large and trees[key] is tree


def test_landmarks_are_made_when_they_pay_and_bounds_are_lowered_when_edges_become_cheaper(monkeypatch):
    monkeypatch.setattr(searches, "_EARLY", 2)
    memory = build(300, 1, policy="first-failure")
    plans, random = memory._planner, np.random.default_rng(0)
    for start, goal in random.integers(0, len(memory), (60, 2)).tolist():
        plans.cost(start, goal, "distance")
    ways = plans._large.searches["distance"]
    bounds = ways.potentials
    assert bounds is not None and plans._large.searches["hops"].potentials is None
    edges = memory.edges()
    for pick in random.integers(0, len(edges.source), 10):
        memory.remove(edges.source[pick], edges.target[pick])
    plans.cost(0, 1, "distance")
    assert ways.potentials is bounds  # prices that rise leave bounds as they are
    before = bounds.copy()
    memory.remove(0, int(edges.target[0]))
    ways.prepare()
    memory.restore()
    bounds = ways.potentials
    plans.cost(1, 2, "distance")
    assert ways.potentials is bounds and bounds.shape == before.shape
    source, target = (plans._large._inner[nodes] for nodes in edges[:2])
    for column in np.flatnonzero(ways._lowered[::2]):  # steps to a landmark fall by no more than an edge costs
        steps = bounds[:, 2 * column]
        both = np.isfinite(steps[target])
        assert (steps[source][both] <= steps[target][both] + edges.weight[both] + 1e-9).all()
    assert ways._lowered.any()


def test_searches_go_through_fewer_nodes_than_trees():
    memory = build(1500, 2, criterion="none", max_dist=2.0)
    memory._planner.prepare("distance")
    random, part = np.random.default_rng(0), []
    for start, goal in random.integers(0, len(memory), (30, 2)).tolist():
        memory._planner.cost(start, goal, "distance")
        trees = memory._planner._large.searches["distance"].trees
        part.append((trees[next(reversed(trees))].state == 2).mean())
    assert np.mean(part) < 0.25


@given(st.integers(0, 10_000))
def test_the_guard_finds_the_same_edges_that_hold_the_graph_together(seed):
    memory = build(60, seed, k=2)
    plans, part = memory._planner, memory.largest_part()
    for edge in np.flatnonzero(plans.standing()).tolist():
        assert plans.holds_together(edge) == (plans.largest_part(without=[edge]) != part)


def test_without_numba_plans_are_as_long(monkeypatch):
    memory = build(200, 3)
    random = np.random.default_rng(0)
    pairs = random.integers(0, 100, (20, 2)).tolist()
    lengths = [plan and plan.total for plan in memory.plan_many(*np.transpose(pairs))]
    monkeypatch.setenv("SGM_COMPILED", "0")
    other = build(200, 3)
    assert [plan and plan.total for plan in other.plan_many(*np.transpose(pairs))] == lengths
    assert memory._planner._large is not None and other._planner._large is None


def test_many_agents_get_the_same_next_nodes_as_single_plans():
    memory = build(300, 4)
    random = np.random.default_rng(1)
    at, to = random.integers(0, len(memory), (2, 40))
    for node, goal, following in zip(at, to, memory.next_nodes(at, to), strict=True):
        try:
            path = memory.plan_nodes(node, goal).nodes
        except sgm.NoPath:
            assert following == -1
            continue
        assert following == (goal if node == goal else path[1])


@given(st.integers(0, 10_000), st.integers(1, 7), st.booleans())
def test_the_compiled_filter_keeps_the_same_edges(seed, k, ties):
    def kept() -> list[bool]:
        memory = build(80, seed, ties, k=k)
        for row in range(60, 70):
            memory.add(row, episode=1)
            memory._graph.in_filter()
        return memory._graph.in_filter().tolist()

    with pytest.MonkeyPatch.context() as patch:
        plain = kept()
        patch.setattr(graph, "_MANY", 0)
        assert kept() == plain


@given(st.integers(0, 10_000), st.lists(st.sampled_from(["add", "add", "steps", "filter", "cut"]), max_size=20))
def test_a_graph_filtered_after_each_change_keeps_the_same_edges_as_one_filtered_once(seed, changes):
    random = np.random.default_rng(seed)
    pairs = random.permutation([(a, b) for a in range(8) for b in range(8) if a != b])
    steps = random.integers(1, 9, len(pairs)).astype(np.float32)
    grown, k = graph.Graph(), 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "_MANY", 0)
        for change in ["filter", "add", *changes]:
            first, some = len(grown), int(random.integers(1, 9))
            if change == "add":
                added = slice(first, first + some)
                grown.append(8, *pairs[added].T, steps[added], np.zeros(len(steps[added]), np.uint8))
            elif change == "steps" and first:
                grown.set_temporal(random.integers(first, size=1), np.uint8([some]))
            elif change == "filter":
                grown.set_filter(k := some)
            elif change == "cut":
                grown.cut(grown.nodes, max(0, first - some))
            once = grown.first(grown.nodes, len(grown))
            once.set_filter(k)
            assert grown.in_filter().tolist() == once.in_filter().tolist()


def test_plans_from_observations_go_through_the_index_where_the_distance_can_be_searched(monkeypatch):
    random = np.random.default_rng(0)
    points = random.uniform(0, 20, (400, 3)).astype(np.float32)
    ends = random.uniform(0, 20, (30, 2, 3)).astype(np.float32)

    def plans(many: int) -> list:
        monkeypatch.setattr(memory_module, "MANY", many)
        memory = sgm.SparseGraphicalMemory(Leaning(3), criterion="none", max_dist=6.0, k=6)
        memory._planner.many = many
        memory.extend(points)
        assert (memory._search() is not None) == (many == 0)
        places = memory.localise(ends[:, 0]), memory.localise(ends[:, 1], as_goals=True)
        made = memory.plan_many(ends[:, 0], ends[:, 1])
        for plan, (start, goal) in zip(made, ends, strict=True):
            assert plan.asdict() == memory.plan(start, goal).asdict()
        return [[column.tolist() for column in place] for place in places], [plan.asdict() for plan in made]

    assert plans(0) == plans(10**9)


def test_plans_can_be_prepared():
    memory = build(200, 0)
    memory.prepare_plans()
    assert memory._planner._large.searches["distance"].potentials is not None
    memory.prepare_plans(by="hops")
    assert memory._planner._large.searches["hops"].potentials is not None
    with pytest.raises(sgm.InputError, match="'distance', 'hops'"):
        memory.prepare_plans(by="luck")
    with pytest.raises(sgm.EmptyMemory):
        sgm.SparseGraphicalMemory(memory.distance).prepare_plans()
