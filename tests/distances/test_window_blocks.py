"""Windows compared in blocks are those of the table of all frames."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.distances import window_blocks
from sgm.distances.window import WindowDistance, window_table
from sgm.distances.window_blocks import WindowBlocks, window_distance


class Gaps:
    """Asymmetric steps, each computed by itself, so that they do not depend on the block they are in."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        gap = goals[None] - starts[:, None]
        return (np.abs(gap).sum(axis=2) + np.maximum(gap[:, :, 0], 0)).astype(np.float32)


def frames(number=240):
    random = np.random.default_rng(0)
    walk = np.cumsum(random.normal(0, 0.4, (number, 2)), axis=0).astype(np.float32)
    return walk, np.sort(random.integers(0, 12, number))


@pytest.mark.parametrize("aggregate", ["farthest", "closest", "mean"])
@pytest.mark.parametrize("window", [0, 1, 2])
def test_blocks_rows_and_pairs_are_those_of_the_table(aggregate, window, monkeypatch):
    walk, episodes = frames()
    how = {"window": window, "aggregate": aggregate}
    table = window_table(Gaps(), walk, episodes, **how)
    blocks = WindowBlocks(Gaps(), walk, episodes, **how)
    random = np.random.default_rng(1)
    for numbers in (1 << 23, 500):
        monkeypatch.setattr(window_blocks, "_NUMBERS", numbers)
        for _ in range(4):
            some, others = random.integers(0, len(walk), 30), random.permutation(len(walk))[:50]
            np.testing.assert_array_equal(blocks.levels(some, others), table[np.ix_(some, others)])
    np.testing.assert_array_equal(np.stack([blocks.row(frame) for frame in range(len(walk))]), table)
    by_table = WindowDistance(table)
    starts, goals = (blocks.embed(random.integers(0, len(walk), 64)) for _ in range(2))
    for pairs in (window_blocks._PAIRS, 1):
        monkeypatch.setattr(window_blocks, "_PAIRS", pairs)
        np.testing.assert_array_equal(blocks.pairs(starts, goals), by_table.pairs(starts, goals))
    np.testing.assert_array_equal(blocks(starts, goals), by_table(starts, goals))


def test_a_memory_over_blocks_is_that_over_the_table(monkeypatch):
    walk, episodes = frames()
    memories = []
    for limit in (1 << 30, 100):
        monkeypatch.setattr(window_blocks, "TABLE", limit)
        distance = window_distance(Gaps(), walk, episodes, window=2, aggregate="mean")
        assert isinstance(distance, WindowDistance if limit > 100 else WindowBlocks)
        memory = sgm.SparseGraphicalMemory(distance, lambda rows: walk[rows], tau_p=1.0, tau_a=1.0, max_dist=3.0, k=10)
        memory.extend(np.arange(len(walk)), episode=episodes)
        memories.append(memory)
    one, other = memories
    assert one.assignment.tolist() == other.assignment.tolist() and 10 < len(one) < len(walk)
    for mine, theirs in zip(one.edges(), other.edges(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_is_no_frame_is_refused_and_frames_have_a_fingerprint():
    walk, episodes = frames()
    blocks = WindowBlocks(Gaps(), walk, episodes)
    for wrong in ([-1], [240], [0.5], np.zeros((2, 2))):
        with pytest.raises(sgm.InputError, match="frame numbers"):
            blocks.embed(np.asarray(wrong))
    assert blocks.fingerprint == WindowBlocks(Gaps(), walk, episodes).fingerprint
    assert blocks.fingerprint != WindowBlocks(Gaps(), walk + 1, episodes).fingerprint
