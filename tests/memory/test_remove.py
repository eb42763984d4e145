"""Removing an edge by hand: an event like any other."""

from __future__ import annotations

import os
import sqlite3

import numpy as np
import pytest

import sgm
from sgm.memory import events as event_log
from tests.memory.test_events import SETTINGS, facts, world

SGM = sgm.SparseGraphicalMemory


def built(policy="guarded", **options) -> SGM:
    memory = SGM(*world(), policy=policy, **SETTINGS, **options)
    memory.extend(np.arange(100))
    return memory


def an_edge(memory: SGM, place: int = 0) -> tuple[int, int]:
    return int(memory.edges().source[place]), int(memory.edges().target[place])


def test_an_edge_removed_by_hand_is_gone_from_edges_and_plans_and_logged():
    memory = built()
    u, v = an_edge(memory)
    assert memory.plan_nodes(u, v).nodes.tolist() == [u, v]
    assert memory.remove(u, v)
    assert (u, v) not in set(zip(*memory.edges()[:2], strict=True))
    assert memory.plan_nodes(u, v).nodes.tolist() != [u, v]
    events = memory.events(u, v)
    assert events.kind.tolist() == ["removed"] and events.episode.tolist() == [-1]
    assert not memory.remove(u, v) and len(memory.events().sequence) == 1
    assert memory.restore(u, v) == 1 and memory.plan_nodes(u, v).nodes.tolist() == [u, v]


def test_no_policy_and_no_guard_is_asked():
    line = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0))).astype(np.float32)
    memory = SGM(sgm.TableDistance(line), criterion="none", max_dist=1.5, k=None, policy="guarded")
    memory.extend(np.arange(3))
    assert not memory.record(0, 1, False) and memory.evidence(0, 1).guarded
    assert memory.remove(0, 1)
    known = memory.evidence(0, 1)
    assert (known.successes, known.failures, known.guarded, known.removed_at) == (0, 1, False, 1)


def test_evidence_stays_and_an_edge_never_tried_was_not_tried_by_removing_it():
    memory = built()
    (u, v), (a, b) = an_edge(memory), an_edge(memory, 1)
    memory.record(u, v, True)
    memory.remove(u, v)
    memory.remove(a, b)
    assert memory.evidence(u, v).successes == 1 and memory.evidence(u, v).removed_at == 1
    assert set(memory.tried()) == {(u, v)}
    assert memory.records == 1


def test_the_memory_before_and_after_can_be_rebuilt():
    memory = built()
    u, v = an_edge(memory)
    before = facts(memory)
    memory.remove(u, v)
    after = facts(memory)
    memory.restore(u, v)
    assert facts(memory.at(0)) == before
    assert facts(memory.at(1)) == after
    assert facts(memory.at(2)) == facts(memory)
    with pytest.raises(sgm.InputError, match="as it was after event 1"):
        memory.at(1).remove(u, v)


def test_unknown_edges_and_nodes_are_refused():
    memory = built()
    u = int(memory.edges().source[0])
    far = next(
        v
        for v in range(len(memory))
        if v != u and v not in memory.edges(filtered=False).target[memory.edges(filtered=False).source == u]
    )
    with pytest.raises(sgm.UnknownEdge, match="no edge leads"):
        memory.remove(u, far)
    with pytest.raises(sgm.UnknownNode):
        memory.remove(0, len(memory))
    with pytest.raises(sgm.UnknownNode):
        memory.remove(0.5, 1)
    assert not len(memory.events().sequence)


def test_a_live_file_has_it_when_the_call_returns(tmp_path):
    path = tmp_path / "m.sgm"
    built().save(path)
    with SGM.open(path, world()[0]) as live:
        u, v = an_edge(live)
        assert live.remove(u, v)
        assert facts(SGM.load(path, None)) == facts(live)
    assert os.listdir(tmp_path) == ["m.sgm"]
    back = SGM.load(path, None)
    assert back.evidence(u, v).removed_at == 0 and back.events(u, v).kind.tolist() == ["removed"]


def test_a_failed_write_takes_the_removal_back(tmp_path):
    path = tmp_path / "m.sgm"
    built().save(path)
    with SGM.open(path, world()[0]) as live:
        before, u_v = facts(live), an_edge(live)
        live._store._connection.execute("PRAGMA query_only = ON")  # as a disk would refuse
        with pytest.raises(sgm.StoreError, match="as they were before the call"):
            live.remove(*u_v)
        assert facts(live) == before and not len(live.events().sequence)
        live._store._connection.execute("PRAGMA query_only = OFF")
        assert live.remove(*u_v)
    assert facts(SGM.load(path, None))["removed"] == [
        (*u_v, pytest.approx(facts(SGM.load(path, None))["removed"][0][2]))
    ]


def test_removals_before_the_first_try_survive_folding(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "_CHUNK", 4)
    path = tmp_path / "m.sgm"
    built().save(path)
    with SGM.open(path, world()[0], keep_events=2) as live:
        first = an_edge(live)
        live.remove(*first)
        for place in range(10):
            live.record(*an_edge(live, place), True)
        assert live.events().sequence[0] > 1 and live.evidence(*first).removed_at == 0
        expected = facts(live)
    assert facts(SGM.load(path, None)) == expected


def test_a_file_can_be_opened_without_its_distance_to_change_edges_by_hand(tmp_path):
    path = tmp_path / "m.sgm"
    built(sgm.Belief(threshold=0.3)).save(path)
    before = SGM.load(path, None)
    with SGM.open(path, None) as live:
        assert live.remove(*an_edge(live))
        with pytest.raises(sgm.InputError, match="built with features"):
            live.extend(np.arange(3))
    after = SGM.load(path, None)
    assert (after.policy, after.fingerprint, after.settings) == (before.policy, before.fingerprint, before.settings)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with pytest.raises(sgm.StoreError, match="needs a distance"):
        SGM.open(tmp_path / "none.sgm", None)
    assert sorted(os.listdir(tmp_path)) == ["m.sgm"]


def test_no_way_leads_over_a_removed_edge_that_was_the_only_one():
    distance = sgm.TableDistance(np.array([[2.0]], np.float32))
    memory = sgm.SparseGraphicalMemory(distance, tau_a=0.0, tau_p=None, max_dist=0.0, k=None, policy="first-failure")
    memory.extend([0, 0], episode=1)
    assert memory.next_nodes([0], [1]).tolist() == [1]
    memory.remove(0, 1)
    for by in ("distance", "hops"):
        assert memory.next_nodes([0], [1], by=by).tolist() == [-1]  # SciPy up to 1.15 names a predecessor here
