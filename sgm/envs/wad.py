"""Doom maps: read from a WAD in any of the three map formats, change, write as UDMF, ask where one can stand.

A WAD is a directory of lumps. A map is a marker lump followed by its own: either one TEXTMAP (UDMF, plain text) or the
binary tables of Doom or Hexen. Whatever is read becomes the blocks of UDMF, and is written as UDMF. Compiled scripts
(ACS) are not read, and so are gone from what is written; lines keep their specials.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.memory.errors import InputError

Block = dict[str, Any]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

RADIUS = 16  # of the player, map units: half the side of a square, for Doom's players are square
STEP, HEIGHT = 24, 56  # what the player climbs, and the gap it needs, map units
CELL = 4.0  # of the raster of where one can get to, map units
PLAYER = 1  # the thing at which player 1 starts
NO_SIDE = 0xFFFF
NO_TEXTURE = "-"
KINDS = ("vertex", "linedef", "sidedef", "sector", "thing")
TABLES = ("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS")
OTHER_LUMPS = ("SEGS", "SSECTORS", "NODES", "REJECT", "BLOCKMAP", "BEHAVIOR", "SCRIPTS", "ENDMAP")
SIDE_TEXTURES = ("texturetop", "texturebottom", "texturemiddle")
FLATS = ("texturefloor", "textureceiling")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|[{}=;]|(?:(?!//|/\*)[^\s{}=;"])+', re.DOTALL)

LINE_FLAGS = (
    "blocking", "blockmonsters", "twosided", "dontpegtop", "dontpegbottom", "secret", "blocksound", "dontdraw",
    "mapped",
)  # fmt: skip
ACTIVATIONS = ("playercross", "playeruse", "monstercross", "impact", "playerpush", "missilecross")
DOOM_SPECIALS = ("doom", "heretic", "strife", "zdoomtranslated")  # namespaces with the numbers of these games
EXITS = {True: (11, 51, 52, 124, 197, 198), False: (74, 75, 243, 244)}  # lines that end the map: Doom's, Hexen's


class MapError(InputError):
    """A WAD or a map that is not what it should be."""


def read_lumps(path: str | Path) -> list[tuple[str, bytes]]:
    """The lumps of a WAD in order: (name, contents)."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise MapError(f"cannot read the WAD {path}: {error.strerror or error}") from None
    if len(data) < 12 or data[:4] not in (b"IWAD", b"PWAD"):
        raise MapError(f"{path} is not a WAD: it begins with {data[:4]!r}, a WAD with b'IWAD' or b'PWAD'")
    count, offset = struct.unpack("<ii", data[4:12])
    if count < 0 or not 12 <= offset <= len(data) - 16 * count:
        raise MapError(
            f"{path} is damaged or cut short: its directory of {count} lumps at byte {offset} lies outside the file's "
            f"{len(data)} bytes"
        )
    lumps = []
    for entry in range(count):
        start, size, name = struct.unpack_from("<ii8s", data, offset + 16 * entry)
        if size and not 0 <= start <= start + size <= len(data):
            raise MapError(f"{path} is damaged: lump {entry} ({_name(name)}) lies outside the file")
        lumps.append((_name(name), data[start : start + size]))
    return lumps


def write_lumps(path: str | Path, lumps: Iterable[tuple[str, bytes]]) -> None:
    """Write a WAD of these lumps."""
    body, directory, end = [], [], 12
    for name, contents in lumps:
        directory.append(struct.pack("<ii8s", end, len(contents), name.encode("ascii")))
        body.append(contents)
        end += len(contents)
    Path(path).write_bytes(b"".join([struct.pack("<4sii", b"PWAD", len(directory), end), *body, *directory]))


def map_names(path: str | Path) -> list[str]:
    """The maps of a WAD."""
    return _map_names(read_lumps(path))


def wall_textures(path: str | Path) -> tuple[str, ...]:
    """The wall textures of a WAD, sorted: those of TEXTURE1, TEXTURE2 and TEXTURES, and what lies within TX_START."""
    lumps = read_lumps(path)
    found = set(_within(lumps, "TX"))
    for name, contents in lumps:
        if name in ("TEXTURE1", "TEXTURE2"):
            found.update(_composed(path, name, contents))
        elif name == "TEXTURES":
            text = contents.decode("utf-8", "replace")
            found.update(match.upper() for match in re.findall(r'(?im)^\s*(?:wall)?texture\s+"?([^\s",]+)', text))
    return tuple(sorted(found - {NO_TEXTURE}))


def flats(path: str | Path) -> tuple[str, ...]:
    """The floor and ceiling textures of a WAD, sorted; engines take them for walls too, and walls' for floors."""
    lumps = read_lumps(path)
    return tuple(sorted({*_within(lumps, "F"), *_within(lumps, "FF")}))


