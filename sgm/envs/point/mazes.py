"""Mazes as data: their free cells, and the distances between them.

A maze is a grid of unit cells, each wall or free; a position is `(row, column)` in cells, and cell `(i, j)` covers
`[i, i + 1) × [j, j + 1)`. The edge of the map is a wall too, so a maze needs no border of its own.
"""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, sparse
from scipy.sparse import csgraph

from sgm.errors import InputError

FOUR_ROOMS = """
.....#.....
.....#.....
...........
.....#.....
.....#.....
#.####.....
.....###.##
.....#.....
.....#.....
...........
.....#.....
"""

U = """
....#....
....#....
....#....
....#....
....#....
....#....
....#....
.........
.........
"""

# A binary tree of corridors: eight leaves above, the root below.
TREE = """
.#.#.#.#.#.#.#.
.#.#.#.#.#.#.#.
...#...#...#...
#.###.###.###.#
#.....###.....#
###.#######.###
###.........###
#######.#######
#######.#######
"""

_TEXTS = {"FourRooms": FOUR_ROOMS, "U": U, "Tree": TREE}
_SIZED = re.compile(r"(?P<kind>Spiral|Random)(?P<size>\d+)(\+(?P<loops>\d+))?")
ACCEPTED_NAMES = (
    "'FourRooms', 'U', 'Tree', 'Spiral<size>' (size 3 or more, as in 'Spiral11'), 'Random<size>' or "
    "'Random<size>+<loops>' (odd size, 3 or more, as in 'Random15' or 'Random15+4'), or the path of a text file with "
    "'#' for a wall and '.' or ' ' for a free cell"
)

PAD = 2  # cells of wall around `Maze.open_cells`, so that a look-up one step outside the map needs no special case
MAX_FREE_CELLS = 16_384  # the distance table has a row and a column for each: 512 MB at most


