"""Episodes laid out on one plane by their own motion and pairs of observations that are taken for the same place.

Headings first (angular synchronisation by an eigenvector, then reweighted), then positions (linear least squares).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, diags_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from .motion import Floats, wrapped

Ints = NDArray[np.int64]
_POWERS, _ROUNDS = 200, 12  # of the eigenvector, and of reweighted headings after it
_SPREAD = np.radians(20.0)  # of headings at one place
_LEAST = 1e-3  # of a pair's weight that joins episodes at all


class Layout:
    """What pairs and own motion say about where episodes lie to each other."""

    def __init__(self, poses: Floats, episodes: Ints, pairs: Ints, near: float, drift: float) -> None:
        """Prepare the problem.

        Args:
            poses: (n, 3) by own motion, each episode in a frame of its own.
            episodes: (n,).
            pairs: (m, 2) rows, one pair or more.
            near: how far apart the observations of a true pair are, units of the poses.
            drift: how far wrong own motion is, as a share of the way.
        """
        labels = np.unique(episodes, return_inverse=True)[1]
        self.ends = labels[pairs]  # (m, 2) episodes
        self.turned = wrapped(poses[pairs[:, 0], 2] - poses[pairs[:, 1], 2])  # that the second must be turned by
        self.count, self.near = int(labels.max()) + 1, near
        # Only observations that pairs end at are unknowns; the way between two of them is one link.
        rows, index = np.unique(pairs, return_inverse=True)
        self.index, self.labels = index.reshape(pairs.shape), labels[rows]
        self.poses = poses[rows]
        self.link = np.flatnonzero(self.labels[1:] == self.labels[:-1])
        way = np.concatenate([[0.0], np.cumsum(np.square(np.diff(poses[:, :2], axis=0)).sum(axis=1))])
        passed = way[rows[self.link + 1]] - way[rows[self.link]]
        self.trust = 1.0 / (drift**2 * passed + (0.05 * near) ** 2)

    def residuals(self, weights: Floats) -> tuple[Floats, Floats, float]:
        """How far headings (radians) and places (units) of pairs are off, (m,) each; and how far those of any two are.

        Both are nan for a pair that nothing joins but pairs that are not trusted at all. The last number is the
        standard deviation along one axis between one end of a pair and the other end of another: what any two places of
        the layout are apart.

        Args:
            weights: (m,) how far each pair is trusted, 0 to 1.
        """
        used = weights > _LEAST
        graph = coo_array((np.ones(int(used.sum())), tuple(self.ends[used].T)), shape=(self.count, self.count))
        part = connected_components(graph, directed=False)[1]
        joined = part[self.ends[:, 0]] == part[self.ends[:, 1]]
        angle = self._headings(weights)
        off = wrapped(angle[self.ends[:, 0]] + self.turned - angle[self.ends[:, 1]])
        at = self._positions(angle, weights / np.square(1.0 + np.square(off / (2 * _SPREAD))))
        one, other = at[self.index[:, 0]], at[self.index[:, 1]]
        shuffled = np.random.default_rng(0).permutation(len(other))
        mixed = joined & joined[shuffled] & (part[self.ends[:, 0]] == part[self.ends[shuffled, 1]])
        anywhere = float(np.sqrt(np.mean(np.square(one - other[shuffled])[mixed]))) if mixed.any() else np.inf
        apart = np.hypot(*(one - other).T)
        return np.where(joined, np.abs(off), np.nan), np.where(joined, apart, np.nan), anywhere

    def _headings(self, weights: Floats) -> Floats:
        """(episodes,) what to turn each episode by, radians: b's minus a's should be h_a − h_b."""
        one, other = self.ends.T
        match = np.exp(-1j * self.turned)
        random = np.random.default_rng(0)
        state = random.normal(size=(self.count, 2)) @ np.array([1.0, 1j])
        step = self._averaging(weights * match)
        for _ in range(_POWERS):  # of I + D⁻¹ M, whose leading eigenvector is the synchronised state
            state = state + step @ state
            state /= np.linalg.norm(state)
        state = _unit(state)
        for _ in range(_ROUNDS):
            off = np.angle(state[one] * np.conj(match) * np.conj(state[other]))
            state = _unit(state + self._averaging(weights / np.square(1.0 + np.square(off / _SPREAD)) * match) @ state)
        return np.asarray(np.angle(state))

    def _averaging(self, values: NDArray[np.complex128]) -> csr_array:
        """(episodes, episodes): what the others say of each episode's heading, averaged by the weight of pairs."""
        shape = self.count, self.count
        product = csr_array(coo_array((values, tuple(self.ends.T)), shape=shape))
        product = csr_array(product + product.conj().T)
        degree = np.asarray(abs(product).sum(axis=1)).ravel()
        return csr_array(diags_array(1.0 / np.maximum(degree, 1e-12)) @ product)

    def _positions(self, angle: Floats, weights: Floats) -> Floats:
        """(unknowns, 2) places by least squares over own motion and pairs."""
        turn = angle[self.labels]
        cos, sin = np.cos(turn), np.sin(turn)
        x, y = self.poses[:, 0], self.poses[:, 1]
        own = np.stack([x * cos - y * sin, x * sin + y * cos], axis=1)
        size, link = len(own), self.link
        moved = (own[link + 1] - own[link]) * self.trust[:, None]
        right = np.zeros((size, 2))
        np.add.at(right, link + 1, moved)
        np.add.at(right, link, -moved)
        starts = np.concatenate([link, self.index[:, 0]])
        ends = np.concatenate([link + 1, self.index[:, 1]])
        matrix = _laplacian(size, starts, ends, np.concatenate([self.trust, weights / self.near**2]))
        ridge = eye_array(size, format="csc") * (1e-9 * float(self.trust.mean()) if len(link) else 1e-9)
        return np.asarray(splu((matrix + ridge).tocsc()).solve(right))


def _laplacian(size: int, starts: Ints, ends: Ints, weights: Floats) -> csc_array:
    """The weighted graph Laplacian, (size, size)."""
    values = np.concatenate([weights, weights, -weights, -weights])
    rows, columns = np.concatenate([starts, ends, starts, ends]), np.concatenate([starts, ends, ends, starts])
    return csc_array(coo_array((values, (rows, columns)), shape=(size, size)))


def _unit(state: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Complex numbers of length 1."""
    size = np.abs(state)
    return np.where(size > 1e-300, state / np.maximum(size, 1e-300), 1.0)
