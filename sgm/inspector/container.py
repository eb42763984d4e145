"""Binary messages with the arrays of the page, which are smaller than JSON.

Bytes 0 to 3 are "SGMI", 4 to 7 the length H of the header (little-endian). The header is JSON, padded with spaces so
that 8 + H is a multiple of 8: facts, and for each array its name, dtype, shape and offset in the data that follow.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"SGMI"
DTYPES = {"f32": "<f4", "u32": "<u4", "u8": "u1"}
_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


def pack(arrays: Mapping[str, NDArray[Any]], **facts: Any) -> bytes:
    """Encode float32, uint32 and uint8 arrays, and facts that JSON can hold, as one message."""
    places: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        kind = _NAMES[array.dtype.newbyteorder("<")]
        blob = np.ascontiguousarray(array, DTYPES[kind]).tobytes()
        blob += bytes(-len(blob) % 4)
        places.append({"name": name, "dtype": kind, "shape": list(array.shape), "offset": offset})
        blobs.append(blob)
        offset += len(blob)
    header = json.dumps({**facts, "arrays": places}).encode()
    header += b" " * (-(8 + len(header)) % 8)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *blobs])


def unpack(message: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Decode the arrays and facts of a message; the inverse of `pack`."""
    if message[:4] != MAGIC:
        raise ValueError(f"the message begins with {message[:4]!r}: expected {MAGIC!r}")
    (length,) = struct.unpack("<I", message[4:8])
    facts = json.loads(message[8 : 8 + length])
    arrays = {}
    for place in facts.pop("arrays"):
        number = int(np.prod(place["shape"]))
        flat = np.frombuffer(message, DTYPES[place["dtype"]], number, 8 + length + place["offset"])
        arrays[place["name"]] = flat.reshape(place["shape"])
    return arrays, facts


def short(values: NDArray[Any], bits: int = 12) -> NDArray[np.float32]:
    """Round numbers to `bits` binary digits, which is exact enough for drawing, and compresses well."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits).astype(np.float32)
