"""Evaluation of a distance between images against ground-truth poses, which are not used in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from sgm.errors import InputError
from sgm.memory.distance import Distance, between, embed, paired

Ints = NDArray[np.int64]
_ROWS = 256  # frames compared with all others at once


@dataclasses.dataclass(frozen=True)
class Accepted:
    """Quality of the pairs that a threshold accepts as close.

    Attributes:
        recall: requested share of the truly near pairs.
        reached: accepted share of the truly near pairs. It is higher than `recall` if distances are tied, and 1 if all
            pairs that are not close have the same distance.
        threshold: largest accepted distance, steps.
        precision: share of the accepted pairs that are truly near.
        false: share of the accepted pairs that are truly far apart.
    """

    recall: float
    reached: float
    threshold: float
    precision: float
    false: float


@dataclasses.dataclass(frozen=True)
class DistanceQuality:
    """Quality of a distance between images.

    Attributes:
        auc: probability that a pair a few steps apart has a smaller distance than a pair many steps apart in the same
            rollout; a tie counts half. It is an easy task: few of these pairs are different places that look alike.
        accepted: quality of the accepted pairs across rollouts, at each recall.
        pairs: number of pairs across rollouts that were compared.
        near: share of these pairs that are truly near.
    """

    auc: float
    accepted: tuple[Accepted, ...]
    pairs: int
    near: float

    def asdict(self) -> dict[str, Any]:
        """Return the fields as a dict, ready for JSON."""
        return dataclasses.asdict(self)


def evaluate_distance(
    distance: Distance,
    frames: Any,
    poses: ArrayLike,
    *,
    recalls: Sequence[float] = (0.3, 0.1),
    near: float = 100.0,
    heading: float = 45.0,
    far: float = 200.0,
    reach: int = 5,
    apart: int = 25,
    number: int = 3_000,
    pairs: int = 2_000,
    seed: int = 0,
) -> DistanceQuality:
    """Evaluate a distance on rollouts that it was not trained on.

    Args:
        distance: any distance; for a `WindowDistance` over these rollouts pass the frame numbers
            `np.arange(episodes * steps).reshape(episodes, steps)` as frames.
        frames: (episodes, steps, ...) observations.
        poses: (episodes, steps, 3) x and y in map units and heading in degrees.
        recalls: shares of the truly near pairs across rollouts that a threshold must accept.
        near: a pair across rollouts is truly near within this many map units, and within `heading`.
        heading: largest difference in heading of a truly near pair, degrees.
        far: an accepted pair farther apart than this is false, map units.
        reach: for the AUC, a pair at most this many steps apart is close.
        apart: for the AUC, a pair at least this many steps apart is far.
        number: number of random frames; all their pairs across rollouts are compared.
        pairs: number of close pairs for the AUC, and of far pairs.
        seed: seed of the random frames and pairs.
    """
    poses = np.asarray(poses, np.float64)
    if poses.ndim != 3 or poses.shape[2] != 3 or np.shape(frames)[:2] != poses.shape[:2]:
        raise InputError(
            f"frames have shape {np.shape(frames)} and poses {poses.shape}: expected (episodes, steps, ...) and "
            "(episodes, steps, 3)"
        )
    random = np.random.default_rng(seed)
    auc = _auc(distance, frames, random, reach, apart, pairs)
    episodes, length = poses.shape[:2]
    chosen = random.permutation(episodes * length)[:number]
    rows, times = np.divmod(chosen, length)
    embeddings = embed(distance, frames[rows, times], None)
    steps, is_near, is_far = _compare(distance, embeddings, rows, poses[rows, times], near, heading, far)
    if not is_near.any():
        raise InputError(
            f"of {len(chosen)} frames no two of different rollouts are within {near} units and {heading}°: "
            "give more rollouts, or a higher number"
        )
    accepted = tuple(accept(steps, is_near, is_far, recall) for recall in recalls)
    return DistanceQuality(auc, accepted, len(steps), float(is_near.mean()))


def close_pairs(
    random: np.random.Generator, episodes: int, length: int, number: int, reach: int
) -> tuple[Ints, Ints, Ints]:
    """Draw rollouts and two times in each, the second 1 to `reach` steps after the first."""
    lag = random.integers(1, reach + 1, size=number)
    first = random.integers(length - lag)
    return random.integers(episodes, size=number), first, first + lag


def far_pairs(
    random: np.random.Generator, episodes: int, length: int, number: int, apart: int
) -> tuple[Ints, Ints, Ints]:
    """Draw rollouts and two times in each, at least `apart` steps apart, in either order."""
    early = random.integers(length - apart, size=number)
    late = random.integers(early + apart, length)
    swap = random.random(number) < 0.5
    return random.integers(episodes, size=number), np.where(swap, late, early), np.where(swap, early, late)


def _auc(distance: Distance, frames: Any, random: np.random.Generator, reach: int, apart: int, number: int) -> float:
    episodes, length = np.shape(frames)[:2]
    if not 1 <= reach < apart < length:
        raise InputError(f"reach is {reach}, apart is {apart}: expected 1 ≤ reach < apart < {length}, the frames")
    drawn = (
        close_pairs(random, episodes, length, number, reach),
        far_pairs(random, episodes, length, number, apart),
    )
    rows, first, second = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    starts, goals = (embed(distance, frames[rows, times], None) for times in (first, second))
    ranks = rankdata(paired(distance, starts, goals))
    return float((ranks[number:].sum() - number * (number + 1) / 2) / number**2)


def _compare(
    distance: Distance,
    embeddings: NDArray[np.float32],
    rollouts: Ints,
    poses: NDArray[np.float64],
    near: float,
    heading: float,
    far: float,
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """Compare all pairs of frames across rollouts: (p,) steps, and masks of the truly near and the truly far pairs."""
    parts = []
    for begin in range(0, len(rollouts), _ROWS):
        block = slice(begin, begin + _ROWS)
        across = rollouts[block, None] != rollouts
        units = np.hypot(*(poses[block, None, axis] - poses[:, axis] for axis in (0, 1)))[across]
        turn = np.abs((poses[block, None, 2] - poses[:, 2] + 180) % 360 - 180)[across]
        steps = between(distance, embeddings[block], embeddings)[across]
        parts.append((steps, (units <= near) & (turn <= heading), units > far))
    steps, is_near, is_far = (np.concatenate(part) for part in zip(*parts, strict=True))
    return steps, is_near, is_far


def accept(
    steps: NDArray[np.floating[Any]], is_near: NDArray[np.bool_], is_far: NDArray[np.bool_], recall: float
) -> Accepted:
    """Evaluate the smallest threshold that accepts this share of the near pairs.

    Args:
        steps: (n,) distances of pairs.
        is_near: (n,) whether a pair is truly near.
        is_far: (n,) whether a pair is truly far apart.
        recall: share of the near pairs to accept.
    """
    if not 0 < recall <= 1:
        raise InputError(f"recall is {recall}: expected above 0, at most 1")
    threshold = np.quantile(steps[is_near], recall, method="inverted_cdf")
    accepted = steps <= threshold
    return Accepted(
        recall=recall,
        reached=float(accepted[is_near].mean()),
        threshold=float(threshold),
        precision=float(is_near[accepted].mean()),
        false=float(is_far[accepted].mean()),
    )
