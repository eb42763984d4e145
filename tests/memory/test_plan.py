"""Planning and localisation: shortest paths, kept only while they are true."""

from __future__ import annotations

import math

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgm
from sgm.memory import fast_waypoints
from sgm.memory.planner import Planner
from tests.conftest import plane


def build(n=150, seed=0, **settings) -> sgm.SparseGraphicalMemory:
    points, table = plane(n, seed)
    options = {"tau_p": 1.0, "tau_a": 2.0, "max_dist": 4.0, "k": 5, **settings}
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[np.asarray(rows)], **options)
    memory.extend(np.arange(n))
    return memory


def shortest(memory, start, goal, by="distance"):
    graph = memory.to_networkx()
    try:
        return networkx.shortest_path_length(graph, start, goal, weight="weight" if by == "distance" else None)
    except networkx.NetworkXNoPath:
        return math.inf


@pytest.mark.parametrize("by", ["distance", "hops"])
def test_plans_between_nodes_are_shortest(by):
    memory = build()
    random = np.random.default_rng(0)
    for start, goal in random.integers(0, len(memory), (60, 2)).tolist():
        expected = shortest(memory, start, goal, by)
        if math.isinf(expected):
            with pytest.raises(sgm.NoPath, match=f"node {start} to node {goal}"):
                memory.plan_nodes(start, goal, by=by)
            continue
        plan = memory.plan_nodes(start, goal, by=by)
        assert plan.cost == pytest.approx(expected, rel=1e-6)
        assert plan.nodes[0] == start and plan.nodes[-1] == goal
        weights = dict(zip(zip(*memory.edges()[:2], strict=True), memory.edges().weight, strict=True))
        legs = list(zip(plan.nodes, plan.nodes[1:], strict=False))
        assert [weights[leg] for leg in legs] == plan.weights.tolist()
        assert plan.cost == pytest.approx(plan.weights.sum() if by == "distance" else len(legs))


def test_a_plan_from_observations_starts_and_ends_at_the_nearest_nodes():
    memory = build()
    table = memory.distance.matrix
    plan = memory.plan(3, 77)
    assert plan.nodes[0] == table[3, memory.nodes].argmin()
    assert plan.nodes[-1] == table[memory.nodes, 77].argmin()
    assert plan.start_distance == table[3, memory.nodes].min()
    assert plan.total == pytest.approx(plan.start_distance + plan.cost + plan.goal_distance)
    np.testing.assert_array_equal(plan.waypoints, memory.embeddings[plan.nodes])


def two_islands(far: float = 50.0) -> np.ndarray:
    """Rows 0–3 and 4–7 are two chains; row 8 is a start nearest to the wrong one, row 9 a goal."""
    table = np.full((10, 10), far, np.float32)
    for island in (range(4), range(4, 8)):
        for a in island:
            for b in island:
                table[a, b] = abs(a - b)
    table[8, [0, 5]] = 1.0, 1.25
    table[7, 9] = 1.0
    np.fill_diagonal(table, 0)
    return table


def test_the_next_nearest_node_is_used_when_the_nearest_has_no_path():
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(two_islands()), criterion="none", max_dist=1.5)
    memory.extend(np.arange(8))
    plan = memory.plan(8, 9)
    assert plan.nodes.tolist() == [5, 6, 7]
    assert (plan.start_distance, plan.cost, plan.goal_distance) == (1.25, 2.0, 1.0)


def test_no_path_is_an_error_unless_any_node_may_be_attached():
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(two_islands()), criterion="none", max_dist=1.5)
    memory.extend(np.arange(8))
    with pytest.raises(sgm.NoPath, match="within=math.inf"):
        memory.plan(0, 9)
    assert memory.plan(0, 9, within=math.inf).goal_distance == 50.0
    assert memory.plan_many([0, 8], [9, 9])[0] is None
    assert memory.plan_many([0, 8], [9, 9])[1].nodes.tolist() == [5, 6, 7]


