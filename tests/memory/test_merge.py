"""Merging two memories is a valid build: the rule of merging holds, edges are those of the distance, no try is lost."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm
from sgm.memory.check import check
from tests.conftest import tables


def edges_of(memory, filtered=True):
    return {(int(u), int(v)): float(w) for u, v, w in zip(*memory.edges(filtered), strict=True)}


@st.composite
def streams(draw):
    """A table, an order of its observations, where it is cut in two, episodes of both halves, and settings."""
    table = draw(tables())
    order = draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=40))
    cut = draw(st.integers(0, len(order)))
    chosen = {
        "criterion": draw(st.sampled_from(["two-way", "incoming", "perceptual", "none"])),
        "scope": draw(st.sampled_from(["neighbors", "memory"])),
        "k": draw(st.sampled_from([None, 2, 5])),
        "policy": draw(st.sampled_from(["first-failure", "guarded", "belief"])),
        "reversible": draw(st.sampled_from([None, 1.2])),
        "tau_a": draw(st.sampled_from([0.5, 2.0])),
        "tau_p": 0.5 if draw(st.booleans()) else None,
        "max_dist": 3.0,
        "keep_observations": draw(st.booleans()),
    }
    if chosen["criterion"] == "perceptual":
        chosen["tau_p"] = 0.5
    return table, np.array(order), cut, draw(st.booleans()), chosen, draw(st.integers(0, 2**32 - 1))


def built(distance, rows, chosen, episodes, seed):
    memory = sgm.SparseGraphicalMemory(distance, **chosen)
    if len(rows):
        memory.extend(rows, episode=0 if episodes else None, attributes={"row": np.asarray(rows)})
    dice = np.random.default_rng(seed)
    edges = memory.edges(filtered=False)
    for edge in dice.integers(len(edges.source), size=12) if len(edges.source) else ():
        memory.record(edges.source[edge], edges.target[edge], bool(dice.random() < 0.4))
    return memory


def attempts(memory):
    return sum(known.attempts for known in memory.tried().values())


@given(streams())
def test_two_halves_of_a_stream_merge_into_a_valid_build(drawn):
    table, order, cut, episodes, chosen, seed = drawn
    distance = sgm.TableDistance(table)
    first, second = order[:cut], order[cut:]
    mine = built(distance, first, chosen, episodes, seed)
    other = built(distance, second, chosen, episodes, seed + 1)
    tries = attempts(mine) + attempts(other)
    # What extend makes of the observations that the other's nodes keep.
    expected = built(distance, first, chosen, episodes, seed)
    kept = second[other.nodes]
    if len(kept):
        expected.extend(kept, attributes={"row": kept})
    report = mine.merge(other)
    assert np.array_equal(mine.embeddings, expected.embeddings)
    assert np.array_equal(report.assignment, expected.assignment[len(first) :])
    assert report.added + report.merged == len(other)
    assert_edges(mine, other, expected, report)
    assert attempts(mine) + report.without_edge == tries and report.records + report.without_edge == attempts(other)
    assert mine.records == attempts(mine)
    # Every observation ever given has a node, and every node keeps one of its own.
    assert np.array_equal(mine.assignment[cut:], report.assignment[other.assignment])
    assert np.array_equal(mine.attributes["row"], order[mine.nodes]) if len(mine) else len(order) == 0
    if chosen["keep_observations"] and len(mine):
        assert np.array_equal(mine.observations, order[mine.nodes])


def pairs(memory):
    return set(zip(memory._graph.source.values.tolist(), memory._graph.target.values.tolist(), strict=True))


def assert_edges(mine, other, expected, report):
    """All edges of the distance, as `extend` makes them, and those that the other's episodes went through."""
    walked = {
        (int(report.assignment[u]), int(report.assignment[v]))
        for u, v, steps in zip(
            other._graph.source.values, other._graph.target.values, other._graph.temporal.values, strict=True
        )
        if steps
    }
    walked = {(u, v) for u, v in walked if u != v}
    if mine.settings.reversible:
        walked |= {(v, u) for u, v in walked}
    assert pairs(mine) == pairs(expected) | walked
    assert mine._graph.is_simple() and (mine.settings.reversible is None or mine._graph.is_reversible())


