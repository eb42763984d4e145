"""Data that runs store for the inspector: node positions and images, walls, episodes.

Results do not depend on it: it draws no random numbers and changes neither merging nor plans.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.data.thumbnails import thumbnails
from sgm.navigation.beside import EPISODES, FLOOR, GUARANTEE, Floor, write_episodes, write_floor, write_guarantee
from sgm.navigation.guarantee import guarantee
from sgm.navigation.record import CLEANED, EVALUATED, Recorder, View, seen_by

from .results import read_arrays, write_arrays

if TYPE_CHECKING:
    from .base import Piece

ORDER = "order.npz"


@dataclasses.dataclass(frozen=True)
class Shown:
    """Ground truth of a benchmark for display beside its memories.

    Attributes:
        attributes: (piece, memory) to node attributes: "position", "heading".
        images: (piece, memory) to (V, height, width, 3) images of the nodes, from which thumbnails are made; or None.
        floor: piece to its walls; None: unknown.
        view: (piece, environment) to positions and images of its robots.
        stream: (piece, method) to all observations from which a memory was built, in order; None: unknown.
    """

    attributes: Callable[[Piece, sgm.SparseGraphicalMemory], Mapping[str, Any]] = lambda *_: {}
    images: Callable[[Piece, sgm.SparseGraphicalMemory], Any] = lambda *_: None
    floor: Callable[[Piece], Floor | None] = lambda _: None
    view: Callable[[Piece, Any], View] = lambda *_: seen_by(None)
    stream: Callable[[Piece, str], Any] = lambda *_: None

    def decorate(self, piece: Piece, memory: sgm.SparseGraphicalMemory) -> None:
        """Add the missing node attributes to a new memory."""
        if not len(memory):
            return
        for name, values in self.attributes(piece, memory).items():
            if name not in memory.attributes:
                memory.attributes[name] = values
        images = self.images(piece, memory)
        if images is not None and "thumbnail" not in memory.attributes:
            memory.attributes["thumbnail"] = thumbnails(images)

    def write_floor(self, piece: Piece, folder: Path) -> None:
        """Write the walls into the folder of a memory."""
        floor = self.floor(piece)
        if floor is not None:
            write_floor(folder / FLOOR, floor)

    def write_guarantee(self, piece: Piece, method: str, memory: sgm.SparseGraphicalMemory, folder: Path) -> None:
        """Write Theorem 1's certificate of a memory into its folder, or the reason why there is none."""
        write_guarantee(folder / GUARANTEE, guarantee(memory, self.stream(piece, method)))

    def recorders(self, piece: Piece, env: Any, names: Sequence[str | None], about: str) -> list[Recorder]:
        """Recorders for the evaluation of each agent, which share the number of recorded episodes."""
        share = max(1, EVALUATED // len(names))
        view = self.view(piece, env)
        texts = [", ".join(text for text in (name, about) if text) for name in names]
        return [Recorder("evaluation", share, view, text) for text in texts]

    def cleanup_recorder(self, piece: Piece, env: Any, about: str) -> Recorder:
        """Recorder for a cleanup."""
        return Recorder("cleanup", CLEANED, self.view(piece, env), about)


def keep_episodes(folder: Path, recorders: Sequence[Recorder]) -> None:
    """Write recorded episodes into the folder of a memory; they replace earlier episodes of the same kind."""
    episodes = [episode for recorder in recorders for episode in recorder.episodes]
    if episodes:
        write_episodes(folder / EPISODES, episodes)


def keep_order(piece: Piece, method: str, order: NDArray[np.int64]) -> None:
    """Store the order in which `sgm.choose_threshold` visited the observations of a method's memory."""
    write_arrays(piece.folder / method / ORDER, {"order": order})


def read_order(piece: Piece, method: str, number: int) -> NDArray[np.int64] | None:
    """Read the stored order of `number` observations; None if it was not stored."""
    if not (piece.folder / method / ORDER).is_file():
        return None
    order = read_arrays(piece.folder / method, ORDER, "order")["order"]
    whole = order.dtype.kind == "i" and np.array_equal(np.sort(order), np.arange(number))
    return order if whole else None
