"""The small memories that the inspector is tested with have what they promise; `make_data.py` makes them."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.navigation.beside import read_episodes, read_floor, read_guarantee
from tests.inspector.make_data import COMMANDS, OUT


@pytest.mark.parametrize("name", COMMANDS)
def test_a_memory_has_places_walls_evidence_and_removed_edges(name):
    path = OUT / f"{name}.sgm"
    assert path.stat().st_size <= 150_000
    memory, floor = sgm.SparseGraphicalMemory.load(path, None), read_floor(path)
    assert 40 <= len(memory) <= 150 and len(memory.removed().source) and len(memory.tried())
    places, ends = memory.attributes["position"], floor.lines.reshape(-1, 2)
    assert (places >= ends.min(axis=0)).all() and (places <= ends.max(axis=0)).all()
    assert floor.axes == ("rc" if name == "point" else "xy")
    assert ("thumbnail" in memory.attributes) == (name != "point")
    guaranteed = read_guarantee(path)
    assert guaranteed["applies"] is False and not guaranteed["conditions"]["no edge has been removed by cleanup"]


@pytest.mark.parametrize("name", COMMANDS)
def test_its_episodes_are_of_both_kinds_and_some_edge_fails_in_one(name):
    path = OUT / f"{name}.sgm"
    found = read_episodes(path, nodes=len(sgm.SparseGraphicalMemory.load(path, None)))
    assert {episode.kind for episode in found} == {"evaluation", "cleanup"}
    assert any(episode.cuts for episode in found) and any(episode.plans for episode in found)
    assert all(np.isfinite(episode.positions).all() for episode in found)
    assert any(len(np.unique(episode.positions, axis=0)) > 10 for episode in found)
    assert any(episode.images for episode in found) == (name != "point")
