"""Doom maps: read from a WAD in any of the three map formats, change, write as UDMF, ask where one can stand.

A WAD is a directory of lumps. A map is a marker lump followed by its own: either one TEXTMAP (UDMF, plain text) or the
binary tables of Doom or Hexen. Whatever is read becomes the blocks of UDMF, and is written as UDMF. Compiled scripts
(ACS) are not read, and so are gone from what is written; lines keep their specials.

WADs come from strangers. Reading takes time and memory proportional to the size of the file: every count, offset and
length is checked against that size before it is used. What is too large for Doom is refused: coordinates beyond ±LIMIT
map units, maps of more than CELLS cells of the raster, and walls of more than LENGTH map units in total. Whatever is
not a WAD or not a map is a MapError, in which characters that cannot be printed are escaped.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
import reprlib
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError

Block = dict[str, Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Lump = tuple[str, memoryview]

RADIUS = 16  # of the player, map units: half the side of a square, for Doom's players are square
STEP, HEIGHT = 24, 56  # what the player climbs, and the gap it needs, map units
CELL = 4.0  # of the raster of where one can get to, map units
LIMIT = 2**16  # of coordinates, map units either way: twice what Doom's 16 bits hold, for UDMF has no limit of its own
CELLS = 2**26  # of the raster, about 12 bytes each: a map of 32,768 × 32,768 units, whose distances still fit 16 bits
LENGTH = 2**25  # of all solid lines together, map units: a hundred times as many as in Freedoom's largest map
PAIRS = 2**20  # of positions and lines, or points on lines, that are computed together, about 100 bytes each
BLOCKS = 2**20  # of a kind, up to 1000 bytes each: ten times those of large maps
FILE = 2**31 - 1  # bytes of a WAD: its offsets are signed numbers of 32 bits
WORD = 256  # characters of a key or a number of UDMF
SHOWN = 20  # names that an error lists
REPR = reprlib.Repr()  # of values in errors
REPR.maxstring = REPR.maxother = 64
PLAYER = 1  # the thing at which player 1 starts
NO_SIDE = 0xFFFF
NO_TEXTURE = "-"
KINDS = ("vertex", "linedef", "sidedef", "sector", "thing")
TABLES = ("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS")
OTHER_LUMPS = ("SEGS", "SSECTORS", "NODES", "REJECT", "BLOCKMAP", "BEHAVIOR", "SCRIPTS", "ENDMAP")
SIDE_TEXTURES = ("texturetop", "texturebottom", "texturemiddle")
FLATS = ("texturefloor", "textureceiling")
DEFINITIONS = ("TEXTURE1", "TEXTURE2", "TEXTURES")  # lumps that define wall textures
# The tokens of UDMF. No pattern repeats a group, or looks for the end of a comment or a quoted text: a match that fails
# late would begin anew at the next character, or keep something for each one.
TOKEN = re.compile(r'//[^\n]*|/\*|"|[{}=;]|[^\s{}=;"/]+|/')
IDENTIFIER = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{WORD - 1}}}")
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 does not have
INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
TEXTURE = re.compile(r'^[^\S\n]*(?:wall)?texture\s+"?([^\s",]+)', re.IGNORECASE | re.MULTILINE)  # of a TEXTURES lump

LINE_FLAGS = (
    "blocking", "blockmonsters", "twosided", "dontpegtop", "dontpegbottom", "secret", "blocksound", "dontdraw",
    "mapped",
)  # fmt: skip
ACTIVATIONS = ("playercross", "playeruse", "monstercross", "impact", "playerpush", "missilecross")
DOOM_SPECIALS = ("doom", "heretic", "strife", "zdoomtranslated")  # namespaces with the numbers of these games
EXITS = {True: (11, 51, 52, 124, 197, 198), False: (74, 75, 243, 244)}  # lines that end the map: Doom's, Hexen's
FLAG, WHOLE, DECIMAL = (bool, np.bool_), (int, np.integer), (float, np.floating)  # types of values
SOLID_FLAGS = ("blocking", "blockplayers", "blockeverything")

# What the fields are that this module uses: the kind of block a number refers to, or one of the other words `_flaw`
# knows. Those that are not required may be absent. All others are kept as they are.
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


class MapError(InputError):
    """A WAD or a map that is not what it should be."""


def read_lumps(path: str | Path) -> list[Lump]:
    """The lumps of a WAD in order: (name, contents). Contents are views of the file's bytes: lumps may share them."""
    return _lumps(path, _contents(path))


