"""Cleanup: what failures and successes do to edges, and what survives them."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from tests.conftest import plane
from tests.memory.oracle import edge_list


def ring(policy, n=6, **settings) -> sgm.SparseGraphicalMemory:
    """N nodes in a directed ring of weight 2, and one shortcut from 0 to 2 of weight 1."""
    table = np.full((n, n), 50, np.float32)
    for node in range(n):
        table[node, (node + 1) % n] = 2.0
    table[0, 2] = 1.0
    np.fill_diagonal(table, 0)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", policy=policy, **settings)
    memory.extend(np.arange(n))
    return memory


def test_first_failure_removes_an_edge_at_once_and_plans_go_round_it():
    memory = ring("first-failure")
    assert memory.plan(0, 2).nodes.tolist() == [0, 2]
    assert memory.record(0, 2, reached=True) is False
    assert memory.record(0, 2, reached=False) is True
    assert memory.plan(0, 2).nodes.tolist() == [0, 1, 2]
    assert edge_list(memory.removed()) == [(0, 2, 1.0)]
    assert memory.evidence(0, 2) == sgm.Evidence(successes=1, failures=1, streak=1, removed_at=2)
    assert memory.evidence(0, 2).attempts == 2


def test_second_failure_needs_two_without_a_success_between():
    memory = ring("second-failure")
    outcomes = [memory.record(0, 2, reached) for reached in (False, True, False, False)]
    assert outcomes == [False, False, False, True]


def test_belief_prices_edges_by_the_expected_steps_to_get_through():
    memory = ring(sgm.Belief(max_steps=10.0))
    plan = memory.plan(0, 2)
    assert (plan.weights.tolist(), plan.steps.tolist(), plan.cost, plan.length) == ([11.0], [1.0], 11.0, 1.0)
    assert "plan of 2 nodes, 1.0 steps" in str(plan)
    memory.record(0, 2, True)
    assert memory.plan(0, 2).weights.tolist() == [1.0 + 10.0 * (1 / 2)]
    for _ in range(3):
        memory.record(0, 2, False)
    # Beta(2, 4): three tries in all go wrong before one works, on average two for each success.
    assert memory.plan(0, 2, by="hops").weights.tolist() == [1.0 + 10.0 * 4 / 2]
    assert memory.plan_nodes(0, 2).nodes.tolist() == [0, 2]
    memory.record_many([0, 1, 0, 1], [1, 2, 1, 2], [True] * 4)
    assert memory.plan_nodes(0, 2).nodes.tolist() == [0, 1, 2]


def test_belief_drops_an_edge_when_it_probably_does_not_work():
    memory = ring(sgm.Belief(threshold=0.15))
    removed = [memory.record(0, 2, False) for _ in range(5)]
    # (1 + 0) / (2 + f) falls under 0.15 at the fifth failure.
    assert removed == [False, False, False, False, True]
    assert ring("belief").policy.max_steps == 30.0


@pytest.mark.parametrize("policy", [sgm.FirstFailure(guard=True), sgm.Belief(threshold=0.4, guard=True)])
def test_the_guard_re_prices_an_edge_that_holds_the_graph_together(policy):
    memory = ring(policy)
    assert memory.largest_part() == 6
    assert memory.record(3, 4, False) is False
    assert memory.largest_part() == 6
    assert memory.evidence(3, 4).guarded
    assert memory.plan_nodes(3, 4).weights.tolist() == [2.0 + 30.0 * 2]
    assert memory.plan_nodes(3, 4, by="hops").cost == 2.0
    assert memory.record(0, 2, False) is True
    memory.record(3, 4, True)
    assert not memory.evidence(3, 4).guarded


def test_a_policy_without_a_guard_loaded_over_one_with_a_guard_charges_no_guarded_price(tmp_path):
    memory = ring(sgm.FirstFailure(guard=True))
    assert memory.record(3, 4, reached=False) is False
    guarded = memory.plan_nodes(3, 4)
    assert guarded.weights.tolist() == [2.0 + 30.0 * 2]
    memory.save(tmp_path / "m.sgm")
    plain = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", None, policy="first-failure")
    assert plain.plan_nodes(3, 4).weights.tolist() == [2.0]
    assert plain.plan_nodes(3, 4, by="hops").weights.tolist() == [2.0]
    again = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", None)
    assert again.plan_nodes(3, 4).weights.tolist() == guarded.weights.tolist()


def two_rooms(policy) -> sgm.SparseGraphicalMemory:
    """Two rings of three nodes, joined both ways by 2 → 3 and 3 → 2, and by longer edges that k = 2 leaves out."""
    table = np.full((6, 6), 50, np.float32)
    for node in range(3):
        table[node, (node + 1) % 3] = table[3 + node, 3 + (node + 1) % 3] = 1.0
        table[node, (node + 2) % 3] = table[3 + node, 3 + (node + 2) % 3] = 2.0
    table[2, 3] = table[3, 2] = 1.5
    table[0, 5], table[1, 4], table[5, 1] = 5.0, 6.0, 7.0
    np.fill_diagonal(table, 0)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", k=2, policy=policy)
    memory.extend(np.arange(6))
    return memory


SPARES = sgm.FirstFailure(guard=True, spares=True)


def test_where_the_guard_keeps_an_edge_the_shortest_one_that_leads_round_it_is_let_in():
    memory = two_rooms(SPARES)
    assert (0, 5) not in zip(memory.edges().source.tolist(), memory.edges().target.tolist(), strict=True)
    assert memory.record(2, 3, False) is False
    assert memory.evidence(2, 3).guarded and memory.evidence(0, 5) == sgm.Evidence(spare=True)
    assert memory.plan_nodes(2, 3).nodes.tolist() == [2, 0, 5, 3]
    assert memory.events().kind.tolist() == ["failed", "guarded", "spare"]
    assert (0, 5) not in memory.tried() and memory.stats().spare_edges == 1
    plain = two_rooms("guarded")
    plain.record(2, 3, False)
    assert plain.plan_nodes(2, 3).nodes.tolist() == [2, 3]


def test_a_spare_holds_nothing_until_it_has_been_reached():
    memory = two_rooms(SPARES)
    memory.record(2, 3, False)
    assert memory.record(0, 5, False) is True and memory.evidence(0, 5).spare
    assert memory.record(2, 3, False) is False and memory.evidence(1, 4).spare
    memory.record(1, 4, True)
    assert memory.record(2, 3, False) is True
    assert memory.record(1, 4, False) is False and memory.evidence(1, 4).guarded
    assert memory.largest_part() == 6


def test_spares_are_stored_replayed_and_folded(tmp_path):
    memory = two_rooms(SPARES)
    memory.record(2, 3, False)
    memory.record(3, 2, False)
    past = memory.at(2)
    assert not past.evidence(0, 5).spare and past.plan_nodes(2, 3).nodes.tolist() == [2, 3]
    memory.save(tmp_path / "m.sgm")
    for keep in (None, 0):
        with sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", memory.distance, keep_events=keep) as live:
            for _ in range(5000 if keep == 0 else 0):
                live.record(0, 1, True)
        again = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", None)
        assert again.policy == memory.policy
        assert again.evidence(0, 5) == again.evidence(5, 1) == sgm.Evidence(spare=True)
        assert again.plan_nodes(2, 3).nodes.tolist() == [2, 0, 5, 3]
    assert len(again.events().kind) < 5000


def test_a_failed_write_leaves_no_spare_behind(tmp_path, monkeypatch):
    two_rooms(SPARES).save(tmp_path / "m.sgm")
    with sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", two_rooms(SPARES).distance) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(memory._store, "write_log", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
            with pytest.raises(OSError, match="disk full"):
                memory.record(2, 3, False)
        assert memory.evidence(0, 5) == memory.evidence(2, 3) == sgm.Evidence()
        assert memory.plan_nodes(2, 3).nodes.tolist() == [2, 3]


def test_spares_need_a_guard():
    with pytest.raises(sgm.InputError, match="spares is True without a guard"):
        sgm.FirstFailure(spares=True)


def test_a_guarded_cleanup_never_shrinks_the_largest_part():
    points, table = plane(120)
    random = np.random.default_rng(0)
    sizes = {}
    for guard in (False, True):
        memory = sgm.SparseGraphicalMemory(
            sgm.TableDistance(table), lambda rows: points[rows], tau_p=1.0, policy=sgm.FirstFailure(guard=guard)
        )
        memory.extend(np.arange(120))
        before = memory.largest_part()
        for _ in range(250):
            edges = memory.edges()
            pick = random.integers(len(edges.source))
            memory.record(edges.source[pick], edges.target[pick], False)
        sizes[guard] = before, memory.largest_part()
    assert sizes[True][0] == sizes[True][1]
    assert sizes[False][1] < sizes[False][0]


def test_a_rule_of_ones_own_is_a_subclass():
    class Patient(sgm.CleanupPolicy):
        def __init__(self, patience):
            super().__init__()
            object.__setattr__(self, "patience", patience)

        def gives_up(self, evidence):
            return evidence.failures >= self.patience

    memory = ring(Patient(3))
    assert [memory.record(0, 2, reached) for reached in (False, True, False, True, False)] == [False] * 4 + [True]


def test_memories_are_guarded_unless_they_are_told_otherwise():
    distance = sgm.TableDistance(np.zeros((1, 1)))
    guarded = sgm.FirstFailure(guard=True, max_steps=30.0)
    assert sgm.SparseGraphicalMemory(distance).policy == ring("guarded").policy == guarded
    assert sgm.SparseGraphicalMemory(distance, policy="first-failure").policy == sgm.FirstFailure(max_steps=30.0)
    memory = ring("guarded")
    assert memory.record(0, 2, False) and not memory.record(3, 4, False)
    assert memory.plan(2, 5).nodes.tolist() == [2, 3, 4, 5]


def test_an_edge_holds_together_what_falls_apart_without_it():
    found = set()
    for seed in range(30):
        random = np.random.default_rng(seed)
        table = np.where(random.random((14, 14)) < 0.17, random.uniform(1, 5, (14, 14)), 50).astype(np.float32)
        memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", k=None, policy="first-failure")
        memory.extend(np.arange(14))
        edges = memory.edges()
        for place in random.permutation(len(edges.source))[:4].tolist():
            memory.record(int(edges.source[place]), int(edges.target[place]), False)
        planner, part = memory._planner, memory.largest_part()
        for u, v in zip(memory.edges().source, memory.edges().target, strict=True):
            edge = memory._edge(u, v)
            holds = planner.holds_together(edge)
            assert holds == (planner.largest_part(without=[edge]) != part)
            found.add(holds)
    assert found == {True, False}


def test_removed_edges_come_back_when_restored():
    memory = ring("first-failure")
    before = edge_list(memory.edges())
    memory.record(0, 2, False)
    memory.record(4, 5, False)
    assert memory.restore(0, 2) == 1
    assert memory.plan(0, 2).nodes.tolist() == [0, 2]
    assert memory.evidence(0, 2) == sgm.Evidence(failures=1)
    assert memory.restore() == 1 and memory.restore() == 0
    assert edge_list(memory.edges()) == before


def test_removed_edges_stay_removed_and_the_filter_true_when_observations_are_added():
    points, table = plane(200)
    how = {"tau_p": 1.0, "max_dist": 6.0, "k": 4, "policy": "first-failure"}
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[rows], **how)
    memory.extend(np.arange(100))
    edges = memory.edges()
    gone = set()
    for pick in np.random.default_rng(0).permutation(len(edges.source))[:40]:
        memory.record(edges.source[pick], edges.target[pick], False)
        gone.add((int(edges.source[pick]), int(edges.target[pick])))
    memory.extend(np.arange(100, 200))
    full = sgm.SparseGraphicalMemory(sgm.TableDistance(table), lambda rows: points[rows], **how)
    full.extend(np.arange(200))
    expected = [edge for edge in edge_list(full.edges()) if edge[:2] not in gone]
    assert edge_list(memory.edges()) == expected
    assert {edge[:2] for edge in edge_list(memory.removed())} == gone


def test_many_tries_at_once_are_the_same_as_one_by_one():
    random = np.random.default_rng(3)
    one, many = ring("second-failure"), ring("second-failure")
    edges = one.edges()
    picks = random.integers(0, len(edges.source), 40)
    u, v, reached = edges.source[picks], edges.target[picks], random.random(40) < 0.4
    singles = [one.record(a, b, bool(c)) for a, b, c in zip(u, v, reached, strict=True)]
    assert many.record_many(u, v, reached) == singles
    assert edge_list(one.edges()) == edge_list(many.edges())
    assert one.records == many.records == 40
    assert [one.evidence(a, b) for a, b in zip(u, v, strict=True)] == [
        many.evidence(a, b) for a, b in zip(u, v, strict=True)
    ]


def test_a_late_try_of_a_removed_edge_is_counted_and_does_not_bring_it_back():
    memory = ring("first-failure")
    memory.record(0, 2, False)
    assert memory.record(0, 2, False) is False
    memory.record(0, 2, True)
    assert memory.evidence(0, 2) == sgm.Evidence(successes=1, failures=2, streak=0, removed_at=1)
    assert (0, 2, 1.0) not in edge_list(memory.edges())
