"""Why a plan is not shorter: the law that causes add up, and what they say."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sgm
from sgm.inspector.view import View
from sgm.inspector.why import KINDS, why
from tests.inspector.worlds import live_for, plane

POLICIES = st.sampled_from(
    ["first-failure", "guarded", "second-failure", sgm.Belief(), sgm.Belief(threshold=0.4), sgm.Belief(guard=True)]
)


def is_of(kind: str, edge: dict) -> bool:
    """Whether what a cause says of its edge is so."""
    tries, charged = edge["successes"] + edge["failures"], edge["price"] is not None and edge["price"] > edge["weight"]
    return {
        "removed": edge["state"] == 2 and edge["price"] is None,
        "guarded": edge["state"] == 1 and charged,
        "failed": edge["failures"] > 0 and charged,
        "untried": not tries and charged,
        "tried": edge["successes"] > 0 and not edge["failures"] and charged,
        "weight": True,
    }[kind]


@given(
    policy=POLICIES,
    nodes=st.integers(2, 30),
    seed=st.integers(0, 10_000),
    tries=st.integers(0, 120),
    k=st.sampled_from([2, 4, None]),
    by_hand=st.integers(0, 4),
)
def test_causes_add_up_exactly_to_how_much_longer_the_plan_is(policy, nodes, seed, tries, k, by_hand):
    memory = plane(nodes, seed=seed, k=k, policy=policy)
    live_for(memory, tries, seed=seed)
    for _ in range(min(by_hand, len(memory.edges().source))):
        memory.remove(*(int(end[0]) for end in memory.edges()[:2]))
    random = np.random.default_rng(seed)
    view = View(memory)
    for _ in range(5):
        start, goal = random.integers(nodes, size=2).tolist()
        told = why(view, start, goal)
        json.dumps(told, allow_nan=False)
        chosen, shortest = told["chosen"], told["shortest"]
        if chosen is None:
            with pytest.raises(sgm.NoPath):
                memory.plan_nodes(start, goal)
            assert told["difference"] is None and all(cause["steps"] is None for cause in told["causes"])
            assert shortest is None or told["causes"]
            continue
        plan = memory.plan_nodes(start, goal)
        assert chosen["nodes"] == plan.nodes.tolist()
        assert chosen["price"] == pytest.approx(plan.cost) and chosen["weight"] == pytest.approx(plan.steps.sum())
        assert sum(cause["steps"] for cause in told["causes"]) == told["difference"]
        assert all(cause["steps"] >= 0 for cause in told["causes"])
        assert told["difference"] == chosen["weight"] - shortest["weight"] >= 0
        assert shortest["price"] is None or shortest["price"] >= chosen["price"] - 1e-6
        assert told["same"] == (chosen["nodes"] == shortest["nodes"])
        assert bool(told["causes"]) == (not told["same"])
        assert all(is_of(cause["kind"], cause["edge"]) for cause in told["causes"])
        order = [[*KINDS, "weight"].index(cause["kind"]) for cause in told["causes"]]
        assert order == sorted(order) and order.count(order[-1] if order and order[-1] else -1) <= 1


def square(policy):
    """Nodes 0 to 3 around a square of side 3, and a diagonal from 0 to 2 of weight 4."""
    table = np.array([[0, 3, 4, 9], [9, 0, 3, 9], [9, 9, 0, 3], [3, 9, 9, 0]], np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", max_dist=5.0, k=None, policy=policy)
    memory.extend(np.arange(4))
    return memory


def test_an_edge_that_was_removed_is_the_cause():
    memory = square("first-failure")
    assert why(View(memory), 0, 2)["same"]
    memory.record(0, 2, False)
    told = why(View(memory), 0, 2)
    assert (told["chosen"]["nodes"], told["shortest"]["nodes"]) == ([0, 1, 2], [0, 2])
    assert (told["chosen"]["weight"], told["shortest"]["weight"], told["shortest"]["price"]) == (6.0, 4.0, None)
    (cause,) = told["causes"]
    assert (cause["kind"], cause["steps"], cause["edge"]["source"], cause["edge"]["target"]) == ("removed", 2.0, 0, 2)
    assert told["difference"] == 2.0 and "cannot be taken" in told["text"]


def test_an_edge_that_failed_but_stands_is_the_cause_under_belief():
    memory = square(sgm.Belief(max_steps=1.0))
    for _ in range(4):
        memory.record(0, 2, False)
    told = why(View(memory), 0, 2)
    assert [(cause["kind"], cause["steps"]) for cause in told["causes"]] == [("failed", 2.0)]
    assert told["shortest"]["price"] == pytest.approx(4.0 + 5.0) and told["chosen"]["price"] == pytest.approx(6.0 + 2.0)


def test_an_edge_that_was_never_tried_is_the_cause_where_others_are_known_to_work():
    memory = square(sgm.Belief(max_steps=10.0))
    for _ in range(9):
        memory.record(0, 1, True)
        memory.record(1, 2, True)
    told = why(View(memory), 0, 2)
    assert [(cause["kind"], cause["steps"]) for cause in told["causes"]] == [("untried", 2.0)]
    assert "never tried" in told["causes"][0]["text"]


def test_without_a_plan_the_removed_edges_of_the_shortest_way_are_named():
    memory = square("first-failure")
    memory.remove(2, 3)
    told = why(View(memory), 0, 3)
    assert told["chosen"] is None and told["shortest"]["nodes"] == [0, 2, 3] and told["difference"] is None
    assert [(cause["kind"], cause["edge"]["source"]) for cause in told["causes"]] == [("removed", 2)]
    assert "needs edges that were removed" in told["text"]


def test_removed_edges_are_counted_together_after_the_third():
    memory = plane(60, policy="first-failure", k=None)
    edges = memory.edges()
    for u, v in list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))[::2]:
        memory.remove(u, v)
    view, most = View(memory), 0
    for start in range(0, len(memory), 4):
        for goal in range(len(memory)):
            causes = why(view, start, goal)["causes"]
            assert sum(cause["kind"] == "removed" for cause in causes) <= 4
            most = max([most, *(cause["others"] for cause in causes)])
    assert most > 0


def test_kinds_share_the_difference_by_what_they_add_to_the_price():
    memory = square(sgm.Belief(max_steps=3.0))
    memory.record(0, 2, False)
    for _ in range(2):
        memory.record(0, 1, True)
        memory.record(1, 2, True)
    told = why(View(memory), 0, 2)
    (cause,) = told["causes"]  # two edges that worked twice add 2 steps to the plan, the one that failed adds 6
    assert (cause["kind"], cause["steps"]) == ("failed", 2.0) and told["difference"] == 2.0
    assert told["shortest"]["price"] == pytest.approx(10.0) and told["chosen"]["price"] == pytest.approx(8.0)


def test_from_a_node_to_itself_there_is_nothing_to_explain():
    told = why(View(plane()), 4, 4)
    assert told["same"] and told["difference"] == 0 and not told["causes"] and told["chosen"]["nodes"] == [4]
    assert math.isclose(told["chosen"]["weight"], 0.0)
    with pytest.raises(sgm.UnknownNode):
        why(View(plane()), 0, 60)
