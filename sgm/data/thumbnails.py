"""Thumbnails: images small enough to store with every node of a memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDES = (64, 48, 32, 24)  # pixels of the longer side, the largest for which all thumbnails together have room
ROOM = 16 * 2**20  # bytes of all thumbnails of a memory together
_BLOCK = 256
_LEAST = 8  # pixels of a side: what is smaller is a table of numbers

Images = NDArray[np.uint8]


def are_images(observations: Any) -> bool:
    """Whether observations are images: (n, height, width[, 1 or 3]), uint8 or floats from 0 to 1."""
    shape, dtype = np.shape(observations), getattr(observations, "dtype", None)
    if dtype is None or len(shape) not in (3, 4) or min(shape[1:3]) < _LEAST or shape[3:] not in ((), (1,), (3,)):
        return False
    if dtype == np.uint8 or not len(observations):
        return bool(dtype == np.uint8)
    some = np.asarray(observations[:: max(1, len(observations) // 16)])
    return dtype.kind == "f" and bool((some >= 0).all() and (some <= 1).all())


def side_for(number: int, shape: tuple[int, ...]) -> int:
    """Pixels of the longer side for `number` thumbnails of images of shape (height, width, ...)."""
    for side in SIDES:
        height, width = size_within(shape, side)
        if number * height * width * 3 <= ROOM:
            return side
    return SIDES[-1]


def size_within(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Height and width of an image of this shape, scaled to at most `side` pixels on the longer side."""
    height, width = shape[:2]
    share = min(1.0, side / max(height, width))
    return max(1, round(height * share)), max(1, round(width * share))


def thumbnails(images: Any, side: int | None = None) -> Images:
    """(n, height, width[, 1 or 3]) images, see `are_images`, as (n, h, w, 3) uint8 with at most `side` pixels a side.

    Each pixel is the mean of the area that it covers; images are never enlarged. `side` None: `side_for`.
    """
    shape = np.shape(images)
    height, width = size_within(shape[1:], side_for(len(images), shape[1:]) if side is None else side)
    rows, columns = _means(shape[1], height), _means(shape[2], width)
    small = np.empty((shape[0], height, width, 3), np.uint8)
    for low in range(0, shape[0], _BLOCK):
        part = np.asarray(images[low : low + _BLOCK])
        scale = 1.0 if part.dtype == np.uint8 else 255.0
        part = part.reshape(*part.shape[:3], -1).astype(np.float32)
        mean = np.einsum("hy,nyxc,wx->nhwc", rows, part, columns, optimize=True) * scale
        small[low : low + _BLOCK] = np.clip(np.rint(mean), 0, 255)  # one grey channel becomes three
    return small


def _means(before: int, after: int) -> NDArray[np.float32]:
    """(after, before) weights of the old pixels in each new pixel."""
    edges = np.arange(after + 1) * (before / after)
    low, high = edges[:-1, None], edges[1:, None]
    overlap = np.clip(np.minimum(high, np.arange(1, before + 1)) - np.maximum(low, np.arange(before)), 0, 1)
    return np.asarray(overlap / overlap.sum(axis=1, keepdims=True), np.float32)