@dataclass(frozen=True, eq=False)
class Maze:
    """A maze whose free cells form one region.

    Attributes:
        name: name for messages.
        walls: (height, width) bool, True where there is a wall. Read-only.

    Raises:
        InputError: if there is no free cell, or if some free cells cannot be reached from the others.
    """

    name: str
    walls: NDArray[np.bool_]

    def __post_init__(self) -> None:
        walls = np.array(self.walls, dtype=np.bool_)
        if walls.ndim != 2 or walls.all():
            raise InputError(
                f"maze {self.name!r} has walls of shape {walls.shape} and {int((~walls).sum())} free cells; "
                "a maze is a (height, width) array of booleans (True: wall) with at least one free cell"
            )
        walls.setflags(write=False)
        object.__setattr__(self, "walls", walls)
        _require_one_region(self.name, walls)

    @classmethod
    def from_text(cls, text: str, name: str = "text") -> Maze:
        """Read a maze from lines of '#' (wall) and '.' or ' ' (free), the inverse of `str(maze)`."""
        lines = text.strip("\r\n").splitlines()
        for number, line in enumerate(lines, start=1):
            if len(line) != len(lines[0]):
                raise InputError(
                    f"maze {name!r}: line {number} has {len(line)} characters, line 1 has {len(lines[0])}; make all "
                    "lines equally long ('.' instead of ' ' keeps free cells at the end of a line visible)"
                )
            if stray := re.search(r"[^#. ]", line):
                raise InputError(
                    f"maze {name!r}: {stray.group()!r} in line {number}, column {stray.start() + 1}; accepted are "
                    "'#' (wall), '.' and ' ' (free)"
                )
        return cls(name, np.array([[character == "#" for character in line] for line in lines], dtype=np.bool_))

    def __str__(self) -> str:
        return "\n".join("".join(".#"[wall] for wall in row) for row in self.walls.astype(int)) + "\n"

    def __repr__(self) -> str:
        return f"Maze({self.name!r}, {self.height} × {self.width}, {len(self.cells)} free cells)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Maze:
        return self  # it is immutable, and its distance table is large

    @property
    def height(self) -> int:
        """Number of rows, which is also the extent of the first coordinate in cells."""
        return int(self.walls.shape[0])

    @property
    def width(self) -> int:
        """Number of columns, which is also the extent of the second coordinate in cells."""
        return int(self.walls.shape[1])

    @cached_property
    def size(self) -> NDArray[np.float64]:
        """(2,) float64: height and width in cells."""
        return np.array(self.walls.shape, dtype=np.float64)

    @cached_property
    def cells(self) -> NDArray[np.intp]:
        """(F, 2) int: row and column of each free cell, in reading order; F is the number of free cells."""
        return np.argwhere(~self.walls)

    @cached_property
    def open_cells(self) -> NDArray[np.bool_]:
        """(height + 2·PAD, width + 2·PAD) bool: True where a cell is free, with a margin of wall around the map."""
        return np.pad(~self.walls, PAD, constant_values=False)

    @cached_property
    def _cell_ids(self) -> NDArray[np.intp]:
        """(height, width) int: the row of each free cell in `cells`; −1 for a wall."""
        ids = np.full(self.walls.shape, -1, dtype=np.intp)
        ids[~self.walls] = np.arange(len(self.cells))
        return ids

    @cached_property
    def distances(self) -> NDArray[np.int16]:
        """(F, F) int16: fewest moves between free cells, to any of the 8 neighbours. Read-only, shared by equal mazes.

        As in the authors' code, a diagonal move counts one, because one step of the point can cover both axes, and may
        cut the corner of one wall. In their code a move may also pass between two walls that touch at a corner, where
        the point cannot pass; here it may not. FourRooms has no such place, thick or thin.
        """
        if len(self.cells) > MAX_FREE_CELLS:
            raise InputError(
                f"maze {self.name!r} has {len(self.cells):,} free cells; distances are tabulated for at most "
                f"{MAX_FREE_CELLS:,}: choose a smaller `resize` or a smaller maze"
            )
        return _distance_table(self.walls.tobytes(), self.walls.shape)

    @cached_property
    def eccentricity(self) -> NDArray[np.int16]:
        """(F,) int16: each free cell's distance to the cell farthest from it."""
        return self.distances.max(axis=1)

    @cached_property
    def diameter(self) -> int:
        """The largest distance between two free cells."""
        return int(self.eccentricity.max())

    def is_free(self, positions: ArrayLike) -> NDArray[np.bool_]:
        """Whether finite positions, (..., 2) in cells, are on the map and not in a wall -> (...) bool."""
        corners = np.floor(np.asarray(positions, dtype=np.float64))
        cells = np.clip(corners, -1, self.size).astype(np.intp) + PAD
        return self.open_cells[cells[..., 0], cells[..., 1]]

    def cell_ids(self, positions: ArrayLike) -> NDArray[np.intp]:
        """Rows in `cells` of the cells that contain free positions, (..., 2) in cells -> (...) int."""
        cells = np.floor(np.asarray(positions, dtype=np.float64)).astype(np.intp)
        return self._cell_ids[cells[..., 0], cells[..., 1]]

    def distance(self, starts: ArrayLike, goals: ArrayLike) -> NDArray[np.int16]:
        """Geodesic distance between the cells of free positions, (..., 2) and (..., 2) in cells -> (...) int16."""
        return self.distances[self.cell_ids(starts), self.cell_ids(goals)]

    def settle(self, positions: ArrayLike, what: str = "position") -> NDArray[np.float64]:
        """Check that positions, (..., 2) in cells, are free, and return them as float64.

        A position from a float32 observation may have been rounded across the edge of a wall: it is moved back.

        Raises:
            InputError: if a position is not finite, outside the map or in a wall; `what` names it in the message.
        """
        given = np.array(positions, dtype=np.float64)
        if given.ndim == 0 or given.shape[-1] != 2 or not np.isfinite(given).all():
            raise InputError(f"{what} is {positions!r}; give finite (row, column) pairs in cells")
        settled = np.atleast_2d(given)
        slack = self.size * np.finfo(np.float32).eps
        for nudge in itertools.product((0.0, -1.0, 1.0), repeat=2):
            moved = settled + slack * nudge
            better = ~self.is_free(settled) & self.is_free(moved)
            settled[better] = moved[better]
        if not self.is_free(settled).all():
            row, column = settled[~self.is_free(settled)][0]
            raise InputError(
                f"{what} ({row:g}, {column:g}) is in a wall or outside maze {self.name!r}; give (row, column) in "
                f"cells, 0 ≤ row < {self.height} and 0 ≤ column < {self.width}, in a free cell (see `Maze.cells`)"
            )
        return settled.reshape(given.shape)

    def resized(self, factor: int, thin: bool = False) -> Maze:
        """Return the maze enlarged by `factor` in each direction; with `thin`, walls stay one cell thick.

        Thin walls follow the authors' code: a cell becomes `factor` cells along an axis. The first has the value of the
        original cell; the others are wall only if this cell and the next one are both wall (the last cell counts as
        its own next). Walls that touch only at a corner are no longer connected.
        """
        if isinstance(factor, bool) or not isinstance(factor, (int, np.integer)) or factor < 1:
            raise InputError(f"resize is {factor!r}; give a whole number of at least 1")
        if factor == 1:
            return self
        if thin:
            walls = _widen(_widen(self.walls, factor).T, factor).T
        else:
            walls = self.walls.repeat(factor, axis=0).repeat(factor, axis=1)
        return Maze(f"{self.name} ×{factor}{' thin' if thin else ''}", walls)


