"""Encoding of small images as PNG, without an imaging library."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = {1: 0, 3: 2, 4: 6}  # channels to PNG's colour types


def encode(image: NDArray[Any]) -> bytes:
    """Encode an (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) uint8 image as PNG."""
    pixels = image[..., None] if image.ndim == 2 else image
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with its filter type: none
    rows[:, 1:] = pixels.reshape(height, -1)
    size = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    data = zlib.compress(rows.tobytes(), 6)
    return _SIGNATURE + _chunk(b"IHDR", size) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def is_image(rows: NDArray[Any]) -> bool:
    """Whether (V, ...) values are images that `encode` accepts."""
    return rows.dtype == np.uint8 and rows.ndim in (3, 4) and (rows.ndim == 3 or rows.shape[3] in _COLOURS)
