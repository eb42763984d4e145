"""The protocol of distances, and checks of the values that they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sgm.errors import DistanceError, InputError

from .arrays import as_array
from .settings import shortened

Floats = NDArray[np.float32]
_DIAGONAL = 16  # without `pairs`, distances of pairs are the diagonals of blocks of this size
_ROUNDING = 1e-5  # rounding error of single precision, as a share of `far`
Features = Callable[[Any], Any]


@runtime_checkable
class Distance(Protocol):
    """Number of steps from one observation to another: asymmetric, finite, never negative.

    A distance may have the following optional attributes, which are used if they exist.

    - `fingerprint` (str): is stored in memory files; a file cannot be opened with a distance of another fingerprint.
    - `pairs(starts, goals)`, (n, e) and (n, e) to (n,) float32: distances of pairs, without the (n, n) table. A
      navigator computes them at every step.
    - `far` (float): the value at which the distance is clipped, steps. Such a value means "at least so many steps", and
      is not used to attach an observation to a node.
    - `noise` (float): standard deviation of the distance, steps.
    - `unchanged_nearby(start, goals, steps, slack)`, (e,), (m, e) and (m,) to (m,) bool: for which goals the distance
      provably stays within `slack` of `steps` while the start moves by up to `unchanged_radius` (float, sup norm).
    - `nearby(start, goals, steps, slack)`: the same for single starts. It returns None, or an object whose
      `undecided(starts)`, (n, e) to (n, m) bool, tells for which goals there is no proof.
    - `differ(starts, goals, steps, slack)`, (n, e), (n, e) and (n,) to (n,) bool: which pairs differ from `steps` by
      `slack` or more; cheaper than `pairs`.
    - `nearest(starts, goals, outgoing=True)`, (n, e) and (m, e) to (n,) numbers and (n,) steps: the nearest goal of
      each start, or with `outgoing=False` the nearest start of each goal; cheaper than the table.
    - `triangle` (True): the triangle inequality d(a, c) ≤ d(a, b) + d(b, c) holds, up to rounding. The distances from
      two places to a node then differ by at most the distance between the places, so `reached` need not compare all
      nodes.
    - `keys(embeddings)`, `probes(embeddings, outgoing)` and `reach(steps)`: make the distance searchable, so that the
      cost of an observation does not depend on the size of the memory; see sgm/memory/search.py.
    - `table(embeddings)`, (n, e) to the (N, N) float32 table of all distances and the (n,) int64 rows of these
      embeddings in it: lets compiled code read single distances; it returns None if there is no such table.
    """

    def embed(self, observations: Any) -> NDArray[Any]:
        """Embed (n, ...) observations: (n, e) float32. This is the costly part, called once for each observation."""
        ...

    def __call__(self, starts: Floats, goals: Floats) -> NDArray[Any]:
        """Return the (n, m) float32 steps from (n, e) to (m, e) embeddings. This is the cheap part."""
        ...


def far_of(distance: Any) -> float | None:
    """Return the value from which on a distance counts as clipped, a little below its `far`; None without `far`."""
    far = getattr(distance, "far", None)
    if isinstance(far, bool) or not isinstance(far, (int, float, np.number)) or not 0 < far < np.inf:
        return None
    return float(far) * (1 - _ROUNDING)


def batch_of_one(observation: Any) -> NDArray[Any]:
    """Return one observation as a batch: (...) to (1, ...)."""
    return as_array("an observation", observation)[None]


def count(observations: Any) -> int:
    """Number of observations in a batch; InputError if it is not a batch."""
    listed = isinstance(observations, Sized) and hasattr(observations, "__getitem__")
    if not listed or isinstance(observations, Mapping) or getattr(observations, "ndim", 1) == 0:
        raise InputError(
            f"observations is {shortened(observations)}: expected a batch, (n, ...). For a single observation call "
            "add()."
        )
    return len(observations)


def embed(distance: Distance, observations: Any, width: int | None) -> Floats:
    """Embed a batch and check it: (n, ...) to (n, e) float32, with e = `width` unless that is None."""
    vectors = _vectors(_asked(distance.embed, observations, "distance.embed"), count(observations), "distance.embed")
    if width is not None and vectors.shape[1] != width:
        raise DistanceError(
            f"distance.embed returned embeddings of size {vectors.shape[1]}, but this memory holds embeddings of size "
            f"{width}. Use the distance the memory was built with, or start a new memory."
        )
    return vectors


def compute_features(function: Features, observations: Any, width: int | None) -> Floats:
    """Apply φ to a batch and check it: (n, ...) to (n, f) float32, with f = `width` unless that is None."""
    vectors = _vectors(_asked(function, observations, "features"), count(observations), "features")
    if width is not None and vectors.shape[1] != width:
        raise DistanceError(
            f"features returned vectors of size {vectors.shape[1]}, but this memory holds features of size {width}."
        )
    return vectors


def between(distance: Distance, starts: Floats, goals: Floats) -> Floats:
    """Compute and check all distances from `starts` (n, e) to `goals` (m, e): (n, m) float32 steps."""
    if not len(starts) or not len(goals):
        return np.empty((len(starts), len(goals)), np.float32)
    steps = _as_float32(distance(starts, goals), "distance")
    if steps.shape != (len(starts), len(goals)):
        raise DistanceError(
            f"distance returned an array of shape {steps.shape} for {len(starts)} starts and {len(goals)} goals: "
            f"expected {(len(starts), len(goals))}."
        )
    # A NaN makes both comparisons false, so minimum and maximum suffice to find any invalid value.
    if not (steps.min() >= 0 and steps.max() < np.inf):
        row, column = np.argwhere(~(np.isfinite(steps) & (steps >= 0)))[0]
        raise DistanceError(
            f"distance returned {steps[row, column]} from start {row} to goal {column} of a block: a distance is a "
            "finite number of steps, 0 or more. Clip it (for example at the longest episode) before giving it here."
        )
    return steps


def paired(distance: Distance, starts: Floats, goals: Floats) -> Floats:
    """Compute and check the distance of each pair of start and goal: (n, e) and (n, e) to (n,) float32 steps."""
    function = getattr(distance, "pairs", None)
    if function is None:
        parts = range(0, len(starts), _DIAGONAL)
        blocks = [between(distance, starts[low : low + _DIAGONAL], goals[low : low + _DIAGONAL]) for low in parts]
        return np.concatenate([np.diagonal(block) for block in blocks]) if blocks else np.empty(0, np.float32)
    steps = _as_float32(function(starts, goals), "distance.pairs")
    if steps.shape != (len(starts),):
        raise DistanceError(f"distance.pairs returned an array of shape {steps.shape}: expected {(len(starts),)}")
    if len(steps) and not (steps.min() >= 0 and steps.max() < np.inf):
        bad = steps[~(np.isfinite(steps) & (steps >= 0))][0]
        raise DistanceError(f"distance.pairs returned {bad}: a distance is a finite number of steps, 0 or more")
    return steps


def differing(distance: Distance, starts: Floats, goals: Floats, steps: Floats, slack: np.float32) -> NDArray[np.bool_]:
    """(n,) whether the distance of each pair of start and goal differs from (n,) `steps` by `slack` or more."""
    function = getattr(distance, "differ", None)
    if function is None:
        return np.asarray(np.abs(paired(distance, starts, goals) - steps) >= slack)
    told = np.asarray(function(starts, goals, steps, float(slack)))
    if told.shape != (len(starts),) or told.dtype != np.bool_:
        raise DistanceError(
            f"distance.differ returned an array of shape {told.shape} and dtype {told.dtype}: expected "
            f"({len(starts)},) bool"
        )
    return told


def nearest(distance: Distance, starts: Floats, goals: Floats, outgoing: bool = True) -> tuple[NDArray[Any], Floats]:
    """Find the nearest goal of each start and the steps to it, checked; or the nearest start of each goal.

    Of equally near ones, the first is returned.
    """
    function = getattr(distance, "nearest", None)
    if function is None:
        table = between(distance, starts, goals)
        table = table if outgoing else table.T
        place = table.argmin(axis=1)
        return place.astype(np.int64), table[np.arange(len(place)), place]
    place, steps = function(starts, goals, outgoing=outgoing)
    place, steps = np.asarray(place), _as_float32(steps, "distance.nearest")
    asked, others = (len(starts), len(goals)) if outgoing else (len(goals), len(starts))
    if not place.shape == steps.shape == (asked,) or place.dtype.kind not in "iu":
        raise DistanceError(
            f"distance.nearest returned arrays of shape {place.shape} and {steps.shape}: expected ({asked},) numbers "
            f"and ({asked},) steps"
        )
    if asked and not (place.min() >= 0 and place.max() < others and steps.min() >= 0 and steps.max() < np.inf):
        raise DistanceError(
            f"distance.nearest returned numbers from {place.min()} to {place.max()} and steps from {steps.min()} to "
            f"{steps.max()}: expected numbers below {others}, and finite steps, 0 or more"
        )
    return place.astype(np.int64), steps


def _asked(function: Features, observations: Any, name: str) -> Any:
    """Call a user's function with observations; its ValueError or OverflowError becomes a DistanceError."""
    try:
        return function(observations)
    except (ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise DistanceError(f"{name} does not accept these observations: {error}") from error


def _vectors(values: Any, expected: int, name: str) -> Floats:
    vectors = _as_float32(values, name)
    if vectors.ndim != 2 or len(vectors) != expected or (expected and not vectors.shape[1]):
        raise DistanceError(
            f"{name} returned an array of shape {vectors.shape} for {expected} observations: expected ({expected}, e) "
            "with one row for each observation and e at least 1."
        )
    if not np.isfinite(vectors).all():
        row, column = np.argwhere(~np.isfinite(vectors))[0]
        raise DistanceError(f"{name} returned {vectors[row, column]} for observation {row} of a block: expected finite")
    return vectors


def _as_float32(values: Any, name: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DistanceError(f"{name} returned a value that cannot be an array: {error}") from None
    if array.dtype.kind not in "fiub":
        raise DistanceError(f"{name} returned an array of dtype {array.dtype}: expected real numbers (float32).")
    return np.asarray(array, np.float32, order="C")
