"""Messages between owner and workers: plain values and arrays, the same for every backend."""

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
    """The first answer of a worker, after its start.

    Attributes:
        num_envs: number of sub-environments that it steps at once.
    """

    num_envs: int


class Failed(NamedTuple):
    """An error in a worker. It ends the work, because it would happen again.

    Attributes:
        text: description of the error, in one line.
    """

    text: str


class Batch(NamedTuple):
    """Evidence of one worker, and the steps and goals since its last batch.

    Attributes:
        worker: name of the worker, which is never used again.
        sequence: number of this batch of the worker, from 1.
        source: (n,) int64 sources of the tried edges, in order.
        target: (n,) int64 targets of the tried edges.
        reached: (n,) bool whether each target was reached.
        steps: number of environment steps.
        episodes: number of goals.
        arrived: number of goals that were reached.
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
    """A worker, which answers one request after the other."""

    num_envs: int

    def answer(self, request: Any) -> Any:
        """Process a request and return the answer."""
        ...

    def leave(self) -> None:
        """Save the evidence that the owner has not applied, because the owner has ended."""
        ...

    def close(self) -> None:
        """Close environments."""
        ...


def failure(error: BaseException) -> Failed:
    """Convert an exception to a message: errors of sgm with their text, others also with type and line."""
    if isinstance(error, SGMError):
        return Failed(str(error))
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return Failed(f"{type(error).__name__}: {error}{where}")


def version_problem(version: str) -> str | None:
    """Explain why a worker cannot serve an owner with this version of the package; None if it can."""
    if version == sgm.__version__:
        return None
    return (
        f"it has sgm {sgm.__version__}, and the program that started it has {version}: install the same version on "
        "every machine"
    )
