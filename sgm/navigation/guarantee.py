"""Summary of the certificate (Theorem 1) of a memory if it can be measured in time; otherwise the reason."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from sgm.errors import SGMError
from sgm.memory import SparseGraphicalMemory
from sgm.memory.certificate import Certificate

SECONDS = 10.0  # approximate time limit of a measurement, s
PAIRS = 300  # pairs of nodes that are measured
MOST = 10_000  # most observations; the dense graph of more does not fit in RAM
_BLOCK = 256  # nodes that are compared to estimate the time
_SEARCH = 1e-7  # s for each edge in a search for shortest paths
_HELP = "memory.certificate(observations) measures it"


def guarantee(memory: SparseGraphicalMemory, observations: Any, seconds: float = SECONDS) -> dict[str, Any]:
    """Summarise the certificate of a memory over all observations it was built from, ready for JSON; or the reason.

    Args:
        memory: the memory, with its distance.
        observations: all observations it was built from, in order, or a function that returns them; None: unknown.
        seconds: time limit, s; the time is estimated before.
    """
    if observations is None:
        return absent(f"The observations from which this memory was built were not kept: with them, {_HELP}.")
    number = len(memory.assignment)
    try:
        if number > MOST:
            return absent(f"{number:,} observations are more than the {MOST:,} that a run compares: {_HELP}.")
        needed = _seconds(memory)
        if needed > seconds:
            return absent(
                f"Comparing {number:,} observations with each other would have taken about {needed:,.0f} s, more than "
                f"the {seconds:g} s that a run spends on it: {_HELP}."
            )
        given = observations() if callable(observations) else observations
        return summary(memory.certificate(given, pairs=PAIRS))
    except SGMError as error:
        return absent(f"It could not be measured: {error}")


def absent(reason: str) -> dict[str, Any]:
    """Return the entry for a memory without a certificate, with the reason."""
    return {"applies": None, "reason": reason}


def _seconds(memory: SparseGraphicalMemory) -> float:
    """Estimate the time of a certificate, s, from distances between a few nodes."""
    vectors = memory.embeddings[: min(len(memory), _BLOCK)]
    memory.distance(vectors[:1], vectors[:1])  # the first call may prepare something, which is not timed
    begin = time.process_time()
    steps = memory.distance(vectors, vectors)
    pace = (time.process_time() - begin) / steps.size
    number = len(memory.assignment)
    edges = number**2 * float((steps <= memory.settings.max_dist).mean())
    searches = min(PAIRS, len(memory)) * (edges + 10 * number) * _SEARCH
    return pace * number * (number + 4.0 * (number - len(memory))) + searches


def summary(certificate: Certificate) -> dict[str, Any]:
    """Summarise a certificate: conditions, numbers (costs in steps), and its text."""
    gap, bound = certificate.gap[np.isfinite(certificate.gap)], certificate.bound
    numbers = {
        "observations": certificate.observations,
        "nodes": certificate.nodes,
        "merges": len(certificate.merged),
        "within_nominal": certificate.within_nominal,
        "pairs": len(certificate.source),
        "unreachable": certificate.unreachable,
        "exceeded": int(certificate.exceeded.sum()),
        "without_path": int(np.isinf(certificate.sparse_cost).sum()),
        "tau_a": _number(certificate.tau_a),
        "tau": _number(certificate.tau),
        "mean_gap": _number(gap.mean()) if len(gap) else None,
        "largest_gap": _number(gap.max()) if len(gap) else None,
        "mean_bound": _number(bound.mean()) if len(bound) else None,
        "largest_bound": _number(bound.max()) if len(bound) else None,
    }
    conditions = {name: bool(holds) for name, holds in certificate.conditions.items()}
    return {"applies": certificate.applies, "conditions": conditions, "numbers": numbers, "text": str(certificate)}


def _number(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