def write_lumps(path: str | Path, lumps: Iterable[tuple[str, bytes | memoryview]]) -> None:
    """Write a WAD of these lumps; names have at most 8 ASCII characters."""
    body, directory, end = [], [], 12
    for name, contents in lumps:
        if not (isinstance(name, str) and name.isascii() and len(name) <= 8):
            raise MapError(f"a lump is named {_shown(name)}: expected at most 8 ASCII characters, as in MAP01")
        directory.append((end, len(contents), name.encode("ascii")))
        body.append(contents)
        end += len(contents)
    if end + 16 * len(directory) > FILE:
        raise MapError(f"lumps of {end} bytes do not fit into a WAD: expected at most {FILE} bytes in all")
    entries = [struct.pack("<ii8s", *entry) for entry in directory]
    try:
        Path(_path(path)).write_bytes(b"".join([struct.pack("<4sii", b"PWAD", len(entries), end), *body, *entries]))
    except (OSError, UnicodeEncodeError) as error:
        raise MapError(
            f"cannot write the WAD {_printable(path)}: {getattr(error, 'strerror', None) or error}"
        ) from None


def map_names(path: str | Path) -> list[str]:
    """The maps of a WAD."""
    return _map_names(read_lumps(path))


def wall_textures(path: str | Path) -> tuple[str, ...]:
    """The wall textures of a WAD, sorted: those of TEXTURE1, TEXTURE2 and TEXTURES, and what lies within TX_START."""
    data = _contents(path)
    lumps = _lumps(path, data)
    definitions = [(name, contents) for name, contents in lumps if name in DEFINITIONS]
    # Lumps may share bytes, which would then be read once per lump.
    if (total := sum(len(contents) for _, contents in definitions)) > len(data):
        raise MapError(
            f"{_printable(path)} is damaged: its {len(definitions)} lumps {', '.join(DEFINITIONS)} overlap: they have "
            f"{total} bytes, and the file {len(data)}"
        )
    found = set(_within(lumps, "TX"))
    for name, contents in definitions:
        if name == "TEXTURES":
            found.update(match.upper() for match in TEXTURE.findall(str(contents, "utf-8", "replace")))
        else:
            found.update(_composed(path, name, contents))
    return tuple(sorted(found - {NO_TEXTURE}))


def flats(path: str | Path) -> tuple[str, ...]:
    """The floor and ceiling textures of a WAD, sorted; engines take them for walls too, and walls' for floors."""
    lumps = read_lumps(path)
    return tuple(sorted({*_within(lumps, "F"), *_within(lumps, "FF")}))


def check_textures(names: Iterable[str], *paths: str | Path) -> None:
    """Raise MapError if one of these names is no texture of these WADs."""
    wanted = {name.upper() for name in _names(names)}
    known = {name for path in paths for name in (*wall_textures(path), *flats(path))}
    if unknown := sorted(wanted - known - {NO_TEXTURE}):
        raise MapError(
            f"unknown textures {_listed(unknown)}: expected some of the {len(known)} in "
            f"{' and '.join(_printable(Path(path).name) for path in paths)}, which wall_textures and flats of "
            "sgm.envs.doom.wad list"
        )


