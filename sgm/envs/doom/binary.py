"""The binary map formats of Doom and Hexen: conversion of their tables to blocks of UDMF."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from .lumps import lump_name
from .udmf import BLOCKS, Block

LINE_FLAGS = (
    "blocking",
    "blockmonsters",
    "twosided",
    "dontpegtop",
    "dontpegbottom",
    "secret",
    "blocksound",
    "dontdraw",
    "mapped",
)
ACTIVATIONS = ("playercross", "playeruse", "monstercross", "impact", "playerpush", "missilecross")


def unpack_tables(own: Mapping[str, memoryview]) -> tuple[str, dict[str, list[Block]]]:
    """Convert the tables of a map to its namespace and its blocks, by kind; with a BEHAVIOR lump it is a Hexen map."""
    hexen = "BEHAVIOR" in own
    line_rows = _rows(own, "LINEDEFS", "<HHHB5BHH" if hexen else "<HHHHHHH")
    thing_rows = _rows(own, "THINGS", "<HhhhhHHB5B" if hexen else "<hhhHH")
    return "Hexen" if hexen else "Doom", {
        "vertex": [{"x": float(x), "y": float(y)} for x, y in _rows(own, "VERTEXES", "<hh")],
        "linedef": [(_hexen_line if hexen else _doom_line)(row) for row in line_rows],
        "sidedef": [
            {
                "offsetx": x,
                "offsety": y,
                "texturetop": lump_name(top),
                "texturebottom": lump_name(bottom),
                "texturemiddle": lump_name(middle),
                "sector": sector,
            }
            for x, y, top, bottom, middle, sector in _rows(own, "SIDEDEFS", "<hh8s8s8sH")
        ],
        "sector": [
            {
                "heightfloor": floor,
                "heightceiling": ceiling,
                "texturefloor": lump_name(below),
                "textureceiling": lump_name(above),
                "lightlevel": light,
                "special": special,
                "id": tag,
            }
            for floor, ceiling, below, above, light, special, tag in _rows(own, "SECTORS", "<hh8s8shHH")
        ],
        "thing": [(_hexen_thing if hexen else _doom_thing)(row) for row in thing_rows],
    }


def _rows(own: Mapping[str, memoryview], lump: str, row: str) -> Iterator[tuple[Any, ...]]:
    """Iterate over the rows of a table; `row` is their struct format."""
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
