"""Short reads of a file that somebody writes."""

from __future__ import annotations

import os
import shutil
import warnings

import numpy as np
import pytest

import sgm
from sgm.memory import events as event_log
from sgm.memory.snapshot import Snapshot, edge_table, first_edge_table
from tests.memory.test_events import SETTINGS, facts, life, world

SGM = sgm.SparseGraphicalMemory


def test_a_snapshot_follows_every_call_of_a_writer(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "_CHUNK", 16)
    path = tmp_path / "m.sgm"
    distance, features = world()
    with SGM.open(path, distance, features, keep_events=40, **SETTINGS) as live:
        snapshot, versions, updated = Snapshot.take(path), set(), 0
        for _ in life(live):
            now = snapshot.refreshed()
            updated += now is snapshot and now.version not in versions
            snapshot = now
            versions.add(snapshot.version)
            assert facts(snapshot.memory) == facts(live)
        assert len(versions) > 60 and updated > 30  # most calls only add events, and only these were read


def test_nothing_is_read_again_while_nothing_changes(tmp_path):
    path = tmp_path / "m.sgm"
    memory = SGM(*world(), **SETTINGS)
    memory.extend(np.arange(50))
    memory.save(path)
    snapshot = Snapshot.take(path)
    assert snapshot.refreshed() is snapshot


def test_a_replaced_file_is_read_anew_and_a_missing_or_damaged_one_is_told(tmp_path):
    path = tmp_path / "m.sgm"
    memory = SGM(*world(), **SETTINGS)
    memory.extend(np.arange(50))
    memory.save(path)
    snapshot = Snapshot.take(path)
    memory.extend(np.arange(50, 90))
    memory.save(path)
    newer = snapshot.refreshed()
    assert len(newer.memory) == len(memory) and newer.version != snapshot.version
    path.write_bytes(b"not a memory")
    with pytest.raises(sgm.StoreError):
        newer.refreshed()
    path.unlink()
    with pytest.raises(sgm.StoreError, match="no file"):
        newer.refreshed()
    with pytest.raises(sgm.StoreError, match="no file"):
        Snapshot.take(path)


def test_a_writer_that_closes_beside_readers_leaves_one_plain_file(tmp_path):
    path = tmp_path / "m.sgm"
    live = SGM.open(path, *world(), **SETTINGS)
    live.extend(np.arange(100))
    snapshot = Snapshot.take(path)
    live.record(*(int(end[0]) for end in live.edges()[:2]), True)
    snapshot = snapshot.refreshed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        live.close()
    assert os.listdir(tmp_path) == ["m.sgm"]
    assert snapshot.refreshed() is snapshot


def test_the_table_of_edges_says_what_the_memory_says(tmp_path):
    memory = SGM(*world(), policy="guarded", **SETTINGS)
    for _ in life(memory):
        pass
    table = edge_table(memory)
    everything = sorted(zip(*(column.tolist() for column in memory.edges(filtered=False)[:2]), strict=True))
    there = ~table.removed
    assert sorted(zip(table.source[there].tolist(), table.target[there].tolist(), strict=True)) == everything
    stands = table.kept & there
    for name in ("source", "target", "weight"):
        np.testing.assert_array_equal(getattr(table, name)[stands], getattr(memory.edges(), name))
    for place, (u, v) in enumerate(zip(table.source.tolist(), table.target.tolist(), strict=True)):
        known = memory.evidence(u, v)
        assert (table.successes[place], table.failures[place], table.streak[place]) == (
            known.successes,
            known.failures,
            known.streak,
        )
        assert (table.removed[place], table.guarded[place]) == (known.removed_at is not None, known.guarded)


def test_the_first_table_is_that_before_the_events_unless_the_graph_has_changed_since():
    memory = SGM(*world(), **SETTINGS)
    memory.extend(np.arange(100))
    before = edge_table(memory)
    memory.record(*(int(end[0]) for end in memory.edges()[:2]), False)
    first = first_edge_table(memory)
    np.testing.assert_array_equal(first.failures, before.failures)
    assert edge_table(memory).failures.sum() == 1
    memory.extend(np.arange(100, 200))
    assert first_edge_table(memory) is None


def test_a_file_of_the_first_schema_is_read(tmp_path):
    path = tmp_path / "old.sgm"
    shutil.copy(os.path.join(os.path.dirname(__file__), "..", "data", "schema1.sgm"), path)
    snapshot = Snapshot.take(path)
    assert len(snapshot.memory) == len(SGM.load(path, None))
    assert snapshot.refreshed().version == snapshot.version