def load_maze(name: str | os.PathLike[str], resize: int = 1, thin: bool = False, seed: int = 0) -> Maze:
    """Make a maze from its name or read it from a text file.

    Args:
        name: `FourRooms`, `U`, `Tree`, `Spiral<size>`, `Random<size>`, `Random<size>+<loops>`, or a path.
        resize: inflate every cell by this factor.
        thin: inflate free space only; walls stay one cell thick.
        seed: seed of a random maze; no effect on the others.
    """
    return _base_maze(name, seed).resized(resize, thin)


def spiral(size: int) -> NDArray[np.bool_]:
    """Walls of a spiral corridor from the corner (0, 0) inwards -> (size, size) bool."""
    if size < 3:
        raise InputError(f"a spiral of size {size} has no room to turn; give a size of at least 3, as in 'Spiral11'")
    walls = np.ones((size, size), dtype=np.bool_)
    row = column = 0
    walls[row, column] = False
    inner_legs = [length for length in range(size - 1, 1, -2) for _ in range(2)]
    headings = itertools.cycle([(0, 1), (1, 0), (0, -1), (-1, 0)])
    for length, (down, right) in zip([size - 1, *inner_legs], headings, strict=False):
        for _ in range(length):
            row, column = row + down, column + right
            walls[row, column] = False
    return walls


def random_maze(size: int, seed: int = 0, loops: int = 0) -> NDArray[np.bool_]:
    """Walls of a random maze -> (size, size) bool.

    Rooms are the cells with even coordinates. A depth-first walk joins them into a tree (one path between any two
    rooms); `loops` further walls between neighbouring rooms are then opened.
    """
    if size < 3 or size % 2 == 0:
        raise InputError(
            f"a random maze of size {size} is not possible; give an odd size of at least 3, as in 'Random15'"
        )
    rng = np.random.default_rng(seed)
    walls = np.ones((size, size), dtype=np.bool_)
    walls[0, 0] = False
    trail = [(0, 0)]
    while trail:
        row, column = trail[-1]
        unvisited = [
            (down, right)
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
            if 0 <= (i := row + 2 * down) < size and 0 <= (j := column + 2 * right) < size and walls[i, j]
        ]
        if not unvisited:
            trail.pop()
            continue
        down, right = unvisited[rng.integers(len(unvisited))]
        walls[row + down, column + right] = walls[row + 2 * down, column + 2 * right] = False
        trail.append((row + 2 * down, column + 2 * right))
    _open_loops(walls, loops, rng)
    return walls


