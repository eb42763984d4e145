"""Ctrl-C in `extend`: what was done is kept, and going on with the rest makes the same graph."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm
from sgm.memory import build, index
from tests.memory.oracle import edge_list
from tests.memory.searchable import Leaning

HERE = str(Path(sgm.__file__).parent / "memory")
KINDS = {
    "a table of distances": {},
    "features that move": {"feature_average": 0.05},
    "a search": {"tau_p": 0.9},
    "reversible edges": {"reversible": True},
}


@contextlib.contextmanager
def interrupted(line: int) -> Iterator[None]:
    """Raise KeyboardInterrupt, as Ctrl-C does, before the n-th line that is run in sgm/memory."""
    left = [line]

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def world(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations of three walks, and their episodes."""
    random = np.random.default_rng(seed)
    walks = [np.cumsum(random.normal(0, 0.5, (25, 3)), axis=0) for _ in range(3)]
    return np.concatenate(walks).astype(np.float32), np.repeat(np.arange(3), 25)


def make(kind: str, path: Path | None) -> sgm.SparseGraphicalMemory:
    options = {"tau_p": 0.9, "tau_a": 1.0, "max_dist": 2.0, "k": 3, **KINDS[kind]}
    if path is None:
        return sgm.SparseGraphicalMemory(Leaning(3), **options)
    return sgm.SparseGraphicalMemory.open(path, Leaning(3), **options)


def contents(memory: sgm.SparseGraphicalMemory) -> list:
    edges = [edge_list(memory.edges()), edge_list(memory.edges(filtered=False))]
    columns = memory.nodes, memory.assignment, memory.embeddings, memory.features, memory.attributes["place"]
    return [*edges, *(column.tolist() for column in columns)]


def give(memory: sgm.SparseGraphicalMemory, rows: np.ndarray, episodes: np.ndarray) -> None:
    memory.extend(rows, episode=episodes, attributes={"place": rows[:, :2]}, block=4)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(seed=st.integers(0, 99), line=st.integers(1, 9000))
def test_an_interrupt_anywhere_keeps_whole_observations_and_the_rest_makes_the_same_graph(
    tmp_path_factory, kind, live, seed, line
):
    rows, episodes = world(seed)
    folder = tmp_path_factory.mktemp("live")
    with pytest.MonkeyPatch.context() as patch:
        if kind == "a search":
            patch.setattr(build, "ENOUGH", 1)
            patch.setattr(index, "SMALL", 8)
        expected, memory = make(kind, None), make(kind, folder / "memory.sgm" if live else None)
        with memory:
            for one in (expected, memory):
                give(one, rows[:5], episodes[:5])
            with contextlib.suppress(KeyboardInterrupt), interrupted(line):
                give(memory, rows[5:], episodes[5:])
            kept = len(memory.assignment)
            give(expected, rows[5:kept], episodes[5:kept])
            assert contents(memory) == contents(expected)
            give(memory, rows[kept:], episodes[kept:])
            give(expected, rows[kept:], episodes[kept:])
            whole = make(kind, None)
            give(whole, rows, episodes)
            assert contents(memory) == contents(expected) == contents(whole)
        if live:
            assert contents(sgm.SparseGraphicalMemory.load(folder / "memory.sgm", Leaning(3))) == contents(whole)


class Impatient(Leaning):
    """A distance during which somebody presses Ctrl-C after so many calls of `embed`."""

    calls = 3

    def embed(self, observations):
        self.calls -= 1
        if not self.calls:
            raise KeyboardInterrupt
        return super().embed(observations)


def test_the_interrupt_says_how_many_observations_are_kept():
    rows, _ = world(0)
    memory = sgm.SparseGraphicalMemory(Impatient(3), tau_p=0.9, tau_a=1.0, max_dist=2.0)
    with pytest.raises(KeyboardInterrupt, match=r"keeps 20 of these 75 observations, 20 in all.*observations\[20:\]"):
        memory.extend(rows, block=10)
    assert len(memory.assignment) == 20 and len(memory) == len(set(memory.assignment.tolist()))
    assert memory.extend(rows[20:]).assignment.shape == (55,)


def test_an_episode_of_an_experience_goes_on_where_it_was_interrupted():
    rows, episodes = world(1)
    data = sgm.Experience(rows, episodes=episodes)
    whole = sgm.SparseGraphicalMemory(Leaning(3), tau_p=0.9, tau_a=1.0, max_dist=2.0)
    whole.extend(data)
    memory = sgm.SparseGraphicalMemory(Impatient(3), tau_p=0.9, tau_a=1.0, max_dist=2.0)
    with pytest.raises(KeyboardInterrupt):
        memory.extend(data, block=10)
    memory.extend(data[20:])
    assert edge_list(memory.edges(filtered=False)) == edge_list(whole.edges(filtered=False))


def test_an_interrupt_leaves_alone_what_an_earlier_batch_moved():
    """Of both batches the third observation is the last that was begun; in the first batch it moved a feature."""
    near = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, 0.0], [0.1, 0.0, 0.0]], np.float32)
    distance = Impatient(3)
    distance.calls = len(near) + 3  # Ctrl-C at the third observation of the second batch
    memory = sgm.SparseGraphicalMemory(distance, tau_p=0.9, tau_a=1.0, max_dist=2.0, feature_average=0.05)
    memory.extend(near)
    moved = memory.features.copy()
    assert len(memory) == 2 and moved[0, 0] > 0
    with pytest.raises(KeyboardInterrupt, match="keeps 2 of these 3 observations"):
        memory.extend(near + np.float32(20))
    assert (memory.features[:2] == moved).all()


def test_nothing_is_kept_of_a_sampled_batch():
    rows, _ = world(2)
    memory = sgm.SparseGraphicalMemory(Impatient(3), criterion="uniform", size=40)
    with pytest.raises(KeyboardInterrupt):
        memory.extend(rows, block=10)
    assert len(memory) == len(memory.assignment) == 0
