"""The approximate index: asked for, named, audited, and the same for the same stream."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest

import sgm
from sgm.memory import build, index
from sgm.memory.approximate import APPROXIMATE, ApproximateIndex
from sgm.memory.index import BRUTE, Index
from tests.memory.oracle import edge_list
from tests.memory.searchable import Leaning

pytest.importorskip("usearch")
SETTINGS = {"tau_p": 0.45, "tau_a": 0.4, "max_dist": 1.6, "candidates": 32}


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Memories are searched, and keys are linked, from a few on."""
    monkeypatch.setattr(build, "ENOUGH", 40)
    monkeypatch.setattr(index, "SMALL", 64)


def saturating(number, seed=0):
    """(n, 64) float32 waves of a place in a square of constant density: what is not near is equally far."""
    random = np.random.default_rng(seed)
    waves = np.random.default_rng(2).normal(size=(2, 32)) * 0.4
    phase = random.uniform(0, number**0.5, (number, 2)) @ waves
    return (np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / 2).astype(np.float32)


def pair(points, radius=1.0):
    """An approximate and an exact index over the same keys."""
    indexes = ApproximateIndex(radius), Index(radius)
    for each in indexes:
        each.add(points)
    return indexes


def test_few_keys_are_searched_exactly_and_many_through_links():
    points = saturating(200)
    some, exact = pair(points[:60])
    assert all(np.array_equal(a, b) for a, b in zip(some.within(points, 1.0), exact.within(points, 1.0), strict=True))
    assert some.kind == BRUTE
    some.add(points[60:])
    some.within(points[:1], 1.0)
    assert some.kind == APPROXIMATE == "usearch" and len(some) == 200


@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_what_is_found_within_a_radius_is_near_and_almost_everything_that_is(radius):
    points = saturating(3000)
    some, exact = pair(points[:2500], radius)
    found, truth = some.within(points[2400:], radius), exact.within(points[2400:], radius)
    mine, all_ = (set(zip(pairs.query.tolist(), pairs.key.tolist(), strict=True)) for pairs in (found, truth))
    assert mine <= all_
    assert len(mine) >= 0.98 * len(all_) > 90
    order = np.lexsort((found.key, found.query))
    assert np.array_equal(order, np.arange(len(order)))


def test_the_nearest_keys_come_nearest_first_and_most_of_them_are_the_nearest():
    points = saturating(3000)
    some, exact = pair(points[:2500])
    keys, far = some.nearest(points[2500:], 20)
    truth, lengths = exact.nearest(points[2500:], 20)
    assert keys.shape == far.shape == (500, 20)
    assert (np.diff(far, axis=1) >= 0).all() and (far >= lengths - 1e-12).all()
    np.testing.assert_allclose(far[0], np.linalg.norm(points[keys[0]].astype(np.float64) - points[2500], axis=1))
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(keys, truth, strict=True)]) > 0.97 * 20
    np.testing.assert_array_equal(some.nearest(points[2500:2501], 20)[0], keys[:1])


def test_more_keys_than_there_are_cannot_be_found():
    points = saturating(100)
    some, exact = pair(points)
    keys, _ = some.nearest(points[:3], 1000)
    assert np.array_equal(keys, exact.nearest(points[:3], 1000)[0]) and keys.shape == (3, 100)
    assert len(some.within(points[:3], 1e6).key) == 300
    assert some.nearest(points[:0], 5)[0].shape == (0, 5)


def test_queries_that_links_do_not_lead_far_enough_from_are_answered_exactly(monkeypatch):
    points = saturating(300)
    some, exact = pair(points)
    some.within(points[:1], 1.0)

    def few(queries, number):
        keys = np.full((len(queries), number), -1)
        keys[:, 0] = 7
        return keys

    monkeypatch.setattr(some._way, "_search", few)
    assert np.array_equal(some.nearest(points[:4], 10)[0], exact.nearest(points[:4], 10)[0])


def test_keys_added_after_a_search_are_found_and_those_cut_off_are_not():
    points = saturating(400)
    some = ApproximateIndex(1.0)
    some.add(points[:200])
    assert some.nearest(points[300:310], 1)[0].max() < 200
    some.add(points[200:])
    assert some.nearest(points[300:310], 1)[0].ravel().tolist() == list(range(300, 310))
    some.cut(150)
    assert some.nearest(points[300:310], 3)[0].max() < 150
    some.add(points[150:])
    assert some.nearest(points[300:310], 1)[0].ravel().tolist() == list(range(300, 310))