def _open_loops(walls: NDArray[np.bool_], loops: int, rng: np.random.Generator) -> None:
    """Open `loops` of the walls that separate two neighbouring rooms, in place."""
    closed = np.argwhere(walls)
    doors = closed[closed.sum(axis=1) % 2 == 1]
    if loops > len(doors):
        raise InputError(
            f"{loops} loops asked of a random maze with {len(doors)} walls between rooms; give 0 to {len(doors)}"
        )
    walls[tuple(rng.choice(doors, size=loops, replace=False).T)] = False


def _base_maze(name: str | os.PathLike[str], seed: int) -> Maze:
    """Make or read the maze before it is resized."""
    text = os.fspath(name)
    if text in _TEXTS:
        return Maze.from_text(_TEXTS[text], text)
    if match := _SIZED.fullmatch(text):
        size, loops = int(match["size"]), int(match["loops"] or 0)
        if match["kind"] == "Random":
            return Maze(f"{text} seed {seed}", random_maze(size, seed, loops))
        if match["loops"] is None:
            return Maze(text, spiral(size))
    if not Path(text).is_file():
        raise InputError(f"no maze is called {text!r}, and there is no such file; accepted: {ACCEPTED_NAMES}")
    return Maze.from_text(Path(text).read_text(encoding="utf-8"), text)


def _widen(walls: NDArray[np.bool_], factor: int) -> NDArray[np.bool_]:
    """Enlarge along the width with thin walls: (h, w) bool -> (h, factor·w) bool."""
    following = np.concatenate([walls[:, 1:], walls[:, -1:]], axis=1)
    widened = np.repeat(walls & following, factor, axis=1)
    widened[:, ::factor] = walls
    return widened


def _require_one_region(name: str, walls: NDArray[np.bool_]) -> None:
    """Raise InputError if there is more than one free region; it lists the cells outside the largest one."""
    regions, count = ndimage.label(~walls)
    if count == 1:
        return
    largest = 1 + np.bincount(regions.ravel())[1:].argmax()
    cut_off = [(int(i), int(j)) for i, j in np.argwhere((regions != 0) & (regions != largest))]
    listed = ", ".join(map(str, cut_off[:10])) + (f" and {len(cut_off) - 10} more" if len(cut_off) > 10 else "")
    raise InputError(
        f"maze {name!r} has {count} separate free regions; a maze needs exactly one. Not reachable from the largest "
        f"(row, column, from 0): {listed}. Open a wall beside them or fill them with '#'"
    )


@lru_cache(maxsize=4)
def _distance_table(walls: bytes, shape: tuple[int, int]) -> NDArray[np.int16]:
    """(F, F) int16 table of `Maze.distances`; cached, because it takes one second for 3,000 free cells."""
    graph = _move_graph(~np.frombuffer(walls, dtype=np.bool_).reshape(shape))
    count = graph.shape[0]
    table = np.empty((count, count), dtype=np.int16)
    for block in np.array_split(np.arange(count), -(-count // 512)):  # results are float64: not the whole table at once
        table[block] = csgraph.dijkstra(graph, unweighted=True, indices=block)
    table.setflags(write=False)
    return table


def _move_graph(free: NDArray[np.bool_]) -> Any:
    """(F, F) sparse matrix with a one for every move from a free cell to a free neighbour."""
    height, width = free.shape
    padded = np.pad(free, 1, constant_values=False)
    ids = np.cumsum(padded).reshape(padded.shape) - 1
    here = np.s_[1 : height + 1, 1 : width + 1]
    sources, targets = [], []
    for down, right in itertools.product((-1, 0, 1), repeat=2):
        if (down, right) == (0, 0):
            continue
        there = np.s_[1 + down : height + 1 + down, 1 + right : width + 1 + right]
        vertical = padded[1 + down : height + 1 + down, 1 : width + 1]
        horizontal = padded[1 : height + 1, 1 + right : width + 1 + right]
        possible = padded[here] & padded[there] & (vertical | horizontal)
        sources.append(ids[here][possible])
        targets.append(ids[there][possible])
    rows, columns = np.concatenate(sources), np.concatenate(targets)
    return sparse.csr_matrix((np.ones(len(rows), dtype=np.float64), (rows, columns)), shape=(free.sum(), free.sum()))
