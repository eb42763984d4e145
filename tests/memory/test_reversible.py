"""Reversible memories: every edge has one the other way, and it is an edge like any other."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from tests.memory.oracle import edge_list

pytestmark = pytest.mark.usefixtures("decider")


def one_way(n=6, **settings) -> sgm.SparseGraphicalMemory:
    """N nodes in a row; the distance only knows the way forwards, of 2 steps each."""
    table = np.full((n, n), 50, np.float32)
    table[np.arange(n - 1), np.arange(1, n)] = 2.0
    np.fill_diagonal(table, 0)
    memory = sgm.SparseGraphicalMemory(
        sgm.TableDistance(table), criterion="none", **{"policy": "first-failure", "reversible": True, **settings}
    )
    memory.extend(np.arange(n))
    return memory


def test_an_edge_can_be_taken_backwards_at_a_factor_of_its_weight():
    memory = one_way()
    there, back = memory.plan_nodes(0, 5), memory.plan_nodes(5, 0)
    assert (there.length, back.nodes.tolist()) == (10.0, [5, 4, 3, 2, 1, 0])
    assert back.length == pytest.approx(1.2 * 10.0)
    assert one_way(reversible=2.0).plan_nodes(5, 0).length == 20.0
    with pytest.raises(sgm.NoPath):
        one_way(reversible=None).plan_nodes(5, 0)


def test_a_way_back_that_the_distance_knows_is_the_lighter_of_both():
    table = np.array([[0, 2, 50], [9, 0, 3], [50, 3.3, 0]], np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", k=None, reversible=1.5)
    memory.extend(np.arange(3))
    assert edge_list(memory.edges()) == [(0, 1, 2.0), (1, 0, 3.0), (1, 2, 3.0), (2, 1, np.float32(3.3))]


def test_evidence_about_the_way_back_is_its_own():
    memory = one_way()
    assert memory.record(1, 0, reached=False) is True
    assert memory.evidence(0, 1) == sgm.Evidence() and memory.plan_nodes(0, 1).nodes.tolist() == [0, 1]
    with pytest.raises(sgm.NoPath):
        memory.plan_nodes(5, 0)
    assert memory.restore(1, 0) == 1 and len(memory.plan_nodes(5, 0)) == 6


def test_the_way_back_passes_the_filter_with_the_way_there():
    table = np.array([[0, 1, 2, 50], [50, 0, 1, 2], [50, 50, 0, 1], [50, 50, 50, 0]], np.float32)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", k=1, reversible=True)
    memory.extend(np.arange(4))
    forwards = [(0, 1), (1, 2), (2, 3)]
    assert {(u, v) for u, v, _ in edge_list(memory.edges())} == {*forwards, *((v, u) for u, v in forwards)}


def test_ways_back_change_nothing_about_merging():
    random = np.random.default_rng(0)
    points = random.uniform(0, 10, (200, 2))
    table = np.linalg.norm(points[:, None] - points, axis=-1) * random.uniform(0.8, 1.6, (200, 200))
    made = []
    for reversible in (None, True):
        memory = sgm.SparseGraphicalMemory(
            sgm.TableDistance(table.astype(np.float32)), tau_p=None, tau_a=2.0, max_dist=2.5, reversible=reversible
        )
        memory.extend(np.arange(200), episode=0)
        made.append(memory)
    assert made[0].assignment.tolist() == made[1].assignment.tolist()
    plain, both = (edge_list(memory.edges(filtered=False)) for memory in made)
    assert {(u, v) for u, v, _ in plain} < {(u, v) for u, v, _ in both}
    assert all((v, u) in {(a, b) for a, b, _ in both} for u, v, _ in both)


def test_an_episode_that_walks_the_way_back_makes_it_an_edge_of_its_own():
    table = np.full((3, 3), 50, np.float32)
    np.fill_diagonal(table, 0)
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), criterion="none", reversible=2.0)
    memory.extend([0, 1, 2], episode=0)
    assert memory.plan_nodes(2, 0).length == 4.0
    memory.extend([2], episode=1)
    assert edge_list(memory.edges(filtered=False))[:2] == [(0, 1, 1.0), (1, 0, 2.0)]


def test_files_keep_ways_back_and_refuse_to_lose_one(tmp_path):
    memory = one_way()
    memory.record(1, 0, reached=False)
    memory.save(tmp_path / "m.sgm")
    again = sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", memory.distance)
    assert again.settings.reversible == 1.2 and edge_list(again.edges()) == edge_list(memory.edges())
    with sgm.SparseGraphicalMemory.open(tmp_path / "m.sgm", memory.distance) as live:
        live.record(2, 1, reached=False)
    assert len(sgm.SparseGraphicalMemory.load(tmp_path / "m.sgm", None).removed().source) == 2
    assert len(memory.at(0).plan_nodes(5, 0)) == 6


def test_a_damaged_file_keeps_both_ways_or_none(tmp_path):
    import sqlite3

    from sgm.memory.check import check
    from sgm.memory.repair import repair

    one_way().save(tmp_path / "m.sgm")
    with sqlite3.connect(tmp_path / "m.sgm") as connection:
        connection.execute("DELETE FROM edges WHERE id = 3")
    assert not check(tmp_path / "m.sgm").whole
    report = repair(tmp_path / "m.sgm", tmp_path / "new.sgm")
    assert any("the opposite edge is lost" in text for text in report.lost)
    saved = sgm.SparseGraphicalMemory.load(tmp_path / "new.sgm", None)
    pairs = {(u, v) for u, v, _ in edge_list(saved.edges(filtered=False))}
    assert len(pairs) == 8 and all((v, u) in pairs for u, v in pairs)


@pytest.mark.parametrize("factor", [0.5, -1, "yes", 1e9, float("nan")])
def test_a_factor_under_one_is_refused(factor):
    with pytest.raises(sgm.InputError, match="reversible is"):
        sgm.SparseGraphicalMemory(None, reversible=factor)


def test_threshold_search_and_consolidation_keep_the_setting():
    points = np.random.default_rng(1).uniform(0, 10, (300, 2)).astype(np.float32)

    class Euclid:
        def embed(self, observations):
            return np.asarray(observations, np.float32)

        def __call__(self, starts, goals):
            return np.linalg.norm(starts[:, None] - goals, axis=-1)

    choice = sgm.choose_threshold(
        Euclid(), points, 40, max_dist=4.0, reversible=True, consolidate=True, orders=1, progress=False
    )
    assert choice.memory.settings.reversible == 1.2
    pairs = {(u, v) for u, v, _ in edge_list(choice.memory.edges(filtered=False))}
    assert all((v, u) in pairs for u, v in pairs)
