"""What owner and workers say to each other; plain values and arrays, the same for every backend."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.errors import SGMError

Ints = NDArray[np.int64]


class Ready(NamedTuple):
    """The first answer of a worker: it has what it needs.

    Attributes:
        num_envs: sub-environments that it steps at once.
    """

    num_envs: int


class Failed(NamedTuple):
    """An error in a worker, which ends the work: it would happen again.

    Attributes:
        text: what happened, in a line.
    """

    text: str


class Batch(NamedTuple):
    """Evidence of one worker, and what it did meanwhile.

    Attributes:
        worker: its name, which no other worker ever has.
        sequence: number of this batch; 1 is its first.
        source: (n,) int64 the nodes where tried edges begin, in order.
        target: (n,) int64 the nodes where they end.
        reached: (n,) bool whether each was reached.
        steps: environment steps taken.
        episodes: goals set.
        arrived: goals whose node was reached.
    """

    worker: str
    sequence: int
    source: Ints
    target: Ints
    reached: NDArray[np.bool_]
    steps: int = 0
    episodes: int = 0
    arrived: int = 0


class Worker(Protocol):
    """Answers requests, one after the other, wherever it runs."""

    num_envs: int

    def answer(self, request: Any) -> Any:
        """Do what is asked."""
        ...

    def leave(self) -> None:
        """The owner is gone: leave behind what it has not taken in, if there is a place for that."""
        ...

    def close(self) -> None:
        """Stop simulators."""
        ...


def failure(error: BaseException) -> Failed:
    """An exception as its owner tells it: our own errors as they are, others with the line they come from."""
    if isinstance(error, SGMError):
        return Failed(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return Failed(f"{type(error).__name__}: {error}{where}")


def version_problem(version: str) -> str | None:
    """Why a worker cannot serve an owner of this version of the package; None if it can."""
    if version == sgm.__version__:
        return None
    return (
        f"it has sgm {sgm.__version__}, and the program that started it has {version}: install the same version on "
        "every machine"
    )
