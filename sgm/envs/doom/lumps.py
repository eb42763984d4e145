"""WAD files: a directory of lumps, read with every offset checked, and the textures they hold.

Reading takes time and memory proportional to the size of the file. Whatever is not a WAD is a MapError, in which
characters that cannot be printed are escaped.
"""

from __future__ import annotations

import itertools
import os
import re
import reprlib
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sgm.errors import InputError

Lump = tuple[str, memoryview]
FILE = 2**31 - 1  # bytes of a WAD: its offsets are signed numbers of 32 bits
SHOWN = 20  # names that an error lists
REPR = reprlib.Repr()  # of values in errors
REPR.maxstring = REPR.maxother = 64
NO_TEXTURE = "-"
TABLES = ("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS")
OTHER_LUMPS = ("SEGS", "SSECTORS", "NODES", "REJECT", "BLOCKMAP", "BEHAVIOR", "SCRIPTS", "ENDMAP")
DEFINITIONS = ("TEXTURE1", "TEXTURE2", "TEXTURES")  # lumps that define wall textures
TEXTURE = re.compile(r'^[^\S\n]*(?:wall)?texture\s+"?([^\s",]+)', re.IGNORECASE | re.MULTILINE)  # of a TEXTURES lump


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
            raise MapError(f"a lump is named {shown(name)}: expected at most 8 ASCII characters, as in MAP01")
        directory.append((end, len(contents), name.encode("ascii")))
        body.append(contents)
        end += len(contents)
    if end + 16 * len(directory) > FILE:
        raise MapError(f"lumps of {end} bytes do not fit into a WAD: expected at most {FILE} bytes in all")
    entries = [struct.pack("<ii8s", *entry) for entry in directory]
    try:
        Path(_path(path)).write_bytes(b"".join([struct.pack("<4sii", b"PWAD", len(entries), end), *body, *entries]))
    except (OSError, UnicodeEncodeError) as error:
        raise MapError(f"cannot write the WAD {printable(path)}: {getattr(error, 'strerror', None) or error}") from None


def map_names(path: str | Path) -> list[str]:
    """The maps of a WAD."""
    return names_of_maps(read_lumps(path))


def wall_textures(path: str | Path) -> tuple[str, ...]:
    """The wall textures of a WAD, sorted: those of TEXTURE1, TEXTURE2 and TEXTURES, and what lies within TX_START."""
    data = _contents(path)
    lumps = _lumps(path, data)
    definitions = [(name, contents) for name, contents in lumps if name in DEFINITIONS]
    # Lumps may share bytes, which would then be read once per lump.
    if (total := sum(len(contents) for _, contents in definitions)) > len(data):
        raise MapError(
            f"{printable(path)} is damaged: its {len(definitions)} lumps {', '.join(DEFINITIONS)} overlap: they have "
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
    wanted = {name.upper() for name in texture_names(names)}
    known = {name for path in paths for name in (*wall_textures(path), *flats(path))}
    if unknown := sorted(wanted - known - {NO_TEXTURE}):
        raise MapError(
            f"unknown textures {listed(unknown)}: expected some of the {len(known)} in "
            f"{' and '.join(printable(Path(path).name) for path in paths)}, which wall_textures and flats of "
            "sgm.envs.doom.wad list"
        )


def _contents(path: str | Path) -> bytes:
    """The bytes of a WAD; nothing but its header is read of a file that is none."""
    name, shown = _path(path), printable(path)
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
            f"{printable(path)} is damaged or cut short: its directory of {count} lumps at byte {offset} lies outside "
            f"the file's {len(data)} bytes"
        )
    view = memoryview(data)
    lumps = []
    for entry, (start, size, name) in enumerate(struct.iter_unpack("<ii8s", view[offset : offset + 16 * count])):
        if size and not 0 <= start <= start + size <= len(data):
            raise MapError(
                f"{printable(path)} is damaged: lump {entry} ({printable(lump_name(name))}) lies outside the file: its "
                f"{size} bytes begin at byte {start} of {len(data)}"
            )
        lumps.append((lump_name(name), view[start : start + size]))
    return lumps


def names_of_maps(lumps: Sequence[Lump]) -> list[str]:
    return [lumps[marker][0] for marker in _markers(lumps)]


def _markers(lumps: Sequence[Lump]) -> Iterator[int]:
    """Numbers of the lumps that begin a map."""
    for number, (_, (after, _)) in enumerate(itertools.pairwise(lumps)):
        if after in ("TEXTMAP", "THINGS"):
            yield number


def lumps_of_map(lumps: Sequence[Lump], name: str) -> dict[str, memoryview]:
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
    problem = f"{printable(path)} is damaged: its {lump} cannot be read: "
    number = struct.unpack_from("<i", contents)[0] if len(contents) >= 4 else 0
    if not 0 <= number <= (len(contents) - 4) // 4:
        raise MapError(f"{problem}its {len(contents)} bytes cannot hold the places of {number} textures")
    for (offset,) in struct.iter_unpack("<i", contents[4 : 4 + 4 * number]):
        if not 0 <= offset <= len(contents) - 8:
            raise MapError(f"{problem}a texture lies at byte {offset} of {len(contents)}")
        yield lump_name(bytes(contents[offset : offset + 8]))


def lump_name(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace").upper()


def texture_names(names: Iterable[str]) -> list[str]:
    """These names of textures as a list; MapError if they are none."""
    given = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [None]
    if not all(isinstance(name, str) for name in given):
        raise MapError(f"textures are {shown(names)}: expected a sequence of names, as in ['WOOD1', 'WOOD3']")
    return [str(name) for name in given]


def _path(path: str | Path) -> str:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise MapError(f"the path of the WAD is {shown(path)}: expected the name of a file")
    return name


def printable(text: Any) -> str:
    """A text for an error, with escapes for what would not be legible on a terminal, or would change it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def listed(names: Sequence[str]) -> str:
    """Names for an error, the first ones if there are many."""
    shown = ", ".join(printable(name if len(name) <= 64 else f"{name[:64]}…") for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def shown(value: Any) -> str:
    """A value for an error, in ASCII and shortened."""
    if isinstance(value, int) and value.bit_length() > 64:  # Python refuses to write out very long ones
        return f"a number of {value.bit_length()} bits"
    return REPR.repr(value).encode("ascii", "backslashreplace").decode()
