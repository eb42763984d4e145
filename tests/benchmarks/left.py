"""What a run leaves with and beside every memory, for those who look at it; see docs/results.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sgm
from sgm.navigation.beside import read_episodes, read_floor, read_guarantee

MOST_BYTES = 2_000_000  # of a file of episodes


def check_left(path: Path, *, images: bool, cleaned: bool, followed: bool = True) -> sgm.SparseGraphicalMemory:
    """Assert that a memory has places, and thumbnails if its world has images, and what stands beside it.

    `followed`: its agent says which nodes it goes to.
    """
    memory = sgm.SparseGraphicalMemory.load(path, None)
    places, floor = memory.attributes["position"], read_floor(path)
    assert places.shape == (len(memory), 2) and np.isfinite(places).all()
    ends = floor.lines.reshape(-1, 2)
    assert (places >= ends.min(axis=0)).all() and (places <= ends.max(axis=0)).all()
    assert ("thumbnail" in memory.attributes) == images
    if images:
        thumbnails = memory.attributes["thumbnail"]
        assert thumbnails.dtype == np.uint8 and thumbnails.shape[3] == 3 and max(thumbnails.shape[1:3]) <= 64
        assert thumbnails.std() > 5
    assert path.with_name("episodes.npz").stat().st_size < MOST_BYTES
    found = read_episodes(path, nodes=len(memory))
    evaluated, others = ([each for each in found if (each.kind == "evaluation") is kind] for kind in (True, False))
    assert 1 <= len(evaluated) <= 20 and len(others) <= 10 and bool(others) == cleaned
    for episode in found:
        assert episode.success == (episode.reason == "") and bool(episode.images) == images
        assert np.isfinite(episode.positions).all()
        assert (episode.positions >= ends.min(axis=0)).all() and (episode.positions <= ends.max(axis=0)).all()
        assert episode.success is False or episode.gave_up is None
        assert not images or max(episode.images) == len(episode) - 1 or "not finished" in episode.reason
    assert any(len(np.unique(episode.positions, axis=0)) > 2 for episode in found)
    assert all(np.isfinite(episode.goal_position).all() for episode in evaluated)
    if followed:
        assert any(episode.plans for episode in found)
    guaranteed = read_guarantee(path)
    assert guaranteed["applies"] is not None or guaranteed["reason"].endswith(".")
    return memory
