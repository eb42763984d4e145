"""The log of events: what happened to edges is kept, and the memory as it was can be rebuilt."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import sgm
from sgm.memory import events as event_log
from tests.conftest import plane
from tests.memory.oracle import edge_list

SGM = sgm.SparseGraphicalMemory
SETTINGS = {"tau_p": 1.0, "tau_a": 2.0, "max_dist": 5.0, "k": 4}


def world(number=300, side=20):
    points, table = plane(number, side=side)
    return sgm.TableDistance(table), lambda rows: points[np.asarray(rows, int)]


def facts(memory: SGM) -> dict:
    """Everything about a memory that events change."""
    return {
        "nodes": memory.nodes.tolist(),
        "assignment": memory.assignment.tolist(),
        "edges": edge_list(memory.edges()),
        "unfiltered": edge_list(memory.edges(filtered=False)),
        "removed": edge_list(memory.removed()),
        "evidence": memory.tried(),
        "records": memory.records,
    }


def life(memory: SGM, steps: int = 120, seed: int = 0):
    """Random calls; yields after each, with whether it could log an event."""
    random = np.random.default_rng(seed)
    for step in range(steps):
        kind = random.integers(6) if len(memory) else 0
        edges = memory.edges(filtered=False)
        if kind == 0:
            memory.extend(random.integers(0, 300, 8), episode=int(random.integers(3)))
        elif kind == 1 and step % 3 == 0:
            memory.restore()
        elif kind == 2 and step % 3 == 0 and len(edges.source):
            memory.remove(int(edges.source[step % len(edges.source)]), int(edges.target[step % len(edges.source)]))
        elif len(edges.source):
            chosen = random.integers(min(8, len(edges.source)), size=int(random.integers(1, 4)))
            outcomes = random.random(len(chosen)) < 0.2
            memory.record_many(edges.source[chosen], edges.target[chosen], outcomes, episode=step)
        yield step


POLICIES = ["first-failure", "second-failure", sgm.Belief(threshold=0.3), sgm.FirstFailure(guard=True)]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_memory_as_it_was_after_any_event_can_be_rebuilt(policy):
    memory = SGM(*world(), policy=policy, **SETTINGS)
    past, before = {}, {}
    for _ in life(memory):
        number = len(memory.events().sequence)
        if number:
            past.setdefault(number, facts(memory))  # later calls that log nothing belong to the time after this event
        else:
            before = facts(memory)
    kinds = set(memory.events().kind.tolist())
    assert len(past) > 60 and kinds >= {"reached", "failed", "removed", "restored", "walked"}
    assert ("guarded" in kinds) == getattr(policy, "guard", False)
    assert facts(memory.at(0)) == before
    for event, expected in past.items():
        assert facts(memory.at(event)) == expected


def test_an_event_says_when_what_happened_to_which_edge_in_which_episode():
    memory = SGM(*world(), **SETTINGS)
    memory.extend(np.arange(100))
    u, v = (int(end[0]) for end in memory.edges()[:2])
    a, b = (int(end[9]) for end in memory.edges()[:2])
    memory.record(u, v, True, episode=7)
    memory.record(u, v, False)
    memory.record_many([a, u], [b, v], [True, True], episode=[8, 9])
    memory.restore(u, v)
    events = memory.events()
    assert events.kind.tolist() == ["reached", "failed", "removed", "reached", "reached", "restored"]
    assert events.sequence.tolist() == [1, 2, 3, 4, 5, 6]
    assert events.episode.tolist() == [7, -1, -1, 8, 9, -1]
    assert list(zip(events.source.tolist(), events.target.tolist(), strict=True)) == [
        (u, v),
        (u, v),
        (u, v),
        (a, b),
        (u, v),
        (u, v),
    ]
    assert (np.diff(events.time) >= 0).all() and events.time[0] > 1.7e9
    assert memory.events(a, b).sequence.tolist() == [4]


def test_restoring_an_edge_does_not_forget_when_it_was_removed():
    memory = SGM(*world(), **SETTINGS)
    memory.extend(np.arange(100))
    u, v = (int(end[0]) for end in memory.edges()[:2])
    memory.record(u, v, False)
    memory.restore()
    assert memory.evidence(u, v).removed_at is None
    assert memory.events(u, v).kind.tolist() == ["failed", "removed", "restored"]
    assert memory.at(2).evidence(u, v).removed_at == 1
    assert edge_list(memory.at(2).removed())[0][:2] == (u, v) and not len(memory.at(3).removed().source)


def test_an_edge_that_an_episode_walked_later_was_longer_before():
    memory = SGM(*world(), **{**SETTINGS, "criterion": "perceptual"})
    memory.extend(np.arange(50))
    u, v, weight = next(edge for edge in edge_list(memory.edges(filtered=False)) if edge[2] > 2)
    memory.record(u, v, True)
    memory.extend(memory.nodes[[u, v]], episode=0)
    assert memory.events().kind.tolist() == ["reached", "walked"]
    now = {edge[:2]: edge[2] for edge in edge_list(memory.edges(filtered=False))}
    before = {edge[:2]: edge[2] for edge in edge_list(memory.at(1).edges(filtered=False))}
    assert now[(u, v)] == 1 and before[(u, v)] == weight


def test_the_past_is_read_only_and_can_be_saved(tmp_path):
    memory = SGM(*world(), **SETTINGS)
    for _ in life(memory, 40):
        pass
    past = memory.at(10)
    u, v = (int(end[0]) for end in past.edges(filtered=False)[:2])
    present = facts(memory)
    for call in (
        lambda: past.extend([1]),
        lambda: past.record(u, v, True),
        lambda: past.restore(),
        lambda: past.filter(1),
        lambda: past.attributes.update({"x": np.zeros(len(past))}),
    ):
        with pytest.raises(sgm.InputError, match="as it was after event 10"):
            call()
    assert facts(memory) == present
    past.plan_nodes(0, 0)
    past.save(tmp_path / "past.sgm")
    again = SGM.load(tmp_path / "past.sgm", memory.distance)
    assert facts(again) == facts(past) and len(again.events().sequence) == 10
    for event in (-1, len(memory.events().sequence) + 1):
        with pytest.raises(sgm.InputError, match="event is"):
            memory.at(event)


@pytest.mark.parametrize("live", [False, True])
def test_old_events_are_folded_into_evidence_and_nothing_else_changes(tmp_path, monkeypatch, live):
    monkeypatch.setattr(event_log, "_CHUNK", 8)
    distance, features = world()
    path = tmp_path / "m.sgm"
    full = SGM(distance, features, **SETTINGS)
    if live:
        short = SGM.open(path, distance, features, keep_events=20, **SETTINGS)
    else:
        short = SGM(distance, features, keep_events=20, **SETTINGS)
    for _ in zip(life(full), life(short), strict=True):
        assert facts(short) == facts(full)
        if live:
            assert facts(SGM.load(path, distance)) == facts(full)
    last = len(full.events().sequence)
    kept = short.events()
    assert 20 <= len(kept.sequence) < 40 < last and kept.sequence[-1] == last
    for event in kept.sequence.tolist():
        assert facts(short.at(event)) == facts(full.at(event))
    first = int(kept.sequence[0]) - 1
    assert facts(short.at(first)) == facts(full.at(first))
    with pytest.raises(sgm.InputError, match=f"the first {first} are folded, see keep_events"):
        short.at(first - 1)
    short.close()
    if live:
        with SGM.open(path, distance, features, keep_events=5) as again:
            assert facts(again) == facts(full)
            for _ in zip(life(again, seed=1), life(full, seed=1), strict=True):
                assert facts(again) == facts(full)
        assert facts(SGM.load(path, distance)) == facts(full)


def test_a_saved_log_comes_back(tmp_path):
    memory = SGM(*world(), **SETTINGS)
    for _ in life(memory):
        pass
    memory.save(tmp_path / "m.sgm")
    back = SGM.load(tmp_path / "m.sgm", memory.distance)
    for one, other in zip(memory.events(), back.events(), strict=True):
        np.testing.assert_array_equal(one, other)
    for event in range(0, len(memory.events().sequence), 7):
        assert facts(memory.at(event)) == facts(back.at(event))


def test_a_record_that_fails_leaves_no_event_behind():
    class Choosy(sgm.CleanupPolicy):
        def gives_up(self, evidence):
            raise RuntimeError("cannot decide")

    memory = SGM(*world(), policy=Choosy(), **SETTINGS)
    memory.extend(np.arange(100))
    u, v = (int(end[0]) for end in memory.edges()[:2])
    before = copy.deepcopy(facts(memory))
    with pytest.raises(RuntimeError):
        memory.record_many([u, u], [v, v], [True, False])
    assert facts(memory) == before and not len(memory.events().sequence)
    memory.record(u, v, True)
    assert len(memory.events().sequence) == 1


def test_a_saved_memory_whose_events_are_all_folded_still_knows_how_large_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "_CHUNK", 1)
    table = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), tau_a=0.5, tau_p=None, keep_events=0)
    memory.extend([0, 1])
    memory.record(0, 1, True)
    memory.extend([2])
    memory.restore()
    assert not len(memory.events().sequence) and len(memory.assignment) == 3
    memory.save(tmp_path / "m.sgm")
    again = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", memory.distance)
    assert len(memory.at(1).assignment) == len(again.at(1).assignment) == 2
