"""Verify edges by odometry: estimate without ground truth how likely the two ends of an edge are the same place.

An edge joins two observations, often of two episodes. If both were made in one place, the observations around them must
agree wherever the agent's own motion (odometry, or dead reckoning from its actions) leads to the same place, and the
relative pose of the two episodes must agree with all other edges. So there are three views of an edge:

- surroundings: both stretches of motion are overlaid, and observations at the same place are compared;
- heading: the disagreement of headings after all episodes are rotated so that edges agree;
- place: the distance between its ends after all episodes are laid out on one plane.

Expectation maximisation finds how informative each view is, and the share of true edges: true edges agree in all three
views; false ones look less alike, and have any heading and any distance. So the number of removed edges follows from
the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError
from sgm.memory import SparseGraphicalMemory

from .layout import Layout
from .motion import Floats
from .surroundings import Ints, Overlap, Similarity, Surroundings

_ROUNDS = 4  # iterations that update layout and belief in turn
_BEGIN = 0.8  # initial probability of every pair
# Largest log odds of each view. Those of places grow with the accuracy of odometry: 3 / √drift, up to 6.
_MOST = {"surroundings": 6.0, "heading": 3.0, "place": 3.0}
_MOST_OF_PLACE = 6.0


@dataclasses.dataclass(frozen=True)
class Verification:
    """Result of verifying pairs of observations by odometry.

    Attributes:
        pairs: (m, 2) rows of the exploration.
        posterior: (m,) probability that both observations were made in one place.
        score: (m,) log odds of the three views, before the share of true pairs is included.
        surroundings: (m,) similarity of the surroundings; NaN if no observations overlap.
        heading: (m,) disagreement of headings in the layout of all pairs, radians; NaN if no trusted pair joins the two
            episodes.
        place: (m,) distance of the two in the layout of all pairs, units of the poses; NaN in the same cases.
        proven: (m,) bool: a few steps apart in one episode, and so true without verification.
        true_share: estimated share of true pairs among those that are not proven.
        calibration: estimated parameters of each view, ready for JSON.
    """

    pairs: Ints
    posterior: Floats
    score: Floats
    surroundings: Floats
    heading: Floats
    place: Floats
    proven: NDArray[np.bool_]
    true_share: float
    calibration: Mapping[str, Any]

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pairs)

    def __repr__(self) -> str:
        """Summary: the number of pairs, and of those that are probably false."""
        false = int((self.posterior < 0.5).sum())
        return f"<Verification: {len(self):,} pairs, {false:,} more likely false than true>"


def verify(
    pairs: ArrayLike,
    poses: ArrayLike,
    embeddings: ArrayLike,
    episodes: ArrayLike,
    *,
    similarity: Similarity | None = None,
    reach: int = 8,
    window: int = 30,
    radius: float | None = None,
    angle: float = 45.0,
    drift: float = 0.5,
) -> Verification:
    """Estimate the probability that the two observations of each pair were made in one place.

    Args:
        pairs: (m, 2) rows of the exploration.
        poses: (n, 3) x, y and heading in radians of every observation by odometry, each episode in its own frame (see
            `dead_reckon`); or (n, 2) positions if all episodes share a compass.
        embeddings: (n, e) embeddings of the observations, by which similarity is measured.
        episodes: (n,) episode of each observation; never decreasing.
        similarity: (n, e) and (m, e) embeddings to (n, m) similarities, larger is more alike; None: their cosine. For a
            distance give `lambda a, b: -distance(a, b)`.
        reach: observations of one episode at most so many steps apart count as one place, as those of an edge do.
        window: number of observations on either side whose surroundings are compared.
        radius: distance within which two observations are in one place, units of the poses; None: the 90 % quantile of
            the distance covered in `reach` steps.
        angle: difference within which headings count as the same, degrees.
        drift: error of odometry, as a share of the distance travelled; about 0.1 for odometry, 1 for dead reckoning
            that ignores walls.
    """
    rows, track, vectors, labels = _checked(pairs, poses, embeddings, episodes)
    if reach < 1 or window < 1 or not 0 < angle <= 180 or not drift > 0:
        raise InputError(
            f"reach is {reach}, window {window}, angle {angle}, drift {drift}: expected 1 or more, 1 or more, degrees "
            "over 0 up to 180, and over 0"
        )
    near = _stride(track, labels, reach) if radius is None else float(radius)
    if not 0 < near < np.inf:
        raise InputError(f"the radius is {near}: expected a length over 0; poses must move within episodes")
    overlap = Overlap(window, near, np.radians(angle), near / 4)
    view = Surroundings(vectors, track, labels, overlap, similarity)
    inside = labels[rows[:, 0]] == labels[rows[:, 1]]
    proven = inside & (np.abs(rows[:, 0] - rows[:, 1]) <= 2 * window)
    return _judge(view, rows, proven, drift)


def _judge(view: Surroundings, rows: Ints, proven: NDArray[np.bool_], drift: float) -> Verification:
    """Verify the pairs that are not proven, and return the result for all pairs."""
    asked, near = rows[~proven], view.overlap.radius
    alike = view.score(asked[:, 0], asked[:, 1])[0]
    heading, place, score = np.full((3, len(asked)), np.nan)
    belief, share, facts = np.full(len(asked), _BEGIN), _BEGIN, {"radius": near}
    if len(asked):
        layout = Layout(view.poses, view.episodes, asked, near, drift)
        for _ in range(_ROUNDS):
            heading, place, anywhere = layout.residuals(belief)
            turned, facts["heading"] = _of_heading(heading, belief, view.overlap.angle)
            apart, facts["place"] = _of_place(place, belief, near, anywhere, drift)
            for _ in range(10):
                looks, line = _of_surroundings(alike, belief)
                score = looks + turned + apart
                share, belief = _mixed(score)
        facts |= {"anywhere": anywhere, **line}
    facts |= {"true_share": share, "judged": len(asked)}
    found = {"posterior": belief, "score": score, "surroundings": alike, "heading": heading, "place": place}
    known = {"posterior": 1.0, "score": np.inf}
    full = {name: np.full(len(rows), known.get(name, np.nan)) for name in found}
    for name, values in found.items():
        full[name][~proven] = values
    return Verification(rows, **full, proven=proven, true_share=share, calibration=facts)


# -- log odds of each view ---------------------------------------------------------------------------------------


def _of_surroundings(alike: Floats, belief: Floats) -> tuple[Floats, dict[str, float]]:
    """Log odds of the similarity of surroundings: two normal distributions of equal width, weighted by the belief."""
    known = np.isfinite(alike)
    values, true = alike[known], belief[known]
    false = 1.0 - true
    if not len(values) or min(true.sum(), false.sum()) < 1e-3:
        return np.zeros(len(alike)), {}
    high, low = np.average(values, weights=true), np.average(values, weights=false)
    width = float(np.mean(true * (values - high) ** 2 + false * (values - low) ** 2)) + 1e-12
    slope = max(0.0, float(high - low)) / width
    odds = np.where(known, slope * (np.nan_to_num(alike) - (high + low) / 2), 0.0)
    facts = {"alike_true": float(high), "alike_false": float(low), "alike_spread": width**0.5}
    return np.clip(odds, -_MOST["surroundings"], _MOST["surroundings"]), facts


def _of_heading(off: Floats, belief: Floats, angle: float) -> tuple[Floats, float]:
    """Log odds of the disagreement of headings, and its spread: normal for true pairs, uniform for false ones."""
    known = np.isfinite(off)
    spread = float(np.clip(_median(off[known], belief[known]) / 0.674, np.radians(5), angle))
    ratio = np.log(np.sqrt(2 * np.pi) / spread) - np.square(off / spread) / 2
    return np.clip(np.where(known, ratio, 0.0), -_MOST["heading"], _MOST["heading"]), spread


def _of_place(off: Floats, belief: Floats, near: float, anywhere: float, drift: float) -> tuple[Floats, float]:
    """Log odds of the distance in the layout, and its spread: that of true pairs against that of any two places."""
    known = np.isfinite(off)
    spread = max(near / 4, _median(off[known], belief[known]) / 1.177)
    if not spread < 0.9 * anywhere < np.inf:
        return np.zeros(len(off)), spread
    ratio = 2 * np.log(anywhere / spread) - np.square(off) / 2 * (spread**-2 - anywhere**-2)
    most = min(_MOST_OF_PLACE, _MOST["place"] / np.sqrt(drift))
    return np.clip(np.where(known, ratio, 0.0), -most, most), spread


def _median(values: Floats, weights: Floats) -> float:
    """Weighted median, which a few false pairs hardly change; 0 without values."""
    order = np.argsort(values, kind="stable")
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, passed[-1] / 2)]) if len(values) else 0.0


def _mixed(odds: Floats) -> tuple[float, Floats]:
    """Return the share of true pairs and the posterior of each pair, by expectation maximisation over the share."""
    share = _BEGIN
    if not len(odds):
        return share, np.empty(0)
    for _ in range(100):
        belief = _sigmoid(odds + np.log(share / (1 - share)))
        share = float(np.clip((belief.sum() + 1.0) / (len(odds) + 2.0), 0.05, 0.995))
    return share, _sigmoid(odds + np.log(share / (1 - share)))


def _sigmoid(values: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(values, -500, 500)))


# -- edges of a memory -------------------------------------------------------------------------------------------


def verify_edges(
    memory: SparseGraphicalMemory,
    poses: ArrayLike,
    embeddings: ArrayLike,
    episodes: ArrayLike,
    *,
    filtered: bool = True,
    **how: Any,
) -> Verification:
    """Verify the edges of a memory that are not removed; pairs are the observations of their nodes, each pair once.

    Args:
        memory: a memory built from the whole exploration in order, so that node i keeps observation `memory.nodes[i]`.
        poses: see `verify`.
        embeddings: see `verify`.
        episodes: see `verify`.
        filtered: only the edges that pass the k-nearest filter; False: all, as `prune_doubtful` needs them.
        how: the other settings of `verify`.
    """
    edges, kept = memory.edges(filtered), memory.nodes
    ends = np.sort(np.stack([kept[edges.source], kept[edges.target]], axis=1), axis=1)
    return verify(np.unique(ends, axis=0), poses, embeddings, episodes, **how)


def remove_doubtful(memory: SparseGraphicalMemory, found: Verification, *, below: float = 0.5) -> int:
    """Remove the edges whose probability of being true is lower than `below`, in both directions; return how many.

    They are removed by hand, as events of the memory; `memory.restore()` restores them.
    """
    edges, odds = memory.edges(), edge_posteriors(memory, found)
    with memory.group():
        return sum(memory.remove(int(edges.source[i]), int(edges.target[i])) for i in np.flatnonzero(odds < below))


def prune_doubtful(memory: SparseGraphicalMemory, found: Verification, *, below: float = 0.5) -> SparseGraphicalMemory:
    """Return a copy of a memory without the edges whose probability of being true is lower than `below`.

    Unlike removed edges, these make room: the next nearest successors of a node take their places among the k, see
    `memory.pruned`. `found` is the result of `verify_edges(..., filtered=False)`.
    """
    edges, odds = memory.edges(filtered=False), edge_posteriors(memory, found, filtered=False)
    return memory.pruned(edges.source[odds < below], edges.target[odds < below])


def record_doubts(memory: SparseGraphicalMemory, found: Verification, *, tries: int = 4) -> int:
    """Record the verification as up to `tries` tries of each edge; return the number of tries recorded.

    An edge that is as likely true as false gets none, a certain one `tries` successes or failures. It is meant for the
    policy "belief", which then plans around doubtful edges until cleanup has tried them; the policy "first-failure"
    removes every edge for which a failure is recorded.
    """
    edges, odds = memory.edges(), edge_posteriors(memory, found)
    number = np.rint(tries * (2 * odds - 1)).astype(np.int64)
    times = np.abs(number)
    each = np.repeat(np.arange(len(odds)), times)
    memory.record_many(edges.source[each], edges.target[each], number[each] > 0)
    return int(times.sum())


def edge_posteriors(memory: SparseGraphicalMemory, found: Verification, filtered: bool = True) -> Floats:
    """(E,) posterior of each of `memory.edges(filtered)`; InputError if one was not verified."""
    edges, kept = memory.edges(filtered), memory.nodes
    ends = np.sort(np.stack([kept[edges.source], kept[edges.target]], axis=1), axis=1)
    size = int(max(ends.max(initial=0), found.pairs.max(initial=0))) + 1
    keys, asked = found.pairs.min(axis=1) * size + found.pairs.max(axis=1), ends[:, 0] * size + ends[:, 1]
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], asked), max(0, len(keys) - 1))
    if len(asked) and (not len(keys) or (keys[order][at] != asked).any()):
        raise InputError(
            "the verification does not include every edge of the memory: call verify_edges with this memory"
        )
    return found.posterior[order][at] if len(asked) else np.empty(0)


def _checked(
    pairs: ArrayLike, poses: ArrayLike, embeddings: ArrayLike, episodes: ArrayLike
) -> tuple[Ints, Floats, NDArray[np.float32], Ints]:
    """Check the arrays and return them, poses with a heading."""
    labels, track, vectors = np.asarray(episodes), np.asarray(poses, np.float64), np.asarray(embeddings, np.float32)
    number = len(labels) if labels.ndim == 1 else -1
    fits = (
        track.ndim == 2 and track.shape in ((number, 2), (number, 3)) and vectors.ndim == 2 and len(vectors) == number
    )
    if not fits or labels.dtype.kind not in "iu" or not number:
        raise InputError(
            f"poses, embeddings and episodes have shapes {track.shape}, {vectors.shape} and {labels.shape}: expected "
            "(n, 3) or (n, 2), (n, e) and (n,) whole numbers, one row for each observation"
        )
    if (np.diff(labels) < 0).any() or not np.isfinite(track).all():
        raise InputError("episodes decrease or poses are not finite: expected one episode after the other, in order")
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or (rows.size and rows.dtype.kind not in "iu"):
        raise InputError(f"pairs have shape {rows.shape} and dtype {rows.dtype}: expected (m, 2) whole numbers")
    rows = rows.astype(np.int64)
    if rows.size and not (rows.min() >= 0 and rows.max() < number):
        raise InputError(f"pairs name rows {rows.min()} to {rows.max()}: expected rows from 0 to {number - 1}")
    track = track if track.shape[1] == 3 else np.column_stack([track, np.zeros(number)])
    return rows, track, vectors, labels.astype(np.int64)


def _stride(poses: Floats, episodes: Ints, reach: int) -> float:
    """Return the 90 % quantile of the distance covered in `reach` steps, units of the poses."""
    inside = episodes[reach:] == episodes[:-reach]
    if not inside.any():
        raise InputError(f"no episode has more than {reach} steps: give a radius, or a smaller reach")
    ahead = (poses[reach:, :2] - poses[:-reach, :2])[inside]
    return float(np.quantile(np.hypot(*ahead.T), 0.9))
