"""WAD files: reading and writing of their lumps, and the names of their textures.

Every offset is checked. Reading takes time and memory proportional to the size of the file. A file that is not a WAD
raises MapError; its message escapes characters that cannot be printed.
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
FILE = 2**31 - 1  # largest size of a WAD, bytes: its offsets are signed numbers of 32 bits
SHOWN = 20  # largest number of names that an error lists
REPR = reprlib.Repr()  # for values in errors
REPR.maxstring = REPR.maxother = 64
NO_TEXTURE = "-"
TABLES = ("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SECTORS")
OTHER_LUMPS = ("SEGS", "SSECTORS", "NODES", "REJECT", "BLOCKMAP", "BEHAVIOR", "SCRIPTS", "ENDMAP")
DEFINITIONS = ("TEXTURE1", "TEXTURE2", "TEXTURES")  # lumps that define wall textures
TEXTURE = re.compile(r'^[^\S\n]*(?:wall)?texture\s+"?([^\s",]+)', re.IGNORECASE | re.MULTILINE)  # of a TEXTURES lump


class MapError(InputError):
    """An invalid WAD or map."""


def read_lumps(path: str | Path) -> list[Lump]:
    """Read the lumps of a WAD in order: (name, contents). Contents are views of the file's bytes, and may overlap."""
    return _lumps(path, _contents(path))


def write_lumps(path: str | Path, lumps: Iterable[tuple[str, bytes | memoryview]]) -> None:
    """Write lumps to a WAD; names have at most 8 ASCII characters."""
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
    """Names of the maps of a WAD."""
    return names_of_maps(read_lumps(path))


def wall_textures(path: str | Path) -> tuple[str, ...]:
    """Names of the wall textures of a WAD, sorted: those in TEXTURE1, TEXTURE2, TEXTURES and after TX_START."""
    data = _contents(path)
    lumps = _lumps(path, data)
    definitions = [(name, contents) for name, contents in lumps if name in DEFINITIONS]
    # Overlapping lumps would be read once per lump: their total size is limited by that of the file.
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
    """Names of the floor and ceiling textures of a WAD, sorted; engines accept them for walls too, and vice versa."""
    lumps = read_lumps(path)
    return tuple(sorted({*_within(lumps, "F"), *_within(lumps, "FF")}))


def check_textures(names: Iterable[str], *paths: str | Path) -> None:
    """Raise MapError if a name is not a texture of one of these WADs."""
    wanted = {name.upper() for name in texture_names(names)}
    known = {name for path in paths for name in (*wall_textures(path), *flats(path))}
    if unknown := sorted(wanted - known - {NO_TEXTURE}):
        raise MapError(
            f"unknown textures {listed(unknown)}: expected some of the {len(known)} in "
            f"{' and '.join(printable(Path(path).name) for path in paths)}, which wall_textures and flats of "
            "sgm.envs.doom.wad list"
        )


def _contents(path: str | Path) -> bytes:
    """Read the bytes of a WAD; of a file that is not a WAD, only the header is read."""
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
    """Parse the lumps of a WAD from its bytes."""
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
    """Yield the indices of the marker lumps of maps."""
    for number, (_, (after, _)) in enumerate(itertools.pairwise(lumps)):
        if after in ("TEXTMAP", "THINGS"):
            yield number


def lumps_of_map(lumps: Sequence[Lump], name: str) -> dict[str, memoryview]:
    """Lumps of the first map of this name, without its marker."""
    first = 1 + next(marker for marker in _markers(lumps) if lumps[marker][0] == name)
    own: dict[str, memoryview] = {}
    for lump, contents in itertools.islice(lumps, first, None):
        if lump in own or lump not in ("TEXTMAP", *TABLES, *OTHER_LUMPS):
            break
        own[lump] = contents
    return own


def _within(lumps: Sequence[Lump], kind: str) -> Iterator[str]:
    """Yield the names of the lumps between markers, for example F_START and F_END; empty lumps are inner markers."""
    inside = False
    for name, contents in lumps:
        if name in (f"{kind}_START", f"{kind}_END"):
            inside = name.endswith("START")
        elif inside and len(contents):
            yield name


def _composed(path: str | Path, lump: str, contents: memoryview) -> Iterator[str]:
    """Yield the names in a TEXTURE1 or TEXTURE2 lump: it has a count, offsets, and at each offset a name."""
    problem = f"{printable(path)} is damaged: its {lump} cannot be read: "
    number = struct.unpack_from("<i", contents)[0] if len(contents) >= 4 else 0
    if not 0 <= number <= (len(contents) - 4) // 4:
        raise MapError(f"{problem}its {len(contents)} bytes cannot hold the offsets of {number} textures")
    for (offset,) in struct.iter_unpack("<i", contents[4 : 4 + 4 * number]):
        if not 0 <= offset <= len(contents) - 8:
            raise MapError(f"{problem}a texture lies at byte {offset} of {len(contents)}")
        yield lump_name(bytes(contents[offset : offset + 8]))


def lump_name(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace").upper()


def texture_names(names: Iterable[str]) -> list[str]:
    """Return names of textures as a list; MapError if they are not a sequence of strings."""
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
    """Escape characters of a text that a terminal cannot print or would interpret, for errors."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def listed(names: Sequence[str]) -> str:
    """Join names for an error; of many, only the first ones."""
    shown = ", ".join(printable(name if len(name) <= 64 else f"{name[:64]}…") for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def shown(value: Any) -> str:
    """Format a value for an error, in ASCII and shortened."""
    if isinstance(value, int) and value.bit_length() > 64:  # Python refuses to format very long integers
        return f"a number of {value.bit_length()} bits"
    return REPR.repr(value).encode("ascii", "backslashreplace").decode()