def check_textures(names: Iterable[str], *paths: str | Path) -> None:
    """Raise MapError if one of these names is no texture of these WADs."""
    known = {name for path in paths for name in (*wall_textures(path), *flats(path))}
    if unknown := sorted({name.upper() for name in names} - known - {NO_TEXTURE}):
        raise MapError(
            f"unknown textures {', '.join(unknown)}: expected some of the {len(known)} in "
            f"{' and '.join(Path(path).name for path in paths)}, which wall_textures and flats of sgm.envs.wad list"
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
        lumps = read_lumps(path)
        known = _map_names(lumps)
        if not known:
            raise MapError(f"{path} holds no map")
        name = known[0] if name is None else name.upper()
        if name not in known:
            raise MapError(f"{path} has no map {name}: it has {', '.join(known)}")
        own = _own_lumps(lumps, name)
        try:
            if "TEXTMAP" in own:
                namespace, blocks = _parse(own["TEXTMAP"].decode("utf-8", "replace"))
            elif missing := [lump for lump in TABLES if lump not in own]:
                raise ValueError(f"it lacks {', '.join(missing)}")
            else:
                namespace, blocks = _unpack(own)
            vertices, lines, sides, sectors, things = (blocks[kind] for kind in KINDS)
            lines = [_mended(line) for line in lines if _has_side(line)]
            found = cls(name, namespace, vertices, lines, sides, sectors, things, str(Path(path).absolute()))
            found._check()
        except (struct.error, ValueError) as error:
            raise MapError(f"map {name} of {path} cannot be read: {error}") from None
        return found

    def _check(self) -> None:
        """Raise ValueError if a block lacks what it must have, or refers to one that does not exist."""
        for kind, blocks, keys in (
            ("vertex", self.vertices, {"x": None, "y": None}),
            ("linedef", self.lines, {"v1": self.vertices, "v2": self.vertices, "sidefront": self.sides}),
            ("linedef", [line for line in self.lines if "sideback" in line], {"sideback": self.sides}),
            ("sidedef", self.sides, {"sector": self.sectors}),
            ("thing", self.things, {"x": None, "y": None, "type": None}),
        ):
            for number, block in enumerate(blocks):
                for key, others in keys.items():
                    value = block.get(key)
                    if isinstance(value, bool) or not isinstance(value, int | float):
                        raise ValueError(f"{kind} {number} has {key} = {value!r}, expected a number")
                    if others is not None and not (isinstance(value, int) and 0 <= value < len(others)):
                        raise ValueError(f"{kind} {number} has {key} = {value}, of which there are {len(others)}")

    @cached_property
    def start(self) -> tuple[float, float, float]:
        """Where player 1 starts: x, y, heading in degrees."""
        for thing in self.things:
            if thing.get("type") == PLAYER:
                return float(thing["x"]), float(thing["y"]), float(thing.get("angle", 0))
        raise MapError(
            f"map {self.name} has no start of player 1 (a thing of type {PLAYER}) among its {len(self.things)} things: "
            "add one, it says which part of the map is to be explored"
        )

    @cached_property
    def textures(self) -> frozenset[str]:
        """The names of all textures the map wears."""
        names = [side.get(key, NO_TEXTURE) for side in self.sides for key in SIDE_TEXTURES]
        names += [sector.get(key, NO_TEXTURE) for sector in self.sectors for key in FLATS]
        return frozenset(name.upper() for name in names) - {NO_TEXTURE, ""}

    @cached_property
    def segments(self) -> Floats:
        """(m, 2, 2) ends of the lines."""
        points = np.array([(vertex["x"], vertex["y"]) for vertex in self.vertices], np.float64).reshape(-1, 2)
        ends = np.array([(line["v1"], line["v2"]) for line in self.lines], np.int64).reshape(-1, 2)
        return points[ends]

    @cached_property
    def solid(self) -> Bools:
        """(m,) which lines the player cannot cross: walls, steps that are too high, gaps that are too low.

        Doors and lifts count as they are at the beginning, and a drop that one can only jump down is a wall.
        """
        return np.array([self._blocks(line) for line in self.lines], np.bool_)

    def _blocks(self, line: Block) -> bool:
        if any(line.get(flag) for flag in ("blocking", "blockplayers", "blockeverything")) or "sideback" not in line:
            return True
        ends = [self.sectors[self.sides[line[key]]["sector"]] for key in ("sidefront", "sideback")]
        floors = [float(sector.get("heightfloor", 0)) for sector in ends]
        ceilings = [float(sector.get("heightceiling", 0)) for sector in ends]
        return abs(floors[0] - floors[1]) > STEP or min(ceilings) - max(floors) < HEIGHT

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """The least and greatest coordinates of the map."""
        if not len(self.segments):
            raise MapError(f"map {self.name} has no lines")
        return self.segments.min((0, 1)), self.segments.max((0, 1))

    @cached_property
    def _free(self) -> Bools:
        """Cells that the player can reach from its start, with some units to spare from walls."""
        from scipy import ndimage

        low, high = self.bounds
        shape = tuple(np.ceil((high - low) / CELL).astype(int) + 2)
        wall = np.zeros(shape, np.bool_)
        for a, b in self.segments[self.solid]:
            points = a + (b - a) * np.linspace(0, 1, int(np.abs(b - a).max() / CELL * 2) + 2)[:, None]
            cells = np.floor((points - low) / CELL).astype(int) + 1
            wall[tuple(np.clip(cells, 0, np.array(shape) - 1).T)] = True
        clear = ndimage.distance_transform_edt(~wall) * CELL >= RADIUS + 2 * CELL
        parts, _ = ndimage.label(clear)
        x, y = np.floor((np.array(self.start[:2]) - low) / CELL).astype(int) + 1
        near = parts[max(0, x - 8) : max(0, x + 9), max(0, y - 8) : max(0, y + 9)]
        here = np.bincount(near[near > 0], minlength=1)
        if not here.any():
            raise MapError(f"map {self.name}: the player starts at {self.start[:2]}, where there is no room to move")
        return np.asarray(parts == here.argmax())

    @cached_property
    def _cells(self) -> NDArray[np.int64]:
        """(c, 2) indices of the free cells."""
        return np.argwhere(self._free)

    @cached_property
    def _near(self) -> Bools:
        """Cells that are free or next to free ones.

        A place that touches walls is off the free cells by up to 20 units, in a corner; one on the other side of a wall
        of no thickness by 32 or more.
        """
        from scipy import ndimage

        return np.asarray(ndimage.distance_transform_edt(~self._free) * CELL <= 1.5 * RADIUS)

    def draw_positions(self, random: np.random.Generator, number: int) -> Floats:
        """(n, 2) positions, uniform over where the player can get to from its start, off the walls."""
        chosen = self._cells[random.integers(len(self._cells), size=number)]
        return np.asarray((chosen - 1 + random.random((number, 2))) * CELL + self.bounds[0])

    def is_free(self, positions: ArrayLike) -> Bools:
        """(n,) whether the player can stand at these positions, (n, 2) map units, and get there from its start.

        It may touch a wall there, which positions that are drawn do not.
        """
        places = np.atleast_2d(np.asarray(positions, np.float64))
        cells = np.floor((places - self.bounds[0]) / CELL) + 1
        inside = ((cells >= 0) & (cells < self._near.shape)).all(1)
        near = np.zeros(len(places), np.bool_)
        near[inside] = self._near[tuple(cells[inside].astype(int).T)]
        return near & ~self._touches(places, RADIUS - 0.5)

    def _touches(self, places: Floats, radius: float) -> Bools:
        """(n,) whether a square of this half side around a place overlaps a solid line (separating axes)."""
        a, b = (self.segments[self.solid, end] - places[:, None] for end in (0, 1))
        along = (np.minimum(a, b) < radius).all(2) & (np.maximum(a, b) > -radius).all(2)
        d = b - a
        across = np.abs(a[..., 0] * d[..., 1] - a[..., 1] * d[..., 0]) < radius * np.abs(d).sum(2)
        return np.asarray((along & across).any(1))

    def retextured(self, textures: Sequence[str], seed: int = 0, floor: str = "", ceiling: str = "") -> DoomMap:
        """The same map with a texture of these on every wall side, drawn from a seed, and this floor and ceiling.

        Names are not checked here, for textures come with the engine: `check_textures` does, and so does the
        environment that gets the map.
        """
        if isinstance(textures, str) or not len(textures):
            raise MapError(f"textures are {textures!r}: expected a sequence of names to draw from, at least one")
        random = np.random.default_rng(seed)
        drawn = random.integers(len(textures), size=len(self.sides))
        sides = [dict(side) for side in self.sides]
        for side, number in zip(sides, drawn, strict=True):
            for key in SIDE_TEXTURES:
                if side.get(key, NO_TEXTURE) != NO_TEXTURE:
                    side[key] = textures[number]
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
        parts = [f"namespace = {_text(self.namespace)};"]
        contents = (self.vertices, self.lines, self.sides, self.sectors, self.things if start is None else [])
        for kind, blocks in zip(KINDS, contents, strict=True):
            parts += [f"{kind} {{ {' '.join(f'{key} = {_text(block[key])};' for key in block)} }}" for block in blocks]
        return "\n".join([*parts, start or "", ""])

    def write(self, path: str | Path) -> None:
        """Write a WAD with this map in it, as UDMF; `read` gives the same map back."""
        write_lumps(path, [(self.name, b""), ("TEXTMAP", self.text().encode()), ("ENDMAP", b"")])


def _map_names(lumps: Sequence[tuple[str, bytes]]) -> list[str]:
    names = [name for name, _ in lumps]
    return [name for name, after in itertools.pairwise(names) if after in ("TEXTMAP", "THINGS")]


def _own_lumps(lumps: Sequence[tuple[str, bytes]], name: str) -> dict[str, bytes]:
    """The lumps that belong to a map."""
    marker = next(i for i in range(len(lumps)) if lumps[i][0] == name and lumps[i + 1][0] in ("TEXTMAP", "THINGS"))
    own: dict[str, bytes] = {}
    for lump, contents in lumps[marker + 1 :]:
        if lump in own or lump not in ("TEXTMAP", *TABLES, *OTHER_LUMPS):
            break
        own[lump] = contents
    return own


def _within(lumps: Sequence[tuple[str, bytes]], kind: str) -> Iterator[str]:
    """Names of the lumps between markers, for example F_START and F_END; empty ones are markers of parts."""
    inside = False
    for name, contents in lumps:
        if name in (f"{kind}_START", f"{kind}_END"):
            inside = name.endswith("START")
        elif inside and contents:
            yield name


def _composed(path: str | Path, lump: str, contents: bytes) -> Iterator[str]:
    """Names in a TEXTURE1 or TEXTURE2 lump: a number of textures, where they are, and for each first its name."""
    try:
        (number,) = struct.unpack_from("<i", contents)
        for offset in struct.unpack_from(f"<{number}i", contents, 4):
            yield _name(struct.unpack_from("<8s", contents, offset)[0])
    except struct.error as error:
        raise MapError(f"{path} is damaged: its {lump} cannot be read: {error}") from None


def _parse(text: str) -> tuple[str, dict[str, list[Block]]]:
    """The namespace and the blocks, by kind, of a TEXTMAP."""
    tokens = iter([token for token in TOKEN.findall(text) if not token.startswith(("//", "/*"))])

    def expect(wanted: str, after: str) -> str:
        found = next(tokens, "the end")
        if found not in wanted:
            raise ValueError(f"TEXTMAP has {found!r} after {after!r}, expected one of {wanted!r}")
        return found

    def value(key: str) -> Any:
        read = _value(next(tokens, ""), key)
        expect(";", key)
        return read

    namespace = "ZDoom"
    blocks: dict[str, list[Block]] = {kind: [] for kind in KINDS}
    for word in tokens:
        if expect("={", word) == "=":
            given = value(word)
            namespace = str(given) if word.lower() == "namespace" else namespace
            continue
        block: Block = {}
        while (key := next(tokens, "the end")) != "}":
            expect("=", key)
            block[key.lower()] = value(key)
        blocks.setdefault(word.lower(), []).append(block)
    return namespace, blocks


def _unpack(own: Mapping[str, bytes]) -> tuple[str, dict[str, list[Block]]]:
    """The namespace and the blocks, by kind, of the tables of Doom or, with a BEHAVIOR, Hexen."""
    hexen = "BEHAVIOR" in own
    line_rows = struct.iter_unpack("<HHHB5BHH" if hexen else "<HHHHHHH", own["LINEDEFS"])
    thing_rows = struct.iter_unpack("<HhhhhHHB5B" if hexen else "<hhhHH", own["THINGS"])
    return "Hexen" if hexen else "Doom", {
        "vertex": [{"x": float(x), "y": float(y)} for x, y in struct.iter_unpack("<hh", own["VERTEXES"])],
        "linedef": [(_hexen_line if hexen else _doom_line)(row) for row in line_rows],
        "sidedef": [
            {
                "offsetx": x, "offsety": y, "texturetop": _name(top), "texturebottom": _name(bottom),
                "texturemiddle": _name(middle), "sector": sector,
            }
            for x, y, top, bottom, middle, sector in struct.iter_unpack("<hh8s8s8sH", own["SIDEDEFS"])
        ],
        "sector": [
            {
                "heightfloor": floor, "heightceiling": ceiling, "texturefloor": _name(below),
                "textureceiling": _name(above), "lightlevel": light, "special": special, "id": tag,
            }
            for floor, ceiling, below, above, light, special, tag in struct.iter_unpack("<hh8s8shHH", own["SECTORS"])
        ],
        "thing": [(_hexen_thing if hexen else _doom_thing)(row) for row in thing_rows],
    }  # fmt: skip


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
        return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)
    if token.lower() in ("true", "false"):
        return token.lower() == "true"
    try:
        if re.fullmatch(r"[+-]?(\d+|0[xX][0-9a-fA-F]+)", token):
            return int(token, 16 if "x" in token.lower() else 10)
        number = float(token)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"TEXTMAP has {token!r} for {key}, expected a number, true, false or text in quotes")
    return number


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