@dataclasses.dataclass(frozen=True)
class DoomMap:
    """A map as the blocks of UDMF.

    Attributes:
        name: of its marker, for example "MAP01".
        namespace: of UDMF, which says what the specials of lines mean.
        vertices: blocks with x and y.
        lines: blocks with v1, v2, sidefront and, if there is something behind, sideback.
        sides: blocks with textures and sector.
        sectors: blocks with heights and textures.
        things: blocks with x, y, angle and type.
        wad: the file it was read from, which may hold textures of its own; "" if there is none.
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

        Lines without any side, which separate nothing from nothing, are left out, as engines do; a line with a back
        side only is turned round.
        """
        if not isinstance(name, str | None):
            raise MapError(
                f"the name of the map is {_shown(name)}: expected text as in MAP01, or None for the first map"
            )
        lumps = read_lumps(path)
        known = _map_names(lumps)
        file = _printable(path)
        if not known:
            raise MapError(f"{file} holds no map")
        name = known[0] if name is None else name.upper()
        if name not in known:
            raise MapError(f"{file} has no map {_printable(name)}: it has {_listed(known)}")
        if not name or not (name.isascii() and name.isprintable()):
            raise MapError(f"{file} has a map named {_shown(name)}: expected ASCII characters, as in MAP01; rename it")
        own = _own_lumps(lumps, name)
        try:
            if "TEXTMAP" in own:
                namespace, blocks = _parse(str(own["TEXTMAP"], "utf-8-sig", "replace"))
            elif missing := [lump for lump in TABLES if lump not in own]:
                raise ValueError(f"it lacks {', '.join(missing)}")
            else:
                namespace, blocks = _unpack(own)
            vertices, lines, sides, sectors, things = (blocks[kind] for kind in KINDS)
            lines = [_mended(line) for line in lines if _has_side(line)]
            found = cls(name, namespace, vertices, lines, sides, sectors, things, str(Path(path).absolute()))
            found._check()
        except ValueError as error:
            raise MapError(f"map {name} of {file} cannot be read: {error}") from None
        return found

    def _check(self, *kinds: str) -> None:
        """Raise ValueError if a block of these kinds, by default of all, has a field that the code cannot use.

        Fields are numbers, texts or flags as in FIELDS, and what they refer to exists.
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
                        raise ValueError(f"{kind} {number} has {key} = {_shown(value)}, {flaw}")

    def _require(self, *kinds: str) -> None:
        """Raise MapError if the blocks of these kinds are not as they should be, in a map that was made, not read."""
        try:
            self._check(*kinds)
        except ValueError as error:
            raise MapError(f"map {_printable(self.name)} cannot be used: {error}") from None

    @cached_property
    def start(self) -> tuple[float, float, float]:
        """Where player 1 starts: x, y, heading in degrees."""
        self._require("thing")
        for thing in self.things:
            if thing.get("type") == PLAYER:
                return float(thing["x"]), float(thing["y"]), float(thing.get("angle", 0))
        raise MapError(
            f"map {_printable(self.name)} has no start of player 1 (a thing of type {PLAYER}) among its "
            f"{len(self.things)} things: add one, it says which part of the map is to be explored"
        )

    @cached_property
    def textures(self) -> frozenset[str]:
        """The names of all textures the map wears."""
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
        """(m,) which lines the player cannot cross: walls, steps that are too high, gaps that are too low.

        Doors and lifts count as they are at the beginning, and a drop that one can only jump down is a wall.
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
        """The least and greatest coordinates of the map, (2,) each, map units."""
        if not len(self.segments):
            raise MapError(f"map {_printable(self.name)} has no lines")
        return self.segments.min((0, 1)), self.segments.max((0, 1))

    def _walls(self) -> Bools:
        """(w, h) cells with a solid line in them, and one more cell on every side of the map."""
        low, high = self.bounds
        shape = tuple(np.ceil((high - low) / CELL).astype(int) + 2)
        ends = self.segments[self.solid]
        lengths = np.abs(ends[:, 1] - ends[:, 0]).max(1)
        if math.prod(shape) > CELLS:
            width, height = high - low
            raise MapError(
                f"map {_printable(self.name)} is too large: {width:.0f} × {height:.0f} map units are "
                f"{math.prod(shape)} squares of side {CELL:.0f}, expected at most {CELLS}; give a smaller map"
            )
        if lengths.sum() > LENGTH:
            raise MapError(
                f"map {_printable(self.name)} has walls of {lengths.sum():.0f} map units in total, expected at most "
                f"{LENGTH}; give a smaller map"
            )
        walls = np.zeros(shape, np.bool_)
        for points in _along(ends, (lengths / CELL * 2).astype(int) + 2):
            cells = np.floor((points - low) / CELL).astype(int) + 1
            walls[tuple(np.clip(cells, 0, np.array(shape) - 1).T)] = True
        return walls

    @cached_property
    def _free(self) -> Bools:
        """(w, h) cells that the player can reach from its start, with some units to spare from walls."""
        from scipy import ndimage

        clear = ~_widened(self._walls(), math.ceil((RADIUS / CELL + 2) ** 2) - 1)
        parts, _ = ndimage.label(clear)
        x, y = np.floor((np.array(self.start[:2]) - self.bounds[0]) / CELL).astype(int) + 1
        near = parts[max(0, x - 8) : max(0, x + 9), max(0, y - 8) : max(0, y + 9)]
        here = np.bincount(near[near > 0], minlength=1)
        if not here.any():
            raise MapError(
                f"map {_printable(self.name)}: the player starts at {self.start[:2]}, where there is no room to move"
            )
        return np.asarray(parts == here.argmax())

    @cached_property
    def _cells(self) -> NDArray[np.int64]:
        """(c,) indices of the free cells in the flattened raster."""
        return np.flatnonzero(self._free)

    @cached_property
    def _near(self) -> Bools:
        """(w, h) cells that are free or next to free ones.

        A place that touches walls is off the free cells by up to 20 units, in a corner; one on the other side of a wall
        of no thickness by 32 or more.
        """
        return _widened(self._free, int((1.5 * RADIUS / CELL) ** 2))

    def draw_positions(self, random: np.random.Generator, number: int) -> Floats:
        """(n, 2) positions, uniform over where the player can get to from its start, off the walls."""
        if not isinstance(random, np.random.Generator):
            raise MapError(f"random is {_shown(random)}: expected a generator, as of numpy.random.default_rng(0)")
        if not isinstance(number, WHOLE) or number < 0:
            raise MapError(f"the number of positions is {_shown(number)}: expected a whole number, 0 or more")
        chosen = self._cells[random.integers(len(self._cells), size=number)]
        cells = np.stack(np.unravel_index(chosen, self._free.shape), axis=-1)
        return np.asarray((cells - 1 + random.random((number, 2))) * CELL + self.bounds[0])

    def is_free(self, positions: ArrayLike) -> Bools:
        """(n,) whether the player can stand at these positions, (n, 2) map units, and get there from its start.

        It may touch a wall there, which positions that are drawn do not.
        """
        places = _places(positions)
        cells = np.floor((places - self.bounds[0]) / CELL) + 1
        inside = ((cells >= 0) & (cells < self._near.shape)).all(1)
        free = np.zeros(len(places), np.bool_)
        free[inside] = self._near[tuple(cells[inside].astype(int).T)]
        free[free] = ~self._touches(places[free], RADIUS - 0.5)
        return free

    def _touches(self, places: Floats, radius: float) -> Bools:
        """(n,) whether a square of this half side around a place overlaps a solid line (separating axes)."""
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
        """The same map with a texture of these on every wall side, drawn from a seed, and this floor and ceiling.

        Names are not checked here, for textures come with the engine: `check_textures` does, and so does the
        environment that gets the map.
        """
        names = _names(textures) if isinstance(textures, Sequence | np.ndarray) else []
        if not names:
            raise MapError(f"textures are {_shown(textures)}: expected a sequence of names to draw from, at least one")
        _names([floor, ceiling])
        try:
            random = np.random.default_rng(seed)
        except (TypeError, ValueError) as error:
            raise MapError(f"the seed is {_shown(seed)}: expected a whole number, 0 or more ({error})") from None
        drawn = random.integers(len(names), size=len(self.sides))
        sides = [dict(side) for side in self.sides]
        for side, number in zip(sides, drawn, strict=True):
            for key in SIDE_TEXTURES:
                if side.get(key, NO_TEXTURE) != NO_TEXTURE:
                    side[key] = names[number]
        new = {key: name for key, name in zip(FLATS, (floor, ceiling), strict=True) if name}
        return dataclasses.replace(self, sides=sides, sectors=[{**sector, **new} for sector in self.sectors])

    def stripped(self) -> DoomMap:
        """The map without what would act on its own: things, damage and blinking lights of sectors, lines that exit.

        Doors, lifts and the like stay; teleports have lost where they lead to and do nothing.
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
        """The map as a TEXTMAP; with a `start`, the text of a thing, that is its only thing."""
        if not isinstance(start, str | None):
            raise MapError(f"start is {_shown(start)}: expected the text of a thing, or None for the map's own things")
        contents = (self.vertices, self.lines, self.sides, self.sectors, self.things if start is None else [])
        keys = {key for blocks in contents for block in blocks for key in block}
        if odd := [key for key in keys if not (isinstance(key, str) and IDENTIFIER.fullmatch(key))]:
            raise MapError(
                f"map {_printable(self.name)} cannot be written: a block has a field named {_shown(odd[0])}, expected "
                "letters, digits and _ as in texturetop"
            )
        try:
            parts = [f"namespace = {_text(self.namespace)};"]
            for kind, blocks in zip(KINDS, contents, strict=True):
                parts += [
                    f"{kind} {{ {' '.join(f'{key} = {_text(block[key])};' for key in block)} }}" for block in blocks
                ]
        except ValueError as error:
            raise MapError(f"map {_printable(self.name)} cannot be written: {error}") from None
        return "\n".join([*parts, start or "", ""])

    def write(self, path: str | Path) -> None:
        """Write a WAD with this map in it, as UDMF; `read` gives the same map back."""
        write_lumps(path, [(self.name, b""), ("TEXTMAP", self.text().encode()), ("ENDMAP", b"")])


def _contents(path: str | Path) -> bytes:
    """The bytes of a WAD; nothing but its header is read of a file that is none."""
    name, shown = _path(path), _printable(path)
    try:
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device may have no end
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise MapError(f"cannot read the WAD {shown}: it is {kind}; give a WAD file")
        with open(name, "rb") as file:
            header = file.read(12)
            if len(header) < 12 or header[:4] not in (b"IWAD", b"PWAD"):
                raise MapError(f"{shown} is not a WAD: it begins with {header[:4]!r}, a WAD with b'IWAD' or b'PWAD'")
            if status.st_size > FILE:
                raise MapError(f"{shown} is not a WAD: it has {status.st_size} bytes, a WAD at most {FILE}")
            file.seek(0)
            return file.read(status.st_size)
    except (OSError, UnicodeEncodeError) as error:
        raise MapError(f"cannot read the WAD {shown}: {getattr(error, 'strerror', None) or error}") from None


def _lumps(path: str | Path, data: bytes) -> list[Lump]:
    """The lumps of a WAD, from its bytes."""
    count, offset = struct.unpack_from("<ii", data, 4) if len(data) >= 12 else (0, 0)
    if count < 0 or not 12 <= offset <= len(data) - 16 * count:
        raise MapError(
            f"{_printable(path)} is damaged or cut short: its directory of {count} lumps at byte {offset} lies outside "
            f"the file's {len(data)} bytes"
        )
    view = memoryview(data)
    lumps = []
    for entry, (start, size, name) in enumerate(struct.iter_unpack("<ii8s", view[offset : offset + 16 * count])):
        if size and not 0 <= start <= start + size <= len(data):
            raise MapError(
                f"{_printable(path)} is damaged: lump {entry} ({_printable(_name(name))}) lies outside the file: its "
                f"{size} bytes begin at byte {start} of {len(data)}"
            )
        lumps.append((_name(name), view[start : start + size]))
    return lumps


def _map_names(lumps: Sequence[Lump]) -> list[str]:
    return [lumps[marker][0] for marker in _markers(lumps)]


def _markers(lumps: Sequence[Lump]) -> Iterator[int]:
    """Numbers of the lumps that begin a map."""
    for number, (_, (after, _)) in enumerate(itertools.pairwise(lumps)):
        if after in ("TEXTMAP", "THINGS"):
            yield number


def _own_lumps(lumps: Sequence[Lump], name: str) -> dict[str, memoryview]:
    """The lumps that belong to a map, the first one of this name."""
    first = 1 + next(marker for marker in _markers(lumps) if lumps[marker][0] == name)
    own: dict[str, memoryview] = {}
    for lump, contents in itertools.islice(lumps, first, None):
        if lump in own or lump not in ("TEXTMAP", *TABLES, *OTHER_LUMPS):
            break
        own[lump] = contents
    return own


def _within(lumps: Sequence[Lump], kind: str) -> Iterator[str]:
    """Names of the lumps between markers, for example F_START and F_END; empty ones are markers of parts."""
    inside = False
    for name, contents in lumps:
        if name in (f"{kind}_START", f"{kind}_END"):
            inside = name.endswith("START")
        elif inside and len(contents):
            yield name


def _composed(path: str | Path, lump: str, contents: memoryview) -> Iterator[str]:
    """Names in a TEXTURE1 or TEXTURE2 lump: a number of textures, where they are, and for each first its name."""
    problem = f"{_printable(path)} is damaged: its {lump} cannot be read: "
    number = struct.unpack_from("<i", contents)[0] if len(contents) >= 4 else 0
    if not 0 <= number <= (len(contents) - 4) // 4:
        raise MapError(f"{problem}its {len(contents)} bytes cannot hold the places of {number} textures")
    for (offset,) in struct.iter_unpack("<i", contents[4 : 4 + 4 * number]):
        if not 0 <= offset <= len(contents) - 8:
            raise MapError(f"{problem}a texture lies at byte {offset} of {len(contents)}")
        yield _name(bytes(contents[offset : offset + 8]))


def _tokens(text: str) -> Iterator[str]:
    """The words, signs and quoted texts of a TEXTMAP, without its comments, each character looked at once."""
    at = 0
    while match := TOKEN.search(text, at):
        token, at = match[0], match.end()
        if token == '"':
            at = _end_of_quote(text, at)
            yield text[match.start() : at]
        elif token == "/*":
            if (end := text.find("*/", at)) < 0:
                raise ValueError("TEXTMAP has a comment without an end: expected */ after /*")
            at = end + 2
        elif not token.startswith("//"):
            if len(token) > WORD:
                raise ValueError(f"TEXTMAP has {_shown(token)} of {len(token)} characters, expected at most {WORD}")
            yield token


def _end_of_quote(text: str, begin: int) -> int:
    """Where the quoted text ends whose first character is at `begin`."""
    at = begin
    while (mark := text.find('"', at)) >= 0:
        piece, at = text[at:mark], mark + 1
        if (len(piece) - len(piece.rstrip("\\"))) % 2 == 0:  # an odd number of backslashes makes it part of the text
            return at
    raise ValueError(f"TEXTMAP has a quotation mark without a second one, before {_shown(text[begin:])}")


def _parse(text: str) -> tuple[str, dict[str, list[Block]]]:
    """The namespace and the blocks, by kind, of a TEXTMAP; blocks of other kinds than KINDS are left out."""
    tokens = _tokens(text)

    def expect(wanted: str, after: str) -> str:
        found = next(tokens, "the end")
        if found not in wanted:
            raise ValueError(f"TEXTMAP has {_shown(found)} after {_shown(after)}, expected one of {wanted!r}")
        return found

    def name(word: str) -> str:
        if not IDENTIFIER.fullmatch(word):
            raise ValueError(f"TEXTMAP has {_shown(word)}, expected a name of letters, digits and _ as in texturetop")
        return word.lower()

    def value(key: str) -> Any:
        read = _value(next(tokens, ""), key)
        expect(";", key)
        return read

    namespace = "ZDoom"
    blocks: dict[str, list[Block]] = {kind: [] for kind in KINDS}
    for word in tokens:
        sign, kind = expect("={", word), name(word)
        if sign == "=":
            given = value(kind)
            if kind == "namespace":
                if not isinstance(given, str):
                    raise ValueError(f"TEXTMAP has {_shown(given)} for namespace, expected text in quotes")
                namespace = given
            continue
        block: Block = {}
        while (key := next(tokens, "the end")) != "}":
            expect("=", key)
            field = name(key)
            block[field] = value(field)
        if kind in blocks:
            if len(blocks[kind]) >= BLOCKS:
                raise ValueError(f"TEXTMAP has more than {BLOCKS} blocks {kind}, expected at most as many")
            blocks[kind].append(block)
    return namespace, blocks


def _unpack(own: Mapping[str, memoryview]) -> tuple[str, dict[str, list[Block]]]:
    """The namespace and the blocks, by kind, of the tables of Doom or, with a BEHAVIOR, Hexen."""
    hexen = "BEHAVIOR" in own
    line_rows = _rows(own, "LINEDEFS", "<HHHB5BHH" if hexen else "<HHHHHHH")
    thing_rows = _rows(own, "THINGS", "<HhhhhHHB5B" if hexen else "<hhhHH")
    return "Hexen" if hexen else "Doom", {
        "vertex": [{"x": float(x), "y": float(y)} for x, y in _rows(own, "VERTEXES", "<hh")],
        "linedef": [(_hexen_line if hexen else _doom_line)(row) for row in line_rows],
        "sidedef": [
            {
                "offsetx": x, "offsety": y, "texturetop": _name(top), "texturebottom": _name(bottom),
                "texturemiddle": _name(middle), "sector": sector,
            }
            for x, y, top, bottom, middle, sector in _rows(own, "SIDEDEFS", "<hh8s8s8sH")
        ],
        "sector": [
            {
                "heightfloor": floor, "heightceiling": ceiling, "texturefloor": _name(below),
                "textureceiling": _name(above), "lightlevel": light, "special": special, "id": tag,
            }
            for floor, ceiling, below, above, light, special, tag in _rows(own, "SECTORS", "<hh8s8shHH")
        ],
        "thing": [(_hexen_thing if hexen else _doom_thing)(row) for row in thing_rows],
    }  # fmt: skip


def _rows(own: Mapping[str, memoryview], lump: str, row: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a table; `row` is their format, as of struct."""
    size, each = len(own[lump]), struct.calcsize(row)
    if size % each:
        raise ValueError(f"{lump} has {size} bytes, expected rows of {each} bytes")
    if size // each > BLOCKS:
        raise ValueError(f"{lump} has {size // each} rows, expected at most {BLOCKS}")
    return struct.iter_unpack(row, own[lump])


