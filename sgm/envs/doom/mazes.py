"""Random Doom mazes: walls and rooms, with textures that repeat over the pieces of wall."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .wad import Block, DoomMap, MapError

BLOCK = 32  # walls are made of square blocks of this side, map units
PIECE = 3  # largest number of blocks of wall with one texture
SIZE = 1856  # side of the paper's maze, map units
LIGHT = 200  # of 255

# All are in the freedoom2.wad of the vizdoom package, and easy to distinguish.
TEXTURES = tuple(
    """
    TANROCK2 TANROCK4 TANROCK5 TANROCK7 TANROCK8 TEKBRON1 TEKBRON2 TEKGREN1 TEKGREN3 TEKGREN5 TEKLITE TEKLITE2
    TEKWALL1 TEKWALL4 TEKWALL6 WOOD1 WOOD3 WOOD5 WOOD7 WOOD9 WOODGARG WOODMET1 WOODMET3 WOODSKUL WOODVERT ZDOORB1
    ZDOORF1 ZELDOOR ZIMMER1 ZIMMER3 ZIMMER5 ZIMMER7 ZZWOLF1 ZZWOLF2 ZZWOLF4 ZZWOLF6 ZZWOLF7 ZZWOLF10 ZZWOLF12
    ZZWOLF13 ZZZFACE1 ZZZFACE3 ZZZFACE5 ZZZFACE7
    """.split()  # noqa: SIM905
)
FLOOR, CEILING = "ZZWOLF1", "ZIMMER8"


def generate(
    seed: int = 0, *, size: int = SIZE, rooms: int = 8, open_share: float = 0.3, textures: Sequence[str] = TEXTURES
) -> DoomMap:
    """Generate a maze from a seed. The result for given arguments must never change: weights are trained in it.

    In a square of rooms × rooms places all walls between neighbours are built except those of a random spanning tree;
    then a share of the walls is removed, which makes larger rooms and loops.

    Args:
        seed: seed of walls and textures.
        size: side of the maze, map units; a multiple of 32.
        rooms: places along a side; at least 96 units each, walls included.
        open_share: share of the walls to remove, 0 (a maze of corridors) to 1 (an empty hall).
        textures: textures of the pieces of wall, drawn at random; the environment of the map checks the names.
    """
    if not isinstance(size, int | np.integer) or size < 1 or size % BLOCK:
        raise MapError(f"size is {size!r}: expected a multiple of {BLOCK} map units")
    if not isinstance(rooms, int | np.integer) or rooms < 1:
        raise MapError(f"rooms is {rooms!r}: expected the number of places along a side, 1 or more")
    if size / rooms < 3 * BLOCK:
        raise MapError(
            f"{rooms} rooms along {size} map units are {size / rooms:.0f} each: expected {3 * BLOCK} or more, "
            f"that is at most {max(1, size // (3 * BLOCK))} rooms or a size of {rooms * 3 * BLOCK}"
        )
    if not 0 <= open_share <= 1:
        raise MapError(f"open_share is {open_share!r}: expected 0 to 1")
    if isinstance(textures, str) or not len(textures):
        raise MapError(f"textures are {textures!r}: expected a sequence of names to draw from, at least one")
    random = np.random.default_rng(seed)
    return _from_blocks(_blocks(random, size // BLOCK, rooms, open_share), random, textures)


def _blocks(random: np.random.Generator, side: int, rooms: int, open_share: float) -> NDArray[np.bool_]:
    """(side + 2, side + 2) bool: which blocks are wall; those at the border are."""
    wall = np.zeros((side + 2, side + 2), np.bool_)
    wall[[0, -1]] = wall[:, [0, -1]] = True
    at = np.round(np.linspace(0, side + 1, rooms + 1)).astype(int)  # blocks of the walls between places
    for room, other in _walls(random, rooms, open_share):
        (i, j), (k, _) = sorted((room, other))
        if k > i:  # one above the other: a wall across the rows
            wall[at[i + 1], at[j] : at[j + 1] + 1] = True
        else:
            wall[at[i] : at[i + 1] + 1, at[j + 1]] = True
    return wall


def _walls(random: np.random.Generator, rooms: int, open_share: float) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of neighbouring places with a wall between them; every place can be reached from every other."""
    pairs = [((i, j), (i + 1, j)) for i in range(rooms - 1) for j in range(rooms)]
    pairs += [((i, j), (i, j + 1)) for i in range(rooms) for j in range(rooms - 1)]
    parent = {(i, j): (i, j) for i in range(rooms) for j in range(rooms)}

    def root(place: tuple[int, int]) -> tuple[int, int]:
        while parent[place] != place:
            place = parent[place]
        return place

    walls = []
    for number in random.permutation(len(pairs)):
        one, other = pairs[number]
        if root(one) == root(other):
            walls.append(pairs[number])
        else:
            parent[root(one)] = root(other)
    keep = round(len(walls) * (1 - open_share))
    return [walls[number] for number in random.permutation(len(walls))[:keep]]


def _from_blocks(wall: NDArray[np.bool_], random: np.random.Generator, textures: Sequence[str]) -> DoomMap:
    vertices: list[Block] = []
    index: dict[tuple[int, int], int] = {}

    def vertex(x: int, y: int) -> int:
        if (x, y) not in index:
            index[x, y] = len(vertices)
            vertices.append({"x": float((x - 1) * BLOCK), "y": float((y - 1) * BLOCK)})
        return index[x, y]

    lines: list[Block] = []
    sides: list[Block] = []
    for ends in _faces(wall):
        lines.append({"v1": vertex(*ends[0]), "v2": vertex(*ends[1]), "sidefront": len(sides), "blocking": True})
        sides.append({"sector": 0, "texturemiddle": textures[int(random.integers(len(textures)))]})
    sector = {
        "heightfloor": 0,
        "heightceiling": 128,
        "texturefloor": FLOOR,
        "textureceiling": CEILING,
        "lightlevel": LIGHT,
    }
    # The start only selects the connected part of the map: any free place will do.
    room = np.argwhere(~wall & ~np.roll(wall, 1, 0) & ~np.roll(wall, 1, 1) & ~np.roll(wall, (1, 1), (0, 1)))
    x, y = room[len(room) // 2]
    start = {"x": float((x - 1) * BLOCK), "y": float((y - 1) * BLOCK), "angle": 0, "type": 1}
    return DoomMap("MAP01", "Doom", vertices, lines, sides, [sector], [start])


def _faces(wall: NDArray[np.bool_]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pieces of wall between a free block and a solid one, as both ends in blocks, with the free block on the right."""
    faces = []
    for axis in (0, 1):
        grid = wall if axis == 0 else wall.T
        # Between rows r - 1 and r: +1 if solid, then free; -1 the other way round.
        change = grid[:-1].astype(int) - grid[1:].astype(int)
        for r, row in enumerate(change, start=1):
            c = 0
            while c < len(row):
                end = c
                while end < len(row) and row[end] == row[c] and end - c < PIECE:
                    end += 1
                if row[c]:
                    a, b = ((r, c), (r, end)) if axis == 0 else ((c, r), (end, r))
                    # Along axis 0 the free side is at larger x if the change is +1, so the line must go towards larger
                    # y to have it on the right. Along axis 1 it is the other way round.
                    forward = (row[c] > 0) == (axis == 0)
                    faces.append((a, b) if forward else (b, a))
                c = end
    return faces
