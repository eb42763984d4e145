"""The seeds of a benchmark: one for each purpose, so that no random numbers are used twice."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np


class Purpose(enum.IntEnum):
    """What a seed is for."""

    EXPLORATION = 0  # random steps to learn from
    HELD_OUT = 1  # random steps to judge the networks on
    BUFFER = 2  # observations that memories are built from
    TASKS = 3  # starts and goals of the evaluation
    THRESHOLD = 4  # orders of the buffer in which a threshold is looked for
    CLEANUP = 5
    EPISODE = 6  # episodes that figures show
    CHOICES = 7  # examples that figures show
    TRAINING = 8
    CONTROLLER = 9  # random actions of a controller
    RANDOM_AGENT = 10


def seed_for(benchmark: str, numbers: Sequence[int], purpose: Purpose) -> int:
    """The seed for one purpose of a benchmark's piece, which has these numbers, for example layout and seed."""
    if (benchmark, purpose) in _LEGACY:
        factor, offset = _LEGACY[benchmark, purpose]
        return factor * numbers[-1] + offset
    return int(np.random.SeedSequence([*numbers, purpose]).generate_state(1)[0])


# Seeds of the published results, as factor × seed + offset. Without this table all seeds are drawn in the same way.
_LEGACY = {
    ("point", Purpose.TRAINING): (1, 0),
    ("point", Purpose.BUFFER): (3_000_000, 3_000_000),
    ("point", Purpose.TASKS): (1_000_000, 1_000_000),
    ("point", Purpose.CLEANUP): (1, 0),
    ("point", Purpose.EPISODE): (2_000_000, 2_000_000),
    ("doom", Purpose.EXPLORATION): (1_000, 1),
    ("doom", Purpose.HELD_OUT): (1_000, 2),
    ("doom", Purpose.TRAINING): (1, 0),
    ("doom", Purpose.BUFFER): (3_000_000, 3_000_000),
    ("doom", Purpose.TASKS): (5_000_000, 5_000_000),
    ("doom", Purpose.CLEANUP): (1, 0),
    ("doom", Purpose.EPISODE): (9_000_000, 9_000_000),
    ("doom", Purpose.CHOICES): (1, 0),
    ("doom", Purpose.CONTROLLER): (1, 0),
    ("doom", Purpose.RANDOM_AGENT): (1, 0),
    ("safety", Purpose.TRAINING): (1, 0),
}