def _doom_line(row: tuple[Any, ...]) -> Block:
    start, end, flags, special, tag, front, back = row
    line = _line(start, end, flags, front, back)
    if flags & 512:
        line["passuse"] = True
    return {**line, "special": special, "id": tag}


def _hexen_line(row: tuple[Any, ...]) -> Block:
    start, end, flags, special, *args, front, back = row
    line = _line(start, end, flags, front, back)
    if flags & 512:
        line["repeatspecial"] = True
    if special and (activation := flags >> 10 & 7) < len(ACTIVATIONS):
        line[ACTIVATIONS[activation]] = True
    return {**line, "special": special, **{f"arg{i}": arg for i, arg in enumerate(args)}}


def _line(start: int, end: int, flags: int, front: int, back: int) -> Block:
    set_flags = {name: True for bit, name in enumerate(LINE_FLAGS) if flags >> bit & 1}
    return {"v1": start, "v2": end, "sidefront": front, "sideback": back, **set_flags}


def _doom_thing(row: tuple[Any, ...]) -> Block:
    x, y, angle, kind, flags = row
    return {"x": float(x), "y": float(y), "angle": angle, "type": kind, **_skills(flags), "single": not flags & 16}


def _hexen_thing(row: tuple[Any, ...]) -> Block:
    tag, x, y, height, angle, kind, flags, special, *args = row
    thing = {"x": float(x), "y": float(y), "height": float(height), "angle": angle, "type": kind, "id": tag}
    thing |= {**_skills(flags), "dormant": bool(flags & 16), "single": bool(flags & 256)}
    thing |= {f"class{number}": bool(flags & 16 << number) for number in (1, 2, 3)}
    return {**thing, "special": special, **{f"arg{i}": arg for i, arg in enumerate(args)}}


