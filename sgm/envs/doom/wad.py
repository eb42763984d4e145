"""Doom maps: read from a WAD in any of the three map formats, modify, write as UDMF, find the free positions.

A WAD is a directory of lumps. A map is a marker lump followed by the lumps of the map: either one TEXTMAP (UDMF, plain
text) or the binary tables of Doom or Hexen. Every format is converted to blocks of UDMF, and written as UDMF. Compiled
scripts (ACS) are not read and therefore not written; lines keep their specials. lumps.py reads the directory, udmf.py
and binary.py the formats of maps, raster.py has the geometry of cells.

WADs are untrusted input. Reading takes time and memory proportional to the size of the file: every count, offset and
length is checked against that size before it is used. Maps too large for Doom are rejected: coordinates beyond ±LIMIT
map units, rasters of more than CELLS cells, and walls of more than LENGTH map units in total. An invalid WAD or map
raises MapError; its message escapes characters that cannot be printed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .binary import unpack_tables
from .lumps import (
    NO_TEXTURE,
    TABLES,
    MapError,
    check_textures,
    flats,
    listed,
    lumps_of_map,
    map_names,
    names_of_maps,
    printable,
    read_lumps,
    shown,
    texture_names,
    wall_textures,
    write_lumps,
)
from .raster import PAIRS, Bools, Floats, points_along, widened
from .udmf import FLAG, IDENTIFIER, KINDS, WHOLE, Block, is_number, parse_udmf, udmf_text

__all__ = [
    "Block",
    "DoomMap",
    "MapError",
    "check_textures",
    "flats",
    "map_names",
    "read_lumps",
    "wall_textures",
    "write_lumps",
]

RADIUS = 16  # of the player, map units: half the side of a square, because players of Doom are square
STEP, HEIGHT = 24, 56  # largest step that the player climbs, and least height of a gap it passes, map units
CELL = 4.0  # side of a cell of the raster of free positions, map units
LIMIT = 2**16  # largest coordinate, map units: twice the range of Doom's 16 bits, because UDMF has no limit of its own
CELLS = 2**26  # cells of the raster, about 12 bytes each: a map of 32,768 × 32,768 units, whose distances fit 16 bits
LENGTH = 2**25  # total length of solid lines, map units: a hundred times that of Freedoom's largest map
PLAYER = 1  # type of the thing at which player 1 starts
NO_SIDE = 0xFFFF
SIDE_TEXTURES = ("texturetop", "texturebottom", "texturemiddle")
FLATS = ("texturefloor", "textureceiling")
DOOM_SPECIALS = ("doom", "heretic", "strife", "zdoomtranslated")  # namespaces with the numbers of these games
EXITS = {True: (11, 51, 52, 124, 197, 198), False: (74, 75, 243, 244)}  # lines that end the map: Doom's, Hexen's
SOLID_FLAGS = ("blocking", "blockplayers", "blockeverything")
# Types of the fields that this module uses: the kind of block a number refers to, or one of the other words in `_flaw`.
# Fields that are not required may be absent. All other fields are kept unchanged.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "vertex": {"x": "coordinate", "y": "coordinate"},
    "linedef": {
        **{"v1": "vertex", "v2": "vertex", "sidefront": "sidedef", "sideback": "sidedef"},
        **dict.fromkeys(SOLID_FLAGS, "flag"),
    },
    "sidedef": {"sector": "sector", **dict.fromkeys(SIDE_TEXTURES, "text")},
    "sector": {"heightfloor": "number", "heightceiling": "number", **dict.fromkeys(FLATS, "text")},
    "thing": {"x": "coordinate", "y": "coordinate", "type": "number", "angle": "number"},
}
REQUIRED = frozenset(("x", "y", "v1", "v2", "sidefront", "sector", "type"))


@dataclasses.dataclass(frozen=True)
class DoomMap:
    """A map as the blocks of UDMF.

    Attributes:
        name: name of its marker, for example "MAP01".
        namespace: namespace of UDMF, which defines the meaning of the specials of lines.
        vertices: blocks with x and y.
        lines: blocks with v1, v2, sidefront and, for a line with two sides, sideback.
        sides: blocks with textures and sector.
        sectors: blocks with heights and textures.
        things: blocks with x, y, angle and type.
        wad: the file it was read from, which may contain its own textures; "" if there is none.
    """

    name: str
    namespace: str
    vertices: Sequence[Block]
    lines: Sequence[Block]
    sides: Sequence[Block]
    sectors: Sequence[Block]
    things: Sequence[Block]
    wad: str = ""

    @classmethod
    def read(cls, path: str | Path, name: str | None = None) -> DoomMap:
        """Read a map of a WAD, the first one by default.

        Lines without any side are left out, as in engines; a line with only a back side is reversed.
        """
        if not isinstance(name, str | None):
            raise MapError(
                f"the name of the map is {shown(name)}: expected text as in MAP01, or None for the first map"
            )
        lumps = read_lumps(path)
        known = names_of_maps(lumps)
        file = printable(path)
        if not known:
            raise MapError(f"{file} holds no map")
        name = known[0] if name is None else name.upper()
        if name not in known:
            raise MapError(f"{file} has no map {printable(name)}: it has {listed(known)}")
        if not name or not (name.isascii() and name.isprintable()):
            raise MapError(f"{file} has a map named {shown(name)}: expected ASCII characters, as in MAP01; rename it")
        own = lumps_of_map(lumps, name)
        try:
            if "TEXTMAP" in own:
                namespace, blocks = parse_udmf(str(own["TEXTMAP"], "utf-8-sig", "replace"))
            elif missing := [lump for lump in TABLES if lump not in own]:
                raise ValueError(f"it lacks {', '.join(missing)}")
            else:
                namespace, blocks = unpack_tables(own)
            vertices, lines, sides, sectors, things = (blocks[kind] for kind in KINDS)
            lines = [_mended(line) for line in lines if _has_side(line)]
            found = cls(name, namespace, vertices, lines, sides, sectors, things, str(Path(path).absolute()))
            found._check()
        except ValueError as error:
            raise MapError(f"map {name} of {file} cannot be read: {error}") from None
        return found

    def _check(self, *kinds: str) -> None:
        """Raise ValueError if a block of these kinds, by default of all, has an invalid field.

        Fields must be numbers, texts or flags as in FIELDS, and the blocks they refer to must exist.
        """
        contents = (self.vertices, self.lines, self.sides, self.sectors, self.things)
        blocks = dict(zip(KINDS, contents, strict=True))
        counts = {kind: len(blocks[kind]) for kind in KINDS}
        for kind in kinds or KINDS:
            for number, block in enumerate(blocks[kind]):
                for key, rule in FIELDS[kind].items():
                    if key not in block and key not in REQUIRED:
                        continue
                    value = block.get(key)
                    if flaw := _flaw(value, rule, counts):
                        raise ValueError(f"{kind} {number} has {key} = {shown(value)}, {flaw}")

    def _require(self, *kinds: str) -> None:
        """Raise MapError if blocks of these kinds are invalid, for a map that was constructed and not read."""
        try:
            self._check(*kinds)
        except ValueError as error:
            raise MapError(f"map {printable(self.name)} cannot be used: {error}") from None

    @cached_property
    def start(self) -> tuple[float, float, float]:
        """Where player 1 starts: x, y, heading in degrees."""
        self._require("thing")
        for thing in self.things:
            if thing.get("type") == PLAYER:
                return float(thing["x"]), float(thing["y"]), float(thing.get("angle", 0))
        raise MapError(
            f"map {printable(self.name)} has no start of player 1 (a thing of type {PLAYER}) among its "
            f"{len(self.things)} things: add one, it selects the part of the map to explore"
        )

    @cached_property
    def textures(self) -> frozenset[str]:
        """Names of all textures of the map."""
        self._require("sidedef", "sector")
        names = [side.get(key, NO_TEXTURE) for side in self.sides for key in SIDE_TEXTURES]
        names += [sector.get(key, NO_TEXTURE) for sector in self.sectors for key in FLATS]
        return frozenset(name.upper() for name in names) - {NO_TEXTURE, ""}

    @cached_property
    def segments(self) -> Floats:
        """(m, 2, 2) ends of the lines, map units."""
        self._require("vertex", "linedef")
        points = np.array([(vertex["x"], vertex["y"]) for vertex in self.vertices], np.float64).reshape(-1, 2)
        ends = np.array([(line["v1"], line["v2"]) for line in self.lines], np.int64).reshape(-1, 2)
        return points[ends]

    @cached_property
    def solid(self) -> Bools:
        """(m,) whether the player cannot cross a line: walls, steps that are too high, gaps that are too low.

        Doors and lifts count in their initial state, and a drop that can only be crossed downwards is a wall.
        """
        self._require("linedef", "sidedef", "sector")
        return np.array([self._blocks(line) for line in self.lines], np.bool_)

    def _blocks(self, line: Block) -> bool:
        if any(line.get(flag) for flag in SOLID_FLAGS) or "sideback" not in line:
            return True
        ends = [self.sectors[self.sides[line[key]]["sector"]] for key in ("sidefront", "sideback")]
        floors = [float(sector.get("heightfloor", 0)) for sector in ends]
        ceilings = [float(sector.get("heightceiling", 0)) for sector in ends]
        return abs(floors[0] - floors[1]) > STEP or min(ceilings) - max(floors) < HEIGHT

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """Minimum and maximum coordinates of the map, (2,) each, map units."""
        if not len(self.segments):
            raise MapError(f"map {printable(self.name)} has no lines")
        return self.segments.min((0, 1)), self.segments.max((0, 1))

    def _walls(self) -> Bools:
        """(w, h) whether a cell contains a solid line, with one more cell on every side of the map."""
        low, high = self.bounds
        shape = tuple(np.ceil((high - low) / CELL).astype(int) + 2)
        ends = self.segments[self.solid]
        lengths = np.abs(ends[:, 1] - ends[:, 0]).max(1)
        if math.prod(shape) > CELLS:
            width, height = high - low
            raise MapError(
                f"map {printable(self.name)} is too large: {width:.0f} × {height:.0f} map units are "
                f"{math.prod(shape)} squares of side {CELL:.0f}, expected at most {CELLS}; give a smaller map"
            )
        if lengths.sum() > LENGTH:
            raise MapError(
                f"map {printable(self.name)} has walls of {lengths.sum():.0f} map units in total, expected at most "
                f"{LENGTH}; give a smaller map"
            )
        walls = np.zeros(shape, np.bool_)
        for points in points_along(ends, (lengths / CELL * 2).astype(int) + 2):
            cells = np.floor((points - low) / CELL).astype(int) + 1
            walls[tuple(np.clip(cells, 0, np.array(shape) - 1).T)] = True
        return walls

    @cached_property
    def _free(self) -> Bools:
        """(w, h) whether the player can reach a cell from its start, with a margin to walls."""
        from scipy import ndimage

        clear = ~widened(self._walls(), math.ceil((RADIUS / CELL + 2) ** 2) - 1)
        parts, _ = ndimage.label(clear)
        x, y = np.floor((np.array(self.start[:2]) - self.bounds[0]) / CELL).astype(int) + 1
        near = parts[max(0, x - 8) : max(0, x + 9), max(0, y - 8) : max(0, y + 9)]
        here = np.bincount(near[near > 0], minlength=1)
        if not here.any():
            raise MapError(
                f"map {printable(self.name)}: the player starts at {self.start[:2]}, where there is no room to move"
            )
        return np.asarray(parts == here.argmax())

    @cached_property
    def _cells(self) -> NDArray[np.int64]:
        """(c,) indices of the free cells in the flattened raster."""
        return np.flatnonzero(self._free)

    @cached_property
    def _near(self) -> Bools:
        """(w, h) whether a cell is free or near a free cell.

        A position that touches walls is up to 20 units from the free cells, in a corner; a position on the other side
        of a wall without thickness is 32 units or more from them.
        """
        return widened(self._free, int((1.5 * RADIUS / CELL) ** 2))

    def draw_positions(self, random: np.random.Generator, number: int) -> Floats:
        """Draw (n, 2) positions, map units, uniform over the area that the player can reach from its start."""
        if not isinstance(random, np.random.Generator):
            raise MapError(f"random is {shown(random)}: expected a generator, as of numpy.random.default_rng(0)")
        if not isinstance(number, WHOLE) or number < 0:
            raise MapError(f"the number of positions is {shown(number)}: expected a whole number, 0 or more")
        chosen = self._cells[random.integers(len(self._cells), size=number)]
        cells = np.stack(np.unravel_index(chosen, self._free.shape), axis=-1)
        return np.asarray((cells - 1 + random.random((number, 2))) * CELL + self.bounds[0])

    def is_free(self, positions: ArrayLike) -> Bools:
        """(n,) whether the player fits at positions, (n, 2) map units, and can reach them from its start.

        The player may touch a wall there, unlike at drawn positions.
        """
        places = _places(positions)
        cells = np.floor((places - self.bounds[0]) / CELL) + 1
        inside = ((cells >= 0) & (cells < self._near.shape)).all(1)
        free = np.zeros(len(places), np.bool_)
        free[inside] = self._near[tuple(cells[inside].astype(int).T)]
        free[free] = ~self._touches(places[free], RADIUS - 0.5)
        return free

    def _touches(self, places: Floats, radius: float) -> Bools:
        """(n,) whether a square of half side `radius` around a position overlaps a solid line (separating axes)."""
        ends = self.segments[self.solid]
        touches = np.zeros(len(places), np.bool_)
        together = max(1, PAIRS // max(1, len(ends)))
        for first in range(0, len(places), together):
            some = slice(first, first + together)
            a, b = (ends[:, end] - places[some, None] for end in (0, 1))
            along = (np.minimum(a, b) < radius).all(2) & (np.maximum(a, b) > -radius).all(2)
            d = b - a
            across = np.abs(a[..., 0] * d[..., 1] - a[..., 1] * d[..., 0]) < radius * np.abs(d).sum(2)
            touches[some] = (along & across).any(1)
        return touches

    def retextured(self, textures: Sequence[str], seed: int = 0, floor: str = "", ceiling: str = "") -> DoomMap:
        """Return the map with a random one of these textures on every wall side, and with this floor and ceiling.

        Names are not checked here, because textures belong to the engine: `check_textures` and the environment of the
        map check them.
        """
        names = texture_names(textures) if isinstance(textures, Sequence | np.ndarray) else []
        if not names:
            raise MapError(f"textures are {shown(textures)}: expected a sequence of names to draw from, at least one")
        texture_names([floor, ceiling])
        try:
            random = np.random.default_rng(seed)
        except (TypeError, ValueError) as error:
            raise MapError(f"the seed is {shown(seed)}: expected a whole number, 0 or more ({error})") from None
        drawn = random.integers(len(names), size=len(self.sides))
        sides = [dict(side) for side in self.sides]
        for side, number in zip(sides, drawn, strict=True):
            for key in SIDE_TEXTURES:
                if side.get(key, NO_TEXTURE) != NO_TEXTURE:
                    side[key] = names[number]
        new = {key: name for key, name in zip(FLATS, (floor, ceiling), strict=True) if name}
        return dataclasses.replace(self, sides=sides, sectors=[{**sector, **new} for sector in self.sectors])

    def stripped(self) -> DoomMap:
        """Return the map without active elements: things, damage and blinking lights of sectors, lines that exit.

        Doors and lifts are kept; teleports have no effect, because their destinations are things.
        """
        exits = EXITS[self.namespace.lower() in DOOM_SPECIALS]
        lines = [
            {key: line[key] for key in line if key != "special"} if line.get("special") in exits else line
            for line in self.lines
        ]
        calm = [
            {key: sector[key] for key in sector if key not in ("special", "damageamount")} for sector in self.sectors
        ]
        return dataclasses.replace(self, lines=lines, sectors=calm, things=[])

    def text(self, start: str | None = None) -> str:
        """Format the map as a TEXTMAP; `start`, the text of a thing, replaces all things."""
        if not isinstance(start, str | None):
            raise MapError(f"start is {shown(start)}: expected the text of a thing, or None for the map's own things")
        contents = (self.vertices, self.lines, self.sides, self.sectors, self.things if start is None else [])
        keys = {key for blocks in contents for block in blocks for key in block}
        if odd := [key for key in keys if not (isinstance(key, str) and IDENTIFIER.fullmatch(key))]:
            raise MapError(
                f"map {printable(self.name)} cannot be written: a block has a field named {shown(odd[0])}, expected "
                "letters, digits and _ as in texturetop"
            )
        try:
            parts = [f"namespace = {udmf_text(self.namespace)};"]
            for kind, blocks in zip(KINDS, contents, strict=True):
                parts += [
                    f"{kind} {{ {' '.join(f'{key} = {udmf_text(block[key])};' for key in block)} }}" for block in blocks
                ]
        except ValueError as error:
            raise MapError(f"map {printable(self.name)} cannot be written: {error}") from None
        return "\n".join([*parts, start or "", ""])

    def write(self, path: str | Path) -> None:
        """Write a WAD with this map as UDMF; `read` returns the same map."""
        write_lumps(path, [(self.name, b""), ("TEXTMAP", self.text().encode()), ("ENDMAP", b"")])


def _has_side(line: Block) -> bool:
    return any(_present(line.get(key)) for key in ("sidefront", "sideback"))


def _mended(line: Block) -> Block:
    """Normalise a line: it has a front side, and the field `sideback` only if there is a back side."""
    line = dict(line)
    if not _present(line.get("sidefront")):
        line["v1"], line["v2"] = line.get("v2"), line.get("v1")
        line["sidefront"] = line.pop("sideback")
    if not _present(line.get("sideback")):
        line.pop("sideback", None)
    return line


def _present(side: Any) -> bool:
    return side is not None and side not in (-1, NO_SIDE)


def _flaw(value: Any, rule: str, counts: Mapping[str, int]) -> str:
    """Describe how a field breaks a rule of FIELDS, "" if it does not; `counts` are the blocks of each kind."""
    if rule == "text":
        return "" if isinstance(value, str) else "expected text in quotes"
    if rule == "flag":
        return "" if isinstance(value, FLAG) else "expected true or false"
    if not is_number(value):
        return "expected a number"
    if rule == "coordinate":
        return "" if abs(value) <= LIMIT else f"expected -{LIMIT} to {LIMIT} map units"
    if rule in counts and not (isinstance(value, WHOLE) and 0 <= value < counts[rule]):
        return f"of which there are {counts[rule]}"
    return ""


def _places(positions: ArrayLike) -> Floats:
    """Return positions as (n, 2) float64; MapError if they have another shape or are not numbers."""
    try:
        places = np.atleast_2d(np.asarray(positions, np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise MapError(f"positions are {shown(positions)}: expected numbers of shape (n, 2) ({error})") from None
    if places.ndim != 2 or places.shape[1] != 2:
        raise MapError(f"positions have the shape {np.shape(positions)}: expected (n, 2), x and y in map units")
    return places
