"""Lay out episodes on one plane, by odometry and by pairs of observations that may be the same place.

First headings (angular synchronisation by an eigenvector, then by reweighting), then positions (linear least squares).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, diags_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from .motion import Floats, wrapped

Ints = NDArray[np.int64]
_POWERS, _ROUNDS = 200, 12  # power iterations for the eigenvector, and iterations of reweighting after them
_SPREAD = np.radians(20.0)  # spread of headings at one place
_LEAST = 1e-3  # smallest weight of a pair that joins episodes


class Layout:
    """The relative poses of episodes, estimated from pairs and odometry."""

    def __init__(self, poses: Floats, episodes: Ints, pairs: Ints, near: float, drift: float) -> None:
        """Prepare the problem.

        Args:
            poses: (n, 3) poses by odometry, each episode in its own frame.
            episodes: (n,) episode of each observation.
            pairs: (m, 2) rows of pairs, at least one.
            near: distance of the observations of a true pair, units of the poses.
            drift: error of odometry, as a share of the distance travelled.
        """
        labels = np.unique(episodes, return_inverse=True)[1]
        self.ends = labels[pairs]  # (m, 2) episodes
        self.turned = wrapped(poses[pairs[:, 0], 2] - poses[pairs[:, 1], 2])  # relative turn of the second episode
        self.count, self.near = int(labels.max()) + 1, near
        # Only observations of pairs are unknowns; the motion between two of them in an episode is one link.
        rows, index = np.unique(pairs, return_inverse=True)
        self.index, self.labels = index.reshape(pairs.shape), labels[rows]
        self.poses = poses[rows]
        self.link = np.flatnonzero(self.labels[1:] == self.labels[:-1])
        way = np.concatenate([[0.0], np.cumsum(np.square(np.diff(poses[:, :2], axis=0)).sum(axis=1))])
        passed = way[rows[self.link + 1]] - way[rows[self.link]]
        self.trust = 1.0 / (drift**2 * passed + (0.05 * near) ** 2)

    def residuals(self, weights: Floats) -> tuple[Floats, Floats, float]:
        """Lay out the episodes; return the (m,) heading errors (radians) and (m,) distances of pairs, and a scale.

        The first two are NaN for a pair whose episodes are joined only by pairs without weight. The scale is the
        standard deviation along one axis between places of different pairs: the typical distance of any two places in
        the layout.

        Args:
            weights: (m,) trust in each pair, 0 to 1.
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
        """(episodes,) rotation of each episode, radians; for a pair (a, b), that of b minus that of a is h_a − h_b."""
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
        """(episodes, episodes) matrix that averages the headings of an episode implied by its pairs, by weight."""
        shape = self.count, self.count
        product = csr_array(coo_array((values, tuple(self.ends.T)), shape=shape))
        product = csr_array(product + product.conj().T)
        degree = np.asarray(abs(product).sum(axis=1)).ravel()
        return csr_array(diags_array(1.0 / np.maximum(degree, 1e-12)) @ product)

    def _positions(self, angle: Floats, weights: Floats) -> Floats:
        """(unknowns, 2) positions, by least squares over odometry and pairs."""
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
    """Return the weighted graph Laplacian, (size, size)."""
    values = np.concatenate([weights, weights, -weights, -weights])
    rows, columns = np.concatenate([starts, ends, starts, ends]), np.concatenate([starts, ends, ends, starts])
    return csc_array(coo_array((values, (rows, columns)), shape=(size, size)))


def _unit(state: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Normalise complex numbers to length 1; zero becomes 1."""
    size = np.abs(state)
    return np.where(size > 1e-300, state / np.maximum(size, 1e-300), 1.0)