@given(st.integers(0, 10_000))
def test_attaching_takes_the_fewest_candidates_that_have_a_path(seed):
    random = np.random.default_rng(seed)
    n = 14
    table = random.integers(1, 9, (n, n)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", max_dist=2.0, k=2)
    memory.extend(np.arange(n - 2))
    start, goal = n - 2, n - 1
    to_nodes, to_goal = table[start, : n - 2], table[: n - 2, goal]
    starts, goals = np.argsort(to_nodes, kind="stable"), np.argsort(to_goal, kind="stable")
    for rank in range(1, n - 1):
        costs = {
            (int(s), int(g)): to_nodes[s] + shortest(memory, int(s), int(g)) + to_goal[g]
            for s in starts[:rank]
            for g in goals[:rank]
        }
        if min(costs.values()) < math.inf:
            break
    plan = memory.plan(start, goal, within=math.inf)
    assert (int(plan.nodes[0]), int(plan.nodes[-1])) in costs
    assert plan.total == pytest.approx(min(costs.values()))


@given(st.integers(0, 10_000), st.sampled_from(["distance", "hops"]))
def test_attaching_to_all_candidates_finds_the_best_way_of_all(seed, by):
    random = np.random.default_rng(seed)
    n = 12
    table = random.integers(1, 9, (n, n)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", max_dist=4.0, k=2)
    memory.extend(np.arange(n - 2))
    start, goal = table[[n - 2], : n - 2], table[: n - 2, [n - 1]].T
    near = [np.flatnonzero(row[0] < 4.0).tolist() or [int(row.argmin())] for row in (start, goal)]
    ways = {
        (s, g): shortest(memory, s, g, by) + (start[0, s] + goal[0, g] if by == "distance" else 0)
        for s in near[0]
        for g in near[1]
    }
    first, last = (int(end[0]) for end in memory.attach(start, goal, by=by, candidates="all"))
    if min(ways.values()) == math.inf:
        assert (first, last) == (-1, -1)
    else:
        assert ways[first, last] == pytest.approx(min(ways.values()))


def test_batched_forms_agree_with_single_calls():
    memory = build()
    random = np.random.default_rng(1)
    starts, goals = random.integers(0, 150, (2, 40))
    for by in ("distance", "hops"):
        for plan, start, goal in zip(memory.plan_many(starts, goals, by=by), starts, goals, strict=True):
            single = memory.plan(start, goal, by=by)
            assert plan.nodes.tolist() == single.nodes.tolist() and plan.total == single.total
    at, to = random.integers(0, len(memory), (2, 50))
    for node, goal, following in zip(at, to, memory.next_nodes(at, to), strict=True):
        path = memory.plan_nodes(node, goal).nodes
        assert following == (goal if node == goal else path[1])


def test_an_agent_without_a_path_gets_minus_one():
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(two_islands()), criterion="none", max_dist=1.5)
    memory.extend(np.arange(8))
    assert memory.next_nodes([0, 2, 4], [3, 2, 3]).tolist() == [1, 2, -1]


def test_localisation_finds_the_nearest_node_as_start_and_as_goal():
    memory = build()
    table = memory.distance.matrix
    rows = np.arange(0, 150, 7)
    as_start, as_goal = memory.localise(rows), memory.localise(rows, as_goals=True)
    assert as_start.node.tolist() == table[np.ix_(rows, memory.nodes)].argmin(axis=1).tolist()
    assert as_goal.distance.tolist() == table[np.ix_(memory.nodes, rows)].min(axis=0).tolist()


@pytest.mark.parametrize("cutoff", [0.5, 1.0, 3.0])
def test_a_waypoint_is_reached_when_no_node_can_tell_the_difference(cutoff):
    memory = build()
    table = memory.distance.matrix[:, memory.nodes]
    random = np.random.default_rng(2)
    rows, waypoints = random.integers(0, 150, 400), random.integers(0, len(memory), 400)
    rows[:50] = memory.nodes[waypoints[:50]]
    expected = np.abs(table[rows] - table[memory.nodes[waypoints]]).max(axis=1) < np.float32(cutoff)
    np.testing.assert_array_equal(memory.reached(rows, waypoints, cutoff), expected)
    assert expected[:50].all() and not expected.all()


@pytest.mark.parametrize("cutoff", [0.5, 1.0, 3.0])
def test_over_neighbours_a_waypoint_is_reached_when_none_of_them_can_tell_the_difference(cutoff):
    memory = build()
    table, edges = memory.distance.matrix[:, memory.nodes], memory.edges()
    random = np.random.default_rng(2)
    rows, waypoints = random.integers(0, 150, 400), random.integers(0, len(memory), 400)
    rows[:50] = memory.nodes[waypoints[:50]]
    expected = []
    for row, waypoint in zip(rows, waypoints, strict=True):
        ends = edges.target[edges.source == waypoint], edges.source[edges.target == waypoint]
        asked = np.concatenate([[waypoint], *ends])
        gaps = np.abs(table[row, asked] - table[memory.nodes[waypoint], asked])
        expected.append(gaps.max() < np.float32(cutoff))
    found = memory.reached(rows, waypoints, cutoff, over="neighbours")
    np.testing.assert_array_equal(found, expected)
    assert not (memory.reached(rows, waypoints, cutoff) & ~found).any()  # who passes over all passes over some
    memory.remove(int(edges.source[0]), int(edges.target[0]))  # a removed edge goes on counting
    np.testing.assert_array_equal(memory.reached(rows, waypoints, cutoff, over="neighbours"), expected)
    with pytest.raises(sgm.InputError, match="'neighbours'"):
        memory.reached(rows, waypoints, over="some")


class Slanted:
    """A quasimetric of the plane, observations are points; `triangle` says so or not."""

    def __init__(self, triangle: bool) -> None:
        self.triangle = triangle

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        gap = goals[None].astype(np.float64) - starts[:, None]
        return (np.linalg.norm(gap, axis=2) + np.maximum(gap[..., 0], 0)).astype(np.float32)


@given(st.integers(0, 10_000), st.sampled_from([0.3, 1.0, 2.0]))
def test_the_triangle_inequality_and_neighbours_change_no_answer(seed, cutoff):
    random = np.random.default_rng(seed)
    points = random.uniform(0, 12, (80, 2)).astype(np.float32)
    waypoints = random.integers(0, 80, 60)
    places = points[waypoints] + random.normal(size=(60, 2)).astype(np.float32) * cutoff
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        for triangle, many in ((False, 10**9), (True, 10**9), (False, 0), (True, 0)):
            patch.setattr(fast_waypoints, "_MANY", many)
            memory = sgm.SparseGraphicalMemory(Slanted(triangle), criterion="none", max_dist=3.0, k=4)
            memory.extend(points)
            answers.append(memory.reached(places, waypoints, cutoff).tolist())
            memory.add(points[0] + 0.5)
            assert memory.reached(points[:5], np.arange(5), cutoff).all()
    assert answers[0] == answers[1] == answers[2] == answers[3]


@given(st.integers(0, 10_000), st.lists(st.sampled_from(["fail", "succeed", "restore", "add", "filter"]), max_size=25))
def test_kept_trees_equal_trees_computed_from_scratch(seed, edits):
    random = np.random.default_rng(seed)
    memory = build(60, seed, policy="belief" if seed % 2 else "first-failure")
    table = memory.distance.matrix
    for edit in edits:
        goals = random.integers(0, len(memory), 3)
        for goal in goals:
            memory._planner.tree(int(goal), "distance")
            memory._planner.tree(int(goal), "hops")
        edges = memory.edges()
        if edit in ("fail", "succeed") and len(edges.source):
            pick = random.integers(len(edges.source))
            memory.record(edges.source[pick], edges.target[pick], edit == "succeed")
        elif edit == "restore":
            memory.restore()
        elif edit == "add":
            memory.add(int(random.integers(len(table))))
        elif edit == "filter":
            memory.filter(int(random.integers(1, 7)))
        memory._planner.refresh()
        scratch = Planner(memory._graph, memory.policy)
        for by, goal in list(memory._planner.trees):
            np.testing.assert_array_equal(memory._planner.trees[by, goal].cost, scratch.tree(goal, by).cost)


def test_a_tree_survives_the_removal_of_an_edge_that_it_does_not_use():
    memory = build()
    goal = 5
    tree = memory._planner.tree(goal, "distance")
    edges = memory.edges()
    unused = np.flatnonzero(tree.next[edges.source] != edges.target)[0]
    used = np.flatnonzero(tree.next[edges.source] == edges.target)[0]
    memory.record(edges.source[unused], edges.target[unused], False)
    assert memory._planner.trees["distance", goal] is tree
    memory.record(edges.source[used], edges.target[used], False)
    assert ("distance", goal) not in memory._planner.trees


def test_the_tree_cache_is_bounded():
    memory = build()
    memory._planner._tree_bytes = 5 * 12 * len(memory)
    for goal in range(20):
        memory._planner.tree(goal, "distance")
    assert len(memory._planner.trees) == 4


def test_a_plan_prints_readably_and_as_a_dict():
    memory = build()
    plan = memory.plan(3, 77)
    text = str(plan)
    assert f"plan of {len(plan)} nodes" in text
    assert len(text.splitlines()) == len(plan) + 3
    assert plan.asdict()["nodes"] == plan.nodes.tolist()
    assert plan.asdict()["cost"] == plan.cost