@settings(max_examples=20)
@given(streams())
def test_a_merged_memory_is_a_file_that_is_whole(drawn):
    table, order, cut, episodes, chosen, seed = drawn
    distance = sgm.TableDistance(table)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.sgm"
        built(distance, order[:cut], chosen, episodes, seed).save(path)
        with sgm.SparseGraphicalMemory.open(path, distance) as memory:
            memory.merge(built(distance, order[cut:], chosen, episodes, seed + 1))
            held = memory.tried(), edges_of(memory), memory.assignment.tolist(), memory.records
        again = sgm.SparseGraphicalMemory.load(path, distance)
        assert held == (again.tried(), edges_of(again), again.assignment.tolist(), again.records)
        assert check(path).whole


class Anonymous:
    """A table of distances without a fingerprint."""

    def __init__(self, table):
        self.table = sgm.TableDistance(table)

    def embed(self, observations):
        return self.table.embed(observations)

    def __call__(self, starts, goals):
        return self.table(starts, goals)


def two(world, kind=sgm.TableDistance, **chosen):
    _, steps = world
    distance = kind(steps)
    memories = []
    for rows in (range(0, 60), range(60, 120)):
        memory = sgm.SparseGraphicalMemory(distance, **{"tau_a": 0.8, "tau_p": None, "max_dist": 6.0, **chosen})
        memory.extend(np.array(rows))
        memories.append(memory)
    return memories


def test_evidence_goes_to_the_edge_between_the_nodes_its_ends_went_to(world):
    mine, other = two(world, policy="belief")
    edges = other.edges()
    u, v = int(edges.source[0]), int(edges.target[0])
    for reached in (False, True, False, False):
        other.record(u, v, reached)
    report = mine.merge(other)
    there = tuple(report.assignment[[u, v]].tolist())
    if report.records:
        known = mine.evidence(*there)
        assert (known.successes, known.failures, known.streak) == (1, 3, 2)
    assert report.records + report.without_edge == 4


def test_tries_whose_events_are_folded_are_merged_too(world):
    mine, other = two(world, policy="belief", keep_events=0)
    edges, dice = other.edges(), np.random.default_rng(0)
    for _ in range(3):
        chosen = dice.integers(len(edges.source), size=3000)
        other.record_many(edges.source[chosen], edges.target[chosen], dice.random(3000) < 0.5)
    assert other._log.folded
    report = mine.merge(other)
    assert report.records + report.without_edge == 9000 and attempts(mine) == report.records > 0


def test_an_edge_removed_by_hand_is_removed_in_the_merged_memory(world):
    mine, other = two(world)
    edges = other.edges()
    for u, v in list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))[:20]:
        other.remove(u, v)
    report = mine.merge(other)
    gone = set(zip(*(ends.tolist() for ends in mine.removed()[:2]), strict=True))
    for u, v in list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))[:20]:
        ends = tuple(report.assignment[[u, v]].tolist())
        assert ends in gone or ends[0] == ends[1] or mine._graph.find(*ends) is None
    assert gone


def test_other_rules_distances_and_features_are_refused(world):
    mine, other = two(world)
    for wrong, words in (
        (two(world, tau_a=1.0)[1], "tau_a"),
        (two((None, world[1] * 2), kind=Anonymous)[1], "its edges have other lengths"),
        (mine, "expected another"),
        ("memory.sgm", "expected another"),
        (two((None, world[1] * 2))[1], "fingerprints"),
    ):
        before = edges_of(mine)
        with pytest.raises(sgm.InputError, match=words):
            mine.merge(wrong)
        assert edges_of(mine) == before
    keeps = two(world, keep_observations=True)[0]
    with pytest.raises(sgm.InputError, match="keeps observations"):
        keeps.merge(other)
    with pytest.raises(sgm.InputError, match="samples uniformly"):
        sgm.SparseGraphicalMemory(mine.distance, criterion="uniform", size=3).merge(other)


def test_a_failing_distance_leaves_the_memory_as_it_was(world):
    mine, other = two(world)
    edges = other.edges()
    other.record_many(edges.source[:9], edges.target[:9], np.zeros(9, np.bool_))
    state = edges_of(mine), mine.nodes.tolist(), mine.tried(), mine.records, mine.assignment.tolist()
    whole, calls = mine._distance, []

    class Failing(sgm.TableDistance):
        def __call__(self, starts, goals):
            calls.append(1)
            if len(calls) > 2:
                raise RuntimeError("out of memory")
            return super().__call__(starts, goals)

    mine._distance = Failing(world[1])
    with pytest.raises((RuntimeError, sgm.SGMError)):
        mine.merge(other)
    mine._distance = whole
    assert state == (edges_of(mine), mine.nodes.tolist(), mine.tried(), mine.records, mine.assignment.tolist())
    assert dataclasses.asdict(mine.settings) == dataclasses.asdict(other.settings)
    assert mine.merge(other).added
