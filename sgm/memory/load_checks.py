"""Check that an existing file was made with the distance and the settings that it is opened with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from sgm.errors import InputError, StoreError

from .distance import Distance, between
from .read import Contents
from .settings import Settings, off_is_infinite, shortened

_SAMPLE = 64  # stored edges whose distance is computed again


def check_distance(path: Path, contents: Contents, distance: Distance) -> None:
    """Raise StoreError if a file was made with another distance.

    The fingerprints are compared, and the distances of a sample of the stored edges are computed again.
    """
    stored, given = contents.meta["fingerprint"], getattr(distance, "fingerprint", None)
    if stored is not None and given is not None and stored != given:
        raise StoreError(f"{path} was made with another distance: fingerprint {stored}, not {given}")
    graph, embedding = contents.graph, contents.nodes.embedding
    known = np.flatnonzero(np.isfinite(graph.distance.values))
    if not len(known):
        return
    sample = known[np.linspace(0, len(known) - 1, min(_SAMPLE, len(known))).astype(np.int64)]
    source, target = graph.source.values[sample], graph.target.values[sample]
    try:
        steps = np.diag(between(distance, embedding[source], embedding[target]))
    except Exception as error:
        raise StoreError(f"{path} was made with another distance: this one fails on its embeddings: {error}") from error
    expected = graph.distance.values[sample]
    # Single precision rounds differently in blocks of another shape; the error is large where large numbers cancel out.
    allowed = 0.01 * (expected + expected.max())
    if (np.abs(steps - expected) > allowed).any():
        worst = int((np.abs(steps - expected) - allowed).argmax())
        raise StoreError(
            f"{path} was made with another distance: from node {source[worst]} to node {target[worst]} it holds "
            f"{expected[worst]:.4g} steps, this distance returns {steps[worst]:.4g}"
        )


def check_names(given: dict[str, Any]) -> None:
    """Raise InputError if a name is not that of a setting."""
    names = {field.name for field in dataclasses.fields(Settings)}
    for name in given:
        if name not in names:
            raise InputError(f"{name} is not a setting of a memory; the settings are {', '.join(sorted(names))}")


def check_settings(path: Path, stored: Settings, given: dict[str, Any]) -> None:
    """Raise StoreError if a file was made with other settings than those given."""
    check_names(given)
    for name, value in given.items():
        wanted = off_is_infinite(value) if name == "tau_p" else value
        if isinstance(wanted, np.ndarray) or wanted != getattr(stored, name):
            raise StoreError(
                f"{path} was made with {name}={getattr(stored, name)!r}, not {shortened(value)}. Leave {name} out, or "
                "use another file."
            )


def checked_workers(stored: Any) -> dict[str, int]:
    """Return the number of the last batch of evidence of each worker from a file; StoreError if it is invalid."""
    named = isinstance(stored, dict) and all(isinstance(name, str) for name in stored)
    if not named or not all(type(number) is int and 0 <= number < 2**53 for number in stored.values()):
        raise StoreError(f"its workers are {shortened(stored)}: expected the number of the last batch by name")
    return dict(stored)
