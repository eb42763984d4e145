"""Heads: NumPy says what torch says, and both are quasimetrics."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from sgm.distances import heads as module  # noqa: E402
from sgm.distances.heads import HEADS, make_head  # noqa: E402
from sgm.errors import InputError  # noqa: E402


def embeddings(number: int, size: int = 16, seed: int = 0) -> np.ndarray:
    return (20 * np.random.default_rng(seed).normal(size=(number, size)) + 100).astype(np.float32)


@pytest.mark.parametrize("kind", HEADS)
def test_table_and_rows_in_numpy_are_what_torch_says(kind, monkeypatch):
    monkeypatch.setattr(module, "_STARTS", 7)
    monkeypatch.setattr(module, "_GOALS", 10)
    head = make_head(kind, 16)
    a, b = embeddings(17), embeddings(33, seed=1)
    with torch.no_grad():
        expected = head(torch.from_numpy(a)[:, None].expand(17, 33, 16), torch.from_numpy(b).expand(17, 33, 16)).numpy()
    table = head.table(a, b)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(head.rows(a, b[:17]), np.diagonal(expected), rtol=1e-4, atol=1e-4)
    assert head.table(a[:0], b).shape == (0, 33) and head.table(a, b[:0]).shape == (17, 0)


@pytest.mark.parametrize("kind", HEADS)
def test_it_is_a_quasimetric(kind):
    x = embeddings(30)
    table = make_head(kind, 16).table(x, x)
    np.testing.assert_allclose(np.diagonal(table), 0, atol=1e-3)
    assert table.min() >= 0 and np.abs(table - table.T).max() > 1
    through = (table[:, :, None] + table[None]).min(axis=1)  # the best way over a third one
    assert (table <= through + 1e-3).all()


@pytest.mark.parametrize("kind", HEADS)
def test_larger_embeddings_are_as_much_farther_apart(kind):
    head, a, b = make_head(kind, 16), embeddings(5), embeddings(6, seed=1)
    np.testing.assert_allclose(head.table(3 * a, 3 * b), 3 * head.table(a, b), rtol=1e-4)


def test_iqe_measures_what_intervals_cover():
    head = make_head("iqe", 8)
    starts = np.array([[0, 1, 5, 0, 0, 0, 0, 0]], np.float32)
    goals = np.array([[2, 3, 6, -9, -9, -9, -9, -9]], np.float32)  # [0, 2] and [1, 3] cover 3, [5, 6] covers 1
    np.testing.assert_allclose(head.table(starts, goals), [[4]])
    np.testing.assert_allclose(head.table(goals, starts), [[9]])  # five times [−9, 0]


def test_wrong_sizes_and_names_are_refused():
    with pytest.raises(InputError, match="even number"):
        make_head("mrn", 7)
    with pytest.raises(InputError, match="multiple of 8"):
        make_head("iqe", 12)
    with pytest.raises(InputError, match="'mrn' or 'iqe'"):
        make_head("euclid", 8)
