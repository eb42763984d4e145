"""Seeds of a benchmark, one for each purpose, so that no random numbers are used twice."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence

import numpy as np


class Purpose(enum.IntEnum):
    """Purpose of a seed."""

    EXPLORATION = 0  # random steps to learn from
    HELD_OUT = 1  # random steps to measure the networks on
    BUFFER = 2  # observations that memories are built from
    TASKS = 3  # starts and goals of the evaluation
    THRESHOLD = 4  # orders of the buffer that the threshold search tries
    CLEANUP = 5
    EPISODE = 6  # episodes that figures show
    CHOICES = 7  # examples that figures show
    TRAINING = 8
    CONTROLLER = 9  # random actions of a controller
    RANDOM_AGENT = 10


def seed_for(values: Sequence[int | str], purpose: Purpose) -> int:
    """Seed for one purpose of a piece with these numbers or names, for example layout and seed."""
    numbers = [zlib.crc32(value.encode()) if isinstance(value, str) else value for value in values]
    return int(np.random.SeedSequence([*numbers, purpose]).generate_state(1)[0])