def _skills(flags: int) -> Block:
    skills = {f"skill{number}": bool(flags & bit) for number, bit in enumerate((1, 1, 2, 4, 4), start=1)}
    return {**skills, "ambush": bool(flags & 8)}


def _has_side(line: Block) -> bool:
    return any(_present(line.get(key)) for key in ("sidefront", "sideback"))


def _mended(line: Block) -> Block:
    """The line with a front side, and with a back side only if there is one."""
    line = dict(line)
    if not _present(line.get("sidefront")):
        line["v1"], line["v2"] = line.get("v2"), line.get("v1")
        line["sidefront"] = line.pop("sideback")
    if not _present(line.get("sideback")):
        line.pop("sideback", None)
    return line


def _present(side: Any) -> bool:
    return side is not None and side not in (-1, NO_SIDE)


def _name(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace").upper()


def _value(token: str, key: str) -> Any:
    if token.startswith('"'):
        # A backslash is left out, unless it comes after one that is.
        return "\\".join(piece.replace("\\", "") for piece in token[1:-1].split("\\\\"))
    if token.lower() in ("true", "false"):
        return token.lower() == "true"
    number: int | float = math.nan
    if INTEGER.fullmatch(token):
        number = int(token, 16 if "x" in token.lower() else 10)
    elif NUMBER.fullmatch(token):
        number = float(token)
    if not _is_number(number):
        raise ValueError(
            f"TEXTMAP has {_shown(token)} for {key}, expected a number of at most 64 bits, true, false or text in "
            "quotes"
        )
    return number


def _text(value: Any) -> str:
    """A value as UDMF writes it."""
    if isinstance(value, str) and not SURROGATE.search(value):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, FLAG):
        return "true" if value else "false"
    if _is_number(value):
        return repr(int(value) if isinstance(value, WHOLE) else float(value))
    raise ValueError(f"{_shown(value)} is no value of UDMF, expected a number of at most 64 bits, a bool or text")


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a TEXTMAP can hold: finite, and of at most 64 bits if it is whole."""
    if isinstance(value, WHOLE) and not isinstance(value, bool):
        return -(2**63) <= int(value) < 2**63
    return isinstance(value, DECIMAL) and math.isfinite(value)


def _flaw(value: Any, rule: str, counts: Mapping[str, int]) -> str:
    """What was expected of a field that is not what a rule of FIELDS says, given the number of blocks of each kind."""
    if rule == "text":
        return "" if isinstance(value, str) else "expected text in quotes"
    if rule == "flag":
        return "" if isinstance(value, FLAG) else "expected true or false"
    if not _is_number(value):
        return "expected a number"
    if rule == "coordinate":
        return "" if abs(value) <= LIMIT else f"expected -{LIMIT} to {LIMIT} map units"
    if rule in counts and not (isinstance(value, WHOLE) and 0 <= value < counts[rule]):
        return f"of which there are {counts[rule]}"
    return ""


def _along(ends: Floats, numbers: NDArray[np.int64]) -> Iterator[Floats]:
    """(p, 2) points on lines, some at a time.

    Args:
        ends: (m, 2, 2) of the lines.
        numbers: (m,) of points on each, at equal distances from one end to the other, both included.
    """
    parts = np.searchsorted(np.cumsum(numbers), np.arange(PAIRS, numbers.sum(), PAIRS))
    for lines in np.split(np.arange(len(ends)), parts):
        line = np.repeat(lines, numbers[lines])
        before = np.cumsum(numbers[lines]) - numbers[lines]
        number = np.arange(len(line)) - np.repeat(before, numbers[lines])
        last = numbers[line] - 1
        share = np.where(number == last, 1.0, number * (1 / last))[:, None]
        yield ends[line, 0] + (ends[line, 1] - ends[line, 0]) * share


def _widened(cells: Bools, reach: int) -> Bools:
    """(w, h) cells within √`reach` cells of one of these.

    A Euclidean distance transform says the same, in thirty times the memory.
    """
    found, rows, width = cells.copy(), cells.copy(), 0  # `rows` are widened by `width` cells within their rows
    for up in range(math.isqrt(reach), -1, -1):
        while width < math.isqrt(reach - up * up):
            width += 1
            _spread(rows.T, cells.T, width)
        _spread(found, rows, up)
    return found


def _spread(target: Bools, source: Bools, by: int) -> None:
    """Mark the cells of `target` that lie `by` rows above or below one of `source`."""
    rest = max(0, len(source) - by)
    target[by:] |= source[:rest]
    target[:rest] |= source[by:]


def _places(positions: ArrayLike) -> Floats:
    """(n, 2) positions."""
    try:
        places = np.atleast_2d(np.asarray(positions, np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise MapError(f"positions are {_shown(positions)}: expected numbers of shape (n, 2) ({error})") from None
    if places.ndim != 2 or places.shape[1] != 2:
        raise MapError(f"positions have the shape {np.shape(positions)}: expected (n, 2), x and y in map units")
    return places


def _names(names: Iterable[str]) -> list[str]:
    """These names of textures as a list; MapError if they are none."""
    given = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [None]
    if not all(isinstance(name, str) for name in given):
        raise MapError(f"textures are {_shown(names)}: expected a sequence of names, as in ['WOOD1', 'WOOD3']")
    return [str(name) for name in given]


def _path(path: str | Path) -> str:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise MapError(f"the path of the WAD is {_shown(path)}: expected the name of a file")
    return name


def _printable(text: Any) -> str:
    """A text for an error, with escapes for what would not be legible on a terminal, or would change it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def _listed(names: Sequence[str]) -> str:
    """Names for an error, the first ones if there are many."""
    shown = ", ".join(_printable(name if len(name) <= 64 else f"{name[:64]}…") for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _shown(value: Any) -> str:
    """A value for an error, in ASCII and shortened."""
    if isinstance(value, int) and value.bit_length() > 64:  # Python refuses to write out very long ones
        return f"a number of {value.bit_length()} bits"
    return REPR.repr(value).encode("ascii", "backslashreplace").decode()