def test_how_keys_were_added_does_not_change_what_is_found():
    points = saturating(2000)
    whole, pieces = ApproximateIndex(1.0), ApproximateIndex(1.0)
    whole.add(points[:1800])
    for low in range(0, 1800, 77):
        pieces.add(points[low : min(1800, low + 77)])
        pieces.nearest(points[-3:], 4)
    for one, other in zip(whole.nearest(points[1800:], 30), pieces.nearest(points[1800:], 30), strict=True):
        np.testing.assert_array_equal(one, other)


def built(points, **more):
    memory = sgm.SparseGraphicalMemory(Leaning(64), **SETTINGS, **more)
    memory.extend(points)
    return memory


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
def test_a_memory_says_which_index_it_has_and_its_audit_what_that_missed():
    points = saturating(3000)
    some, exact = built(points, approximate=True), built(points)
    assert some.stats().index == "32 nearest candidates, usearch" and exact.stats().index == "32 nearest candidates"
    assert isinstance(some._builder.neighbourhood._index, ApproximateIndex)
    found = some.audit(200)
    assert found.edges > 500 and 0.98 < found.edge_recall <= 1 and 0.98 < found.merge_recall <= 1
    assert some.nbytes > exact.nbytes  # the index is counted
    assert len(some) == pytest.approx(len(exact), rel=0.01)
    assert len(some.edges(False).source) == pytest.approx(len(exact.edges(False).source), rel=0.02)


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
def test_the_audit_sees_edges_that_a_poor_index_misses(monkeypatch):
    class Poor(ApproximateIndex):
        def nearest(self, queries, number):
            keys, far = super().nearest(queries, number)
            return keys[:, : max(1, keys.shape[1] // 16)], far

    monkeypatch.setattr("sgm.memory.nearby.ApproximateIndex", Poor)
    assert built(saturating(2000), approximate=True).audit(200).edge_recall < 0.9


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
def test_one_stream_gives_one_graph():
    points = saturating(1500)
    memory, again = built(points, approximate=True), built(points, approximate=True)
    assert edge_list(memory.edges()) == edge_list(again.edges())
    assert memory.assignment.tolist() == again.assignment.tolist()


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
def test_a_memory_goes_on_from_its_file_and_from_a_copy_as_it_would_have(tmp_path):
    points = saturating(1500)
    memory = built(points[:1024], approximate=True)
    memory.save(tmp_path / "some.sgm")
    loaded = sgm.SparseGraphicalMemory.load(tmp_path / "some.sgm", Leaning(64))
    assert loaded.settings == memory.settings and loaded.settings.approximate
    copied = copy.deepcopy(memory)
    for each in (memory, loaded, copied):
        each.extend(points[1024:])
        assert edge_list(each.edges()) == edge_list(memory.edges())


@pytest.mark.filterwarnings("ignore::sgm.errors.MemoryWarning")
def test_features_of_their_own_are_searched_by_an_approximate_index_too():
    points = saturating(2000)
    memory = sgm.SparseGraphicalMemory(
        Leaning(64), lambda rows: 2 * rows, approximate=True, **{**SETTINGS, "tau_p": 0.9}
    )
    memory.extend(points)
    assert isinstance(memory._builder.neighbourhood._features, ApproximateIndex)
    assert memory.audit(200).merge_recall > 0.98
    assert len(memory) == pytest.approx(len(built(points)), rel=0.01)


def test_it_is_refused_without_candidates_and_never_chosen_unasked():
    with pytest.raises(sgm.InputError, match="candidates"):
        sgm.SparseGraphicalMemory(Leaning(2), approximate=True)
    with pytest.raises(sgm.InputError, match="True or False"):
        sgm.SparseGraphicalMemory(Leaning(2), approximate=1, candidates=5)
    assert "approximate" not in sgm.SparseGraphicalMemory(Leaning(2), candidates=5).settings.asdict()


def test_without_usearch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(sgm.SGMError, match=r"sparse-graphical-memory\[usearch\]"):
        sgm.SparseGraphicalMemory(Leaning(2), candidates=5, approximate=True)
