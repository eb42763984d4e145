"""What runs leave beside their numbers for those who look at a memory: places and images of nodes, walls, episodes.

Nothing that a run does depends on it: no random numbers are drawn, and merging and plans are the same.
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
    """What a benchmark knows of the world that its memories are of.

    Attributes:
        attributes: (piece, memory) to attributes of the nodes: "position", "heading".
        images: (piece, memory) to (V, height, width, 3) what each node keeps, from which thumbnails are made; or None.
        floor: the walls of a piece; None: they are not known.
        view: (piece, environment) to how robots in it are seen.
        stream: (piece, method) to all observations that a memory was built from, in order; None: they are not known.
    """

    attributes: Callable[[Piece, sgm.SparseGraphicalMemory], Mapping[str, Any]] = lambda *_: {}
    images: Callable[[Piece, sgm.SparseGraphicalMemory], Any] = lambda *_: None
    floor: Callable[[Piece], Floor | None] = lambda _: None
    view: Callable[[Piece, Any], View] = lambda *_: seen_by(None)
    stream: Callable[[Piece, str], Any] = lambda *_: None

    def decorate(self, piece: Piece, memory: sgm.SparseGraphicalMemory) -> None:
        """Give the nodes of a new memory the attributes that it does not have yet."""
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
        """Write Theorem 1's certificate of a memory into its folder, or why there is none."""
        write_guarantee(folder / GUARANTEE, guarantee(memory, self.stream(piece, method)))

    def recorders(self, piece: Piece, env: Any, names: Sequence[str | None], about: str) -> list[Recorder]:
        """One for the evaluation of each agent; together they record so many episodes."""
        share = max(1, EVALUATED // len(names))
        view = self.view(piece, env)
        texts = [", ".join(text for text in (name, about) if text) for name in names]
        return [Recorder("evaluation", share, view, text) for text in texts]

    def cleanup_recorder(self, piece: Piece, env: Any, about: str) -> Recorder:
        """One for a cleanup."""
        return Recorder("cleanup", CLEANED, self.view(piece, env), about)


def keep_episodes(folder: Path, recorders: Sequence[Recorder]) -> None:
    """Write what was recorded into the folder of a memory, in the place of earlier episodes of the same kind."""
    episodes = [episode for recorder in recorders for episode in recorder.episodes]
    if episodes:
        write_episodes(folder / EPISODES, episodes)


def keep_order(piece: Piece, method: str, order: NDArray[np.int64]) -> None:
    """Keep the order in which `sgm.choose_threshold` visited the observations of a method's memory."""
    write_arrays(piece.folder / method / ORDER, {"order": order})


def read_order(piece: Piece, method: str, number: int) -> NDArray[np.int64] | None:
    """That order of so many observations; None if it was not kept."""
    if not (piece.folder / method / ORDER).is_file():
        return None
    order = read_arrays(piece.folder / method, ORDER, "order")["order"]
    whole = order.dtype.kind == "i" and np.array_equal(np.sort(order), np.arange(number))
    return order if whole else None
