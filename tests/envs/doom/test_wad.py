"""Doom maps: the three formats say the same, what is damaged is refused, and one can stand where it says."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from sgm.envs.doom import mazes as doom_mazes
from sgm.envs.doom import raster, wad
from sgm.envs.doom import udmf as udmf_format
from sgm.envs.doom.drawing import draw_map
from sgm.envs.doom.wad import (
    DoomMap,
    MapError,
    check_textures,
    flats,
    map_names,
    read_lumps,
    wall_textures,
    write_lumps,
)

# A room of 256 × 128 units in two halves, 0 … 128 and 128 … 256, the second 16 units higher.
CORNERS = [(0, 0), (0, 128), (128, 128), (256, 128), (256, 0), (128, 0)]
WALLS = [(0, 1, 0), (1, 2, 0), (2, 3, 1), (3, 4, 1), (4, 5, 1), (5, 0, 0)]  # ends and sector
DOOR, EXIT, TAG = 1, 11, 7
SKILLS = {f"skill{number}": True for number in range(1, 6)}


def name(text: str) -> bytes:
    return text.encode().ljust(8, b"\0")


def side(sector: int, texture: str = "BRICK1") -> bytes:
    return struct.pack("<hh8s8s8sH", 0, 0, name("-"), name("-"), name(texture), sector)


def lines_of(pack) -> bytes:
    """Walls, the step between the halves (with its sides the wrong way round), and a line without any side."""
    rows = [pack(start, end, 1, 0, side, 0xFFFF) for side, (start, end, _) in enumerate(WALLS)]
    rows += [pack(5, 2, 4, DOOR, 6, 7), pack(0, 1, 1, 0, 0xFFFF, 0xFFFF)]
    return b"".join(rows)


def tables(hexen: bool = False, **changes: bytes) -> list[tuple[str, bytes]]:
    """The lumps of the room in Doom's or Hexen's format."""

    def doom_line(start, end, flags, special, front, back):
        return struct.pack("<HHHHHHH", start, end, flags, special, TAG if special else 0, front, back)

    def hexen_line(start, end, flags, special, front, back):
        return struct.pack("<HHHB5BHH", start, end, flags | 0x600, special, TAG, 0, 0, 0, 0, front, back)

    if hexen:
        things = struct.pack("<HhhhhHHB5B", 3, 64, 64, 0, 90, 1, 0x7E7, 0, 0, 0, 0, 0, 0)
    else:
        things = struct.pack("<hhhHH", 64, 64, 90, 1, 7)
    lumps = {
        "THINGS": things,
        "LINEDEFS": lines_of(hexen_line if hexen else doom_line),
        "SIDEDEFS": b"".join(side(sector) for *_, sector in WALLS) + side(1, "-") + side(0, "-"),
        "VERTEXES": b"".join(struct.pack("<hh", *corner) for corner in CORNERS),
        "SECTORS": b"".join(
            struct.pack("<hh8s8shHH", floor, 128, name("FLOOR0_1"), name("CEIL1_1"), 160, 0, TAG) for floor in (0, 16)
        ),
    }
    lumps |= {"BEHAVIOR": b"ACS\0"} if hexen else {}
    return [("MAP01", b""), *(lumps | changes).items()]


def room(**changes) -> DoomMap:
    """The room as blocks."""
    lines = [{"v1": a, "v2": b, "sidefront": i, "blocking": True} for i, (a, b, _) in enumerate(WALLS)]
    middle = {"v1": 5, "v2": 2, "sidefront": 6, "sideback": 7, "twosided": True}
    blocks = {
        "vertices": [{"x": float(x), "y": float(y)} for x, y in CORNERS],
        "lines": [*lines, middle | changes.pop("middle", {})],
        "sides": [
            {"sector": sector, "texturemiddle": texture}
            for sector, texture in [*((sector, "BRICK1") for *_, sector in WALLS), (1, "-"), (0, "-")]
        ],
        "sectors": [{"heightfloor": floor, "heightceiling": 128} for floor in changes.pop("floors", (0, 16))],
        "things": [{"x": 64.0, "y": 64.0, "angle": 90, "type": 1}],
    }
    return DoomMap("MAP01", "Doom", **(blocks | changes))


def written(path: Path, lumps: list[tuple[str, bytes]]) -> Path:
    write_lumps(path, lumps)
    return path


def udmf(path: Path, text: str) -> Path:
    return written(path, [("MAP01", b""), ("TEXTMAP", text.encode()), ("ENDMAP", b"")])


def same(one: DoomMap, other: DoomMap) -> bool:
    return dataclasses.replace(one, wad="") == dataclasses.replace(other, wad="")


# Formats


@pytest.mark.parametrize("hexen", [False, True])
def test_a_binary_map_becomes_the_blocks_of_udmf_and_comes_back_the_same(tmp_path, hexen):
    first = DoomMap.read(written(tmp_path / "a.wad", tables(hexen)))
    assert first.namespace == ("Hexen" if hexen else "Doom")
    assert first.start == (64.0, 64.0, 90.0)
    assert first.sectors[1] == {
        "heightfloor": 16,
        "heightceiling": 128,
        "texturefloor": "FLOOR0_1",
        "textureceiling": "CEIL1_1",
        "lightlevel": 160,
        "special": 0,
        "id": TAG,
    }
    assert first.things[0].items() >= {**SKILLS, "single": True, "ambush": False}.items()
    first.write(tmp_path / "b.wad")
    assert same(DoomMap.read(tmp_path / "b.wad"), first)


def test_specials_of_lines_survive(tmp_path):
    doom = DoomMap.read(written(tmp_path / "a.wad", tables())).lines[6]
    assert doom.items() >= {"special": DOOR, "id": TAG, "twosided": True, "sidefront": 6, "sideback": 7}.items()
    hexen = DoomMap.read(written(tmp_path / "a.wad", tables(True))).lines[6]
    assert hexen.items() >= {"special": DOOR, "arg0": TAG, "playeruse": True, "repeatspecial": True}.items()


def test_lines_without_sides_are_left_out_and_those_with_a_back_only_are_turned_round(tmp_path):
    found = DoomMap.read(written(tmp_path / "a.wad", tables()))
    assert len(found.lines) == len(WALLS) + 1  # of eight
    turned = room(lines=[{"v1": 0, "v2": 1, "sidefront": -1, "sideback": 0}])
    turned.write(tmp_path / "b.wad")
    assert DoomMap.read(tmp_path / "b.wad").lines == [{"v1": 1, "v2": 0, "sidefront": 0}]


def test_udmf_is_read_with_its_comments_escapes_and_odd_numbers(tmp_path):
    text = b"""// by hand
    namespace = "ZDoom"; version = 1; /* one
    vertex { x = 5; y = 5; } */
    thing//#0
    { x = -1.5e1; Y = 0x10; type = 010; comment = "say \\"hi\\" // {}; \\\\"; arg0 = +3; skill1 = TRUE; }
    """
    found = DoomMap.read(written(tmp_path / "a.wad", [("E1M1", b""), ("TEXTMAP", text), ("ENDMAP", b"")]))
    assert (found.name, found.namespace, found.vertices) == ("E1M1", "ZDoom", [])
    thing = {"x": -15.0, "y": 16, "type": 10, "comment": 'say "hi" // {}; \\', "arg0": 3, "skill1": True}
    assert found.things == [thing]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True).filter(lambda key: key != "angle"),  # which is a number
        st.one_of(
            st.booleans(),
            st.integers(-(2**31), 2**31),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(blacklist_categories=["Cs"])),
        ),
        max_size=5,
    ),
    st.text(st.sampled_from('ab"\\ ;{}'), max_size=8),
)
@settings(max_examples=50)
def test_what_is_written_is_read_again(tmp_path_factory, extra, texture):
    sides = [{"sector": 0, "texturemiddle": texture}] * 8
    first = room(sides=sides, things=[{**extra, "x": 1.0, "y": 2.0, "type": 1}])
    path = tmp_path_factory.getbasetemp() / "again.wad"
    first.write(path)
    assert same(DoomMap.read(path), first)


def test_the_first_map_is_read_unless_another_is_asked_for(tmp_path):
    path = written(tmp_path / "a.wad", [*tables(), ("CREDITS", b"hello"), ("E2M3", b""), *tables(True)[1:]])
    assert map_names(path) == ["MAP01", "E2M3"]
    assert DoomMap.read(path).namespace == "Doom"
    assert DoomMap.read(path, "e2m3").namespace == "Hexen"
    assert DoomMap.read(path).wad == str(path)
    assert read_lumps(path)[-1] == ("BEHAVIOR", b"ACS\0")


# What is refused


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (None, "cannot read the WAD .*: No such file"),
        (b"", "is not a WAD: it begins with b''"),
        (b"PK\3\4" + bytes(20), "is not a WAD: it begins with b'PK"),
        (struct.pack("<4sii", b"PWAD", 5, 12), "cut short: its directory of 5 lumps at byte 12"),
        (struct.pack("<4siiii8s", b"PWAD", 1, 12, 900, 7, b"THINGS"), r"lump 0 \(THINGS\) lies outside"),
        (struct.pack("<4sii", b"PWAD", 0, 12), "holds no map"),
    ],
)
def test_what_is_no_wad_is_refused(tmp_path, contents, message):
    path = tmp_path / "a.wad"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(MapError, match=message):
        DoomMap.read(path)


def test_a_wad_that_is_cut_short_is_refused(tmp_path):
    path = written(tmp_path / "a.wad", tables())
    whole = path.read_bytes()
    for length in range(12, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(MapError):
            DoomMap.read(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SECTORS": b""}, "sidedef 0 has sector = 0, of which there are 0"),
        ({"SIDEDEFS": side(0)}, "linedef 1 has sidefront = 1, of which there are 1"),
        ({"VERTEXES": b"12345"}, "VERTEXES has 5 bytes, expected rows of 4 bytes"),
        ({"VERTEXES": b""}, "linedef 0 has v1 = 0, of which there are 0"),
    ],
)
def test_tables_that_contradict_each_other_are_refused(tmp_path, changes, message):
    with pytest.raises(MapError, match=f"map MAP01 of .* cannot be read: .*{message}"):
        DoomMap.read(written(tmp_path / "a.wad", tables(**changes)))


def test_a_map_that_lacks_a_table_is_refused(tmp_path):
    lumps = [lump for lump in tables() if lump[0] not in ("VERTEXES", "SECTORS")]
    with pytest.raises(MapError, match="lacks VERTEXES, SECTORS"):
        DoomMap.read(written(tmp_path / "a.wad", lumps))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vertex { x = 1;", "'the end' after 'the end'"),
        ("vertex { x = 1; y = }", "'}' for y, expected a number"),
        ("vertex { x = 1 y = 2; }", "'y' after 'x'"),
        ("vertex { x = nan; y = 2; }", "'nan' for x, expected a number"),
        ("vertex", "'the end' after 'vertex'"),
        ("vertex { x = 1; }", "vertex 0 has y = None, expected a number"),
        ('vertex { x = 1; y = "2"; }', "vertex 0 has y = '2', expected a number"),
        ("vertex ; x", "';' after 'vertex'"),
        ("/* vertex", r"a comment without an end: expected \*/ after /\*"),
        ('comment = "say \\"hi\\"', "quotation mark without a second one, before 'say"),
        ("vertex { x = 1/2; }", "'/' after 'x'"),
        ('"vertex" { x = 1; }', "expected a name of letters, digits and _"),
        ("vertex { = = 5; }", "'=', expected a name of letters, digits and _"),
        ("vertex { größe = 5; }", r"'gr\\xf6\\xdfe', expected a name of letters, digits and _"),
        ("vertex { x\x1b = north; }", r"'x\\x1b', expected a name of letters, digits and _"),
        ("namespace = 5;", "5 for namespace, expected text in quotes"),
        ("namespace = true;", "True for namespace, expected text in quotes"),
        ("version = 1_000;", "'1_000' for version, expected a number"),
        ("version = ١;", r"'\\u0661' for version, expected a number"),
        ("version = -inf;", "'-inf' for version, expected a number"),
        ("version = 1e999;", "'1e999' for version, expected a number"),
        ("version = 9223372036854775808;", "for version, expected a number of at most 64 bits"),
        (f"version = 0x{'f' * 17};", "for version, expected a number of at most 64 bits"),
        (f"version = {'9' * 5000};", "9' of 5000 characters, expected at most 256"),
        (f"{'a' * 257} = 1;", "a' of 257 characters, expected at most 256"),
    ],
)
def test_text_that_is_no_udmf_is_refused(tmp_path, text, message):
    with pytest.raises(MapError, match=message):
        DoomMap.read(udmf(tmp_path / "a.wad", text))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("vertex { x = 1e6; y = 0; }", "vertex 6 has x = 1000000.0, expected -65536 to 65536 map units"),
        ("vertex { x = 0; y = -65537; }", "vertex 6 has y = -65537, expected -65536 to 65536 map units"),
        ("vertex { x = 0; y = true; }", "vertex 6 has y = True, expected a number"),
        ("linedef { v1 = 0; v2 = 6; sidefront = 0; }", "linedef 7 has v2 = 6, of which there are 6"),
        ("linedef { v1 = 0; v2 = -1; sidefront = 0; }", "linedef 7 has v2 = -1, of which there are 6"),
        ("linedef { v1 = 0; v2 = 1.0; sidefront = 0; }", "linedef 7 has v2 = 1.0, of which there are 6"),
        ('linedef { v1 = 0; v2 = 1; sidefront = "0"; }', "linedef 7 has sidefront = '0', expected a number"),
        (
            "linedef { v1 = 0; v2 = 1; sidefront = 0; sideback = 9; }",
            "linedef 7 has sideback = 9, of which there are 8",
        ),
        (
            "linedef { v1 = 0; v2 = 1; sidefront = 0; blocking = 1; }",
            "linedef 7 has blocking = 1, expected true or false",
        ),
        ("sidedef { sector = 0; texturemiddle = 5; }", "sidedef 8 has texturemiddle = 5, expected text in quotes"),
        ("sidedef { sector = 0; texturetop = true; }", "sidedef 8 has texturetop = True, expected text in quotes"),
        ("sidedef { sector = 2; }", "sidedef 8 has sector = 2, of which there are 2"),
        ('sector { heightfloor = "x"; }', "sector 2 has heightfloor = 'x', expected a number"),
        ("sector { heightceiling = false; }", "sector 2 has heightceiling = False, expected a number"),
        ("sector { texturefloor = 1.5; }", "sector 2 has texturefloor = 1.5, expected text in quotes"),
        ('thing { x = 0; y = 0; type = 1; angle = "north"; }', "thing 1 has angle = 'north', expected a number"),
        ("thing { x = 1e300; y = 0; type = 2; }", r"thing 1 has x = 1e\+300, expected -65536 to 65536 map units"),
        ("thing { x = 0; y = 0; }", "thing 1 has type = None, expected a number"),
    ],
)
def test_a_field_of_the_wrong_type_or_out_of_range_is_refused_by_name(tmp_path, block, message):
    with pytest.raises(MapError, match=f"map MAP01 of .* cannot be read: {message}"):
        DoomMap.read(udmf(tmp_path / "a.wad", f"{room().text()} {block}"))


@pytest.mark.parametrize(
    ("changes", "use", "message"),
    [
        ({"vertices": [{"x": float("nan"), "y": 0.0}]}, "segments", "vertex 0 has x = nan, expected a number"),
        (
            {"vertices": [{"x": 10**400, "y": 0.0}]},
            "segments",
            "vertex 0 has x = a number of 1329 bits, expected a number",
        ),
        ({"vertices": [{"x": 1e9, "y": 0.0}]}, "bounds", "vertex 0 has x = 1000000000.0, expected -65536 to 65536"),
        ({"vertices": []}, "segments", "linedef 0 has v1 = 0, of which there are 0"),
        ({"sides": []}, "solid", "linedef 0 has sidefront = 0, of which there are 0"),
        ({"sectors": []}, "solid", "sidedef 0 has sector = 0, of which there are 0"),
        ({"sectors": [{"heightfloor": "x"}] * 2}, "solid", "sector 0 has heightfloor = 'x', expected a number"),
        ({"sectors": [{"texturefloor": None}] * 2}, "textures", "sector 0 has texturefloor = None, expected text"),
        ({"things": [{"x": "1", "y": 2.0, "type": 1}]}, "start", "thing 0 has x = '1', expected a number"),
        (
            {"things": [{"x": 1.0, "y": 2.0, "type": 1, "angle": "\x1b"}]},
            "start",
            r"thing 0 has angle = '\\x1b', expected",
        ),
    ],
)
def test_a_map_that_was_made_wrong_is_refused_when_it_is_used(changes, use, message):
    with pytest.raises(MapError, match=f"map MAP01 cannot be used: {message}"):
        getattr(room(**changes), use)


def test_maps_of_numpy_numbers_are_maps(tmp_path):
    things = [{"x": np.float32(64), "y": np.int64(64), "type": np.uint16(1), "single": np.bool_(True)}]
    doom_map = room(things=things)
    doom_map.write(tmp_path / "a.wad")
    assert DoomMap.read(tmp_path / "a.wad").things == [{"x": 64.0, "y": 64, "type": 1, "single": True}]
    assert doom_map.start == (64.0, 64.0, 0.0)


def test_more_blocks_than_any_map_has_are_refused_before_they_are_made(tmp_path, monkeypatch):
    with pytest.raises(MapError, match="VERTEXES has 1048577 rows, expected at most 1048576"):
        DoomMap.read(written(tmp_path / "a.wad", tables(VERTEXES=bytes(4 * (2**20 + 1)))))
    monkeypatch.setattr(udmf_format, "BLOCKS", 3)
    assert len(DoomMap.read(udmf(tmp_path / "a.wad", "sector {} " * 3)).sectors) == 3
    with pytest.raises(MapError, match="TEXTMAP has more than 3 blocks sector"):
        DoomMap.read(udmf(tmp_path / "a.wad", "sector {} " * 4))


@pytest.mark.parametrize(
    ("corners", "number", "message"),
    [
        ([(-33000, -33000), (33000, -33000), (0, 33000)], 3, "too large: 66000 × 66000 map units .* at most 67108864"),
        ([(0, 0), (32000, 0), (16000, 16000)], 7000, "walls of .* map units in total, expected at most 33554432"),
    ],
)
def test_maps_larger_than_those_of_doom_are_refused_when_positions_are_asked_for(corners, number, message):
    vertices = [{"x": float(x), "y": float(y)} for x, y in corners]
    lines = [{"v1": i % 3, "v2": (i + 1) % 3, "sidefront": 0} for i in range(number)]
    large = room(vertices=vertices, lines=lines)
    assert len(large.segments) == number
    for ask in (lambda: large.draw_positions(np.random.default_rng(0), 1), lambda: large.is_free([(64, 64)])):
        with pytest.raises(MapError, match=f"map MAP01 (is|has) {message}"):
            ask()


@pytest.mark.parametrize("name", ["", "a\0b.wad", None, 5, b"a.wad", "a\ud800.wad", ".", "missing.wad", "m\x1b[2Jap"])
def test_a_path_that_names_no_file_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for function in (read_lumps, map_names, wall_textures, flats, lambda path: check_textures([], path), DoomMap.read):
        with pytest.raises(MapError, match="WAD") as refused:
            function(name)
        assert str(refused.value).isprintable()


def test_a_directory_or_a_pipe_is_no_wad(tmp_path):
    with pytest.raises(MapError, match=r"cannot read the WAD .*: it is a directory; give a WAD file"):
        DoomMap.read(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # to open one is to wait for somebody to write
    with pytest.raises(MapError, match=r"cannot read the WAD .*: it is no regular file; give a WAD file"):
        DoomMap.read(tmp_path / "pipe")


def test_only_the_header_is_read_of_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "a.wad"
    path.write_bytes(struct.pack("<4sii", b"PWAD", 0, 12))
    os.truncate(path, 2**31)  # takes no space
    with pytest.raises(MapError, match="is not a WAD: it has 2147483648 bytes, a WAD at most 2147483647"):
        read_lumps(path)


@pytest.mark.parametrize("name", [5, b"MAP01", ["MAP01"], True])
def test_a_map_is_asked_for_by_text(tmp_path, name):
    with pytest.raises(
        MapError, match="the name of the map is .*: expected text as in MAP01, or None for the first map"
    ):
        DoomMap.read(written(tmp_path / "a.wad", tables()), name)


@pytest.mark.parametrize("raw", [b"M\xffP01\0\0\0", b"\0MAP01\0\0", b"MAP\x1b[2J\0"])
def test_a_map_without_a_legible_name_is_refused(tmp_path, raw):
    path = written(tmp_path / "a.wad", tables())
    path.write_bytes(path.read_bytes().replace(name("MAP01"), raw))
    assert len(map_names(path)) == 1
    with pytest.raises(
        MapError, match="has a map named '.*': expected ASCII characters, as in MAP01; rename it"
    ) as refused:
        DoomMap.read(path)
    assert str(refused.value).isprintable()


def test_what_cannot_be_printed_is_escaped_in_errors(tmp_path):
    path = written(tmp_path / "a.wad", [("MAP01", b""), ("THINGS", b""), *[(f"\x1b{i}", b"") for i in range(3)]])
    with pytest.raises(MapError, match=r"has no map \\x1b\[31MX: it has MAP01"):
        DoomMap.read(path, "\x1b[31mx")
    with pytest.raises(MapError, match=r"unknown textures \\x1b\[31M, \\u202eX: expected some of the 0 in a.wad"):
        check_textures(["\x1b[31m", "\u202ex"], path)
    path.write_bytes(struct.pack("<4siiii8s", b"PWAD", 1, 12, 900, 7, b"A\x07B\n"))
    with pytest.raises(
        MapError, match=r"lump 0 \(A\\x07B\\n\) lies outside the file: its 7 bytes begin at byte 900 of 28"
    ):
        read_lumps(path)
    with pytest.raises(MapError, match=r"TEXTMAP has '\\x1b\]0\\u200b' for x, expected a number"):
        DoomMap.read(udmf(path, "vertex { x = \x1b]0\u200b; y = 0; }"))


def test_errors_do_not_grow_with_the_file(tmp_path):
    many = [(f"M{number}" if number % 2 else "THINGS", b"") for number in range(5001)]
    with pytest.raises(MapError, match=r"it has M1, M3, .* and \d+ more") as refused:
        DoomMap.read(written(tmp_path / "a.wad", many), "other")
    assert len(str(refused.value)) < 1000
    with pytest.raises(MapError, match=r"unknown textures T0, T1, .* and 980 more") as refused:
        check_textures([f"T{number}" for number in range(1000)], tmp_path / "a.wad")
    with pytest.raises(MapError, match=r"unknown textures A{64}…: expected") as refused:
        check_textures(["a" * 10**6], tmp_path / "a.wad")
    with pytest.raises(MapError, match=r"sidedef 0 has sector = 'a+\.\.\.a+', expected a number") as refused:
        DoomMap.read(udmf(tmp_path / "a.wad", f'sidedef {{ sector = "{"a" * 10**6}"; }}'))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("count", "offset"), [(-1, 12), (2**31 - 1, 12), (1, 0), (1, -16), (1, 13), (1, 2**31 - 1), (2, 12), (-(2**31), 12)]
)
def test_a_directory_outside_the_file_is_refused(tmp_path, count, offset):
    path = tmp_path / "a.wad"
    path.write_bytes(struct.pack("<4sii", b"PWAD", count, offset) + bytes(16))
    with pytest.raises(MapError, match=f"cut short: its directory of {count} lumps at byte {offset} lies outside"):
        read_lumps(path)


@pytest.mark.parametrize(
    ("start", "size"), [(-1, 1), (12, -1), (28, 1), (2**31 - 1, 2**31 - 1), (0, 29), (29, 2**31 - 1)]
)
def test_a_lump_outside_the_file_is_refused(tmp_path, start, size):
    path = tmp_path / "a.wad"
    path.write_bytes(struct.pack("<4siiii8s", b"PWAD", 1, 12, start, size, b"THINGS"))
    with pytest.raises(MapError, match=r"lump 0 \(THINGS\) lies outside the file"):
        read_lumps(path)


def test_lumps_that_share_bytes_share_memory(tmp_path):
    path = tmp_path / "a.wad"
    data = struct.pack("<4sii", b"PWAD", 3, 16) + b"abcd"
    data += struct.pack("<ii8s", 12, 4, b"A") + struct.pack("<ii8s", 13, 2, b"B") + struct.pack("<ii8s", 0, 64, b"ALL")
    path.write_bytes(data)
    lumps = dict(read_lumps(path))
    assert lumps == {"A": b"abcd", "B": b"bc", "ALL": data}  # the last one holds the directory that lists it
    assert len({id(contents.obj) for contents in lumps.values()}) == 1


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "its 0 bytes cannot hold the offsets of 0 textures"),
        (b"\1\0", "its 2 bytes cannot hold the offsets of 0 textures"),
        (struct.pack("<i", -1), "its 4 bytes cannot hold the offsets of -1 textures"),
        (struct.pack("<i", 2**31 - 1), "its 4 bytes cannot hold the offsets of 2147483647 textures"),
        (struct.pack("<iii", 2, 12, 12), "a texture lies at byte 12 of 12"),
        (struct.pack("<ii8s", 1, -8, b"BRICK1"), "a texture lies at byte -8 of 16"),
        (struct.pack("<ii8s", 1, 9, b"BRICK1"), "a texture lies at byte 9 of 16"),
    ],
)
def test_textures_outside_their_lump_are_refused(tmp_path, contents, message):
    path = written(tmp_path / "a.wad", [("TEXTURE1", contents)])
    with pytest.raises(MapError, match=f"is damaged: its TEXTURE1 cannot be read: {message}"):
        wall_textures(path)


@pytest.mark.parametrize(
    "positions", ["here", [[1, 2, 3]], [1], [], [[[1, 2]]], [[1, 2], [3]], [["x", "y"]], None, [[10**400, 0]]]
)
def test_positions_that_are_no_positions_are_refused(positions):
    with pytest.raises(MapError, match=r"positions .*expected .*\(n, 2\)"):
        room().is_free(positions)


def test_nobody_stands_at_positions_that_are_not_finite_and_there_may_be_none():
    assert not room().is_free([(np.nan, 64), (np.inf, 64), (64, -np.inf), (1e308, -1e308)]).any()
    assert room().is_free(np.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize(("generator", "number"), [(None, 1), (0, 1), (np.random.default_rng(0), -1)])
def test_positions_are_drawn_with_a_generator_and_a_number(generator, number):
    with pytest.raises(MapError, match="expected a (generator|whole number)"):
        room().draw_positions(generator, number)


@pytest.mark.parametrize(
    "arguments",
    [{"textures": 5}, {"textures": {"A"}}, {"textures": ["A", 5]}, {"floor": 5}, {"seed": -1}, {"seed": "x"}],
)
def test_retexturing_with_what_is_no_name_or_no_seed_is_refused(arguments):
    with pytest.raises(
        MapError, match="textures are .*: expected a sequence of names|the seed is .*: expected a whole number"
    ):
        room().retextured(**({"textures": ["A"]} | arguments))


@pytest.mark.parametrize("names", ["BRICK1", 5, None, ["A", 5], [b"A"]])
def test_textures_are_checked_by_a_sequence_of_names(tmp_path, names):
    with pytest.raises(MapError, match="textures are .*: expected a sequence of names"):
        check_textures(names, written(tmp_path / "a.wad", tables()))


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ({"x } vertex { y": 1}, "a field named 'x } vertex { y', expected letters, digits and _"),
        ({5: 1}, "a field named 5, expected letters, digits and _"),
        ({"x": float("inf")}, "inf is not a value of UDMF"),
        ({"x": 2**64}, "a number of 65 bits is not a value of UDMF"),
        ({"x": None}, "None is not a value of UDMF"),
        ({"x": "\ud800"}, r"'\\ud800' is not a value of UDMF"),
    ],
)
def test_a_map_that_could_not_be_read_again_is_not_written(tmp_path, thing, message):
    with pytest.raises(MapError, match=f"map MAP01 cannot be written: (a block has )?{message}"):
        room(things=[thing]).write(tmp_path / "a.wad")
    assert not (tmp_path / "a.wad").exists()


@pytest.mark.parametrize("name", ["MAP01TOOLONG", "MÄP01", 5])
def test_a_map_whose_name_is_no_name_of_a_lump_is_not_written(tmp_path, name):
    with pytest.raises(MapError, match="a lump is named .*: expected at most 8 ASCII characters"):
        dataclasses.replace(room(), name=name).write(tmp_path / "a.wad")


@pytest.mark.parametrize("name", ["", "a\0b", None, ".", "no/such/folder.wad"])
def test_a_map_is_not_written_to_what_is_no_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MapError, match="cannot write the WAD|the path of the WAD is .*: expected the name of a file"):
        room().write(name)


def test_the_start_of_a_text_is_text():
    with pytest.raises(MapError, match="start is 5: expected the text of a thing"):
        room().text(5)


def test_a_map_that_is_not_there_is_refused_with_a_list_of_those_that_are(tmp_path):
    path = written(tmp_path / "a.wad", [*tables(), ("E2M3", b""), *tables()[1:]])
    with pytest.raises(MapError, match="has no map MAP02: it has MAP01, E2M3"):
        DoomMap.read(path, "MAP02")


def test_a_map_without_a_start_or_room_around_it_is_refused_when_positions_are_asked_for():
    with pytest.raises(MapError, match=r"no start of player 1 \(a thing of type 1\) among its 1 things"):
        room(things=[{"x": 64.0, "y": 64.0, "type": 3004}]).draw_positions(np.random.default_rng(0), 1)
    with pytest.raises(MapError, match="starts at .*, where there is no room to move"):
        room(things=[{"x": 900.0, "y": 64.0, "type": 1}]).draw_positions(np.random.default_rng(0), 1)
    with pytest.raises(MapError, match="has no lines"):
        room(lines=[]).draw_positions(np.random.default_rng(0), 1)


# Attacks

SQUARE = [(0, 0), (0, 1), (1, 1), (1, 0)]


def square(side: float, lines: int = 4) -> str:
    """The text of a square room, its walls drawn more than once if there are more than four lines."""
    vertices = "".join(f"vertex {{ x = {x * side!r}; y = {y * side!r}; }}" for x, y in SQUARE)
    walls = "".join(f"linedef {{ v1 = {i % 4}; v2 = {(i + 1) % 4}; sidefront = 0; }}" for i in range(lines))
    return f"{vertices} {walls} sidedef {{ sector = 0; }} sector {{}} thing {{ x = 99; y = 99; type = 1; }}"


def repeated(lump: str, contents: bytes, times: int) -> bytes:
    """A WAD whose directory lists one lump many times."""
    header = struct.pack("<4sii", b"PWAD", times, 12 + len(contents))
    return header + contents + struct.pack("<ii8s", 12, len(contents), name(lump)) * times


READ, TEXTURES = "wad.DoomMap.read(path).name", "wad.wall_textures(path)"
STAND = "bool(wad.DoomMap.read(path).is_free(np.full((10_000, 2), 64.0)).all())"
ATTACKS = {  # what is asked, of which WAD (a TEXTMAP if it is text), and the beginning of the answer
    "comments without an end": (READ, "/* " * 2**20, "MapError: .* comment without an end"),
    "quotation marks without an end": (READ, 'a = "' + '\\"' * 2**20, "MapError: .* without a second one"),
    "a quoted text of 16 MB": (READ, f'a = "{"a" * 2**24}";', "'MAP01'"),
    "a quoted text of 2**23 escapes": (READ, 'a = "' + "\\a" * 2**23 + '";', "'MAP01'"),
    "a word of 16 MB": (READ, "a" * 2**24, "MapError: .* of 16777216 characters, expected at most 256"),
    "a number of 16 MB": (READ, f"a = {'9' * 2**24};", "MapError: .* of 16777216 characters, expected at most 256"),
    "a lump that is listed 2**16 times": ("wad.map_names(path)", repeated("A", bytes(2**23), 2**16), r"\[\]"),
    "textures that are listed 2**16 times": (
        TEXTURES,
        repeated("TEXTURE1", bytes(2**20), 2**16),
        "MapError: .* overlap",
    ),
    "a list of textures that is empty lines": (TEXTURES, repeated("TEXTURES", b"\n" * 2**20, 1), r"\(\)"),
    "a map of 10**6 units": (STAND, square(1e6), "MapError: .* expected -65536 to 65536 map units"),
    "a map of 10**9 units": (STAND, square(1e9), "MapError: .* expected -65536 to 65536 map units"),
    "a map of 60,000 units": (STAND, square(60_000), "MapError: .* is too large: 60000 × 60000 map units"),
    "a map of 20,000 units": (STAND, square(20_000), "True"),
    "many positions and many lines": (STAND, square(1000, 2000), "True"),
}
LIMITED = """
import json, os, resource, sys
import numpy as np
from sgm.envs.doom import wad

for attack, question, path in json.loads(sys.argv[1]):
    if os.fork() == 0:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))  # bytes
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # seconds of computing
        try:
            answer = repr(eval(question))
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps([attack, answer]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, str]:
    """What is answered in a process of 1 GB and one minute; nothing if that is not enough."""
    folder, questions = tmp_path_factory.mktemp("attacks"), []
    for number, (attack, (question, contents, _)) in enumerate(ATTACKS.items()):
        path = folder / f"{number}.wad"
        if isinstance(contents, str):
            udmf(path, contents)
        else:
            path.write_bytes(contents)
        questions.append((attack, question, str(path)))
    root = Path(wad.__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LIMITED, json.dumps(questions)]
    output = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
    return dict(json.loads(line) for line in output.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_takes_neither_much_time_nor_much_memory(answers, attack):
    assert re.match(ATTACKS[attack][2], answers.get(attack, "none: it was stopped"))


ODD = (
    *("{", "}", "=", ";", "/*", "//", '"', '"north"', '""', "\\", '"\\"', "true", "-1", "0", "7", "65535", "65537"),
    *(
        "1e9",
        "-1e308",
        "1e309",
        "nan",
        "0x",
        "0xFF",
        "9" * 30,
        "9" * 5000,
        "1_0",
        ".5",
        "+",
        "\0",
        "\x1b[31m",
        "\u202e",
    ),
    *("vertex", "thing", "namespace", "x", "type", "angle", "sidefront", "sideback", "texturetop", "a" * 300, "/"),
)


def with_odd_words(random: random.Random, text: str) -> str:
    """A text with some of its words replaced, taken out or repeated."""
    words = re.findall(r'"[^"]*"|[{}=;]|[^\s{}=;"]+|\s+', text)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(words))
        words[at : at + random.choice((0, 1, 1, 1, 3))] = [random.choice(ODD)] * random.choice((0, 1, 1, 1, 9))
    return "".join(words)


def with_odd_bytes(random: random.Random, data: bytes) -> bytes:
    """A file with some of its bytes changed, taken out or added, or a whole number of it."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(changed) - 16)
        number = struct.pack("<i", random.choice((0, 1, -1, 13, len(data), 2**15, 2**31 - 1, -(2**31))))
        new = random.choice((random.randbytes(1), random.randbytes(2), number, number, b""))
        # Most numbers are in the header and the directory.
        spot = random.choice((at, at, 4, 8, len(data) - 16 * random.randrange(1, 12) + 4 * random.randrange(2)))
        changed[spot : spot + random.choice((len(new), len(new), len(new), 1))] = new
    return bytes(changed)


def use(path: Path, other: Path) -> int:
    """Ask everything of a WAD; 1 if its map can be read, which is then written and comes back the same, else 0."""
    for ask in (map_names, wall_textures, flats, lambda path: check_textures(["-"], path)):
        only_map_errors(lambda ask=ask: ask(path))
    doom_map = only_map_errors(lambda: DoomMap.read(path))
    if doom_map is None:
        return 0
    assert doom_map.textures is not None and len(doom_map.segments) == len(doom_map.solid)
    only_map_errors(lambda: (doom_map.start, doom_map.bounds))
    only_map_errors(lambda: doom_map.is_free(doom_map.draw_positions(np.random.default_rng(0), 3)))
    doom_map.retextured(["A", "B"], 0, "C", "D").stripped().write(other)
    doom_map.write(other)
    assert same(DoomMap.read(other), doom_map)
    return 1


def only_map_errors(ask):
    """The answer, or None if it is a MapError that can be read."""
    try:
        return ask()
    except MapError as error:
        said = str(error)
    assert said.isprintable() and len(said) < 3000
    return None


@pytest.mark.parametrize("kind", ["Doom", "Hexen", "UDMF", "text"])
def test_whatever_is_changed_in_a_wad_it_is_a_map_or_a_map_error(tmp_path, kind):
    mutate, path, read = random.Random(kind), tmp_path / "a.wad", 0
    textures = ("TEXTURE1", struct.pack("<ii8s", 1, 8, b"BRICK1")), ("F_START", b""), ("FLAT", b"."), ("F_END", b"")
    text = room(sectors=[{"heightfloor": 0, "heightceiling": 128, "texturefloor": "A"}] * 2).text()
    whole = written(path, [*tables(kind == "Hexen"), *textures]) if kind in ("Doom", "Hexen") else udmf(path, text)
    data = whole.read_bytes()
    for _ in range(100):
        if kind == "text":
            udmf(path, with_odd_words(mutate, text))
        else:
            path.write_bytes(with_odd_bytes(mutate, data))
        read += use(path, tmp_path / "b.wad")
    assert 5 < read < 95


# Where one can stand


@pytest.mark.parametrize(
    ("changes", "reachable"),
    [
        ({}, True),
        ({"floors": (0, 24)}, True),
        ({"floors": (0, 25)}, False),
        ({"floors": (25, 0)}, False),
        ({"sectors": [{"heightfloor": 0, "heightceiling": 128}, {"heightfloor": 16, "heightceiling": 71}]}, False),
        ({"sectors": [{"heightfloor": 0, "heightceiling": 128}, {"heightfloor": 16, "heightceiling": 72}]}, True),
        ({"middle": {"blocking": True}}, False),
        ({"middle": {"blockplayers": True}}, False),
        ({"middle": {"blockmonsters": True}}, True),
    ],
)
def test_the_player_gets_over_low_steps_and_under_high_ceilings(changes, reachable):
    doom_map = room(**changes)
    assert doom_map.is_free([(64, 64), (192, 64)]).tolist() == [True, reachable]
    drawn = doom_map.draw_positions(np.random.default_rng(0), 500)
    assert (drawn[:, 0].max() > 128) == reachable


def test_positions_are_drawn_off_the_walls_and_all_over_the_place():
    doom_map = room()
    drawn = doom_map.draw_positions(np.random.default_rng(0), 2000)
    assert (drawn.min(0) >= 16).all() and (drawn.max(0) <= (240, 112)).all()
    assert (drawn.min(0) < 32).all() and (drawn.max(0) > (224, 96)).all()
    assert doom_map.is_free(drawn).all()


def test_one_may_touch_a_wall_but_not_stand_in_it_or_behind_it():
    doom_map = room()
    assert doom_map.is_free([(16, 64), (16, 16), (240, 112)]).all()
    assert not doom_map.is_free([(14, 64), (0, 0), (-40, 64), (128, 150), (1e9, -1e9), (5000, 64)]).any()


def test_a_wall_at_an_angle_stops_a_square_player():
    corners = [{"x": float(x), "y": float(y)} for x, y in [(0, 0), (0, 256), (256, 0)]]
    lines = [{"v1": a, "v2": b, "sidefront": 0} for a, b in [(0, 1), (1, 2), (2, 0)]]
    triangle = room(vertices=corners, lines=lines, things=[{"x": 60.0, "y": 60.0, "type": 1}])
    assert triangle.is_free([(112, 112)]).tolist() == [True]  # its corner touches the long side
    assert triangle.is_free([(114, 114)]).tolist() == [False]  # though a disc of 16 units would fit


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40), st.integers(0, 50))
@settings(max_examples=50)
def test_cells_within_a_distance_are_those_of_a_distance_transform(seed, width, height, reach):
    cells = np.random.default_rng(seed).random((width, height)) < 0.02
    cells[0, 0] = True  # a transform needs one
    np.testing.assert_array_equal(
        raster.widened(cells, reach), ndimage.distance_transform_edt(~cells) ** 2 < reach + 0.5
    )


@pytest.mark.parametrize("together", [1, 7, 2**20])
def test_what_is_computed_together_makes_no_difference(monkeypatch, together):
    generator = np.random.default_rng(0)
    ends, numbers = generator.integers(-99, 99, (20, 2, 2)).astype(float), generator.integers(2, 30, 20)
    places, whole = generator.uniform(-20, 280, (200, 2)), room()
    expected = whole.is_free(places)
    for module in (wad, raster):
        monkeypatch.setattr(module, "PAIRS", together)
    np.testing.assert_array_equal(room().is_free(places), expected)
    np.testing.assert_array_equal(room()._free, whole._free)
    lines = [a + (b - a) * np.linspace(0, 1, number)[:, None] for (a, b), number in zip(ends, numbers, strict=True)]
    np.testing.assert_array_equal(np.concatenate(list(raster.points_along(ends, numbers))), np.concatenate(lines))


# Textures


def test_retexturing_changes_what_walls_wear_and_nothing_else():
    doom_map = room()
    one, again, other = (doom_map.retextured(["A", "B", "C"], seed, "F", "G") for seed in (1, 1, 2))
    assert one == again != other
    worn = [wall["texturemiddle"] for wall in one.sides]
    assert set(worn[:6]) <= {"A", "B", "C"} and worn[6:] == ["-", "-"]
    assert all(sector["texturefloor"] == "F" and sector["textureceiling"] == "G" for sector in one.sectors)
    assert one.textures == {*worn, "F", "G"} - {"-"}
    assert (one.vertices, one.lines, one.things) == (doom_map.vertices, doom_map.lines, doom_map.things)
    assert doom_map.retextured(["A"]).sectors == doom_map.sectors


@pytest.mark.parametrize("textures", [[], "BRICK1"])
def test_retexturing_needs_names(textures):
    with pytest.raises(MapError, match="expected a sequence of names"):
        room().retextured(textures)


def test_the_textures_of_a_wad_are_listed_and_others_are_refused_by_name(tmp_path):
    entries = [name(texture) + bytes(14) for texture in ("BRICK1", "WOOD2")]
    offsets = struct.pack("<iii", 2, 12, 12 + len(entries[0]))
    lumps = [
        ("TEXTURE1", offsets + b"".join(entries)),
        ("TEXTURES", b'WallTexture STONE3, 64, 64 { Patch x, 0, 0 }\ntexture "lava4", 8, 8 {}\nsprite No, 1, 1\n'),
        *(("F_START", b""), ("F1_START", b""), ("FLOOR0_1", b"."), ("F_END", b"")),
        *(("TX_START", b""), ("MYWALL", b"."), ("TX_END", b""), ("OTHER", b".")),
    ]
    path = written(tmp_path / "a.wad", lumps)
    assert wall_textures(path) == ("BRICK1", "LAVA4", "MYWALL", "STONE3", "WOOD2")
    assert flats(path) == ("FLOOR0_1",)
    check_textures(["brick1", "FLOOR0_1", "-"], path)
    with pytest.raises(MapError, match=r"unknown textures OTHER, WOOD1: expected some of the 6 in a\.wad"):
        check_textures(["WOOD1", "OTHER", "WOOD2"], path)
    broken = written(tmp_path / "b.wad", [("TEXTURE1", b"\5\0\0\0\1")])
    with pytest.raises(MapError, match="TEXTURE1 cannot be read"):
        wall_textures(broken)


def test_our_own_textures_come_with_vizdoom():
    folder = Path(pytest.importorskip("vizdoom").__file__).parent
    check_textures([*doom_mazes.TEXTURES, doom_mazes.FLOOR, doom_mazes.CEILING], folder / "freedoom2.wad")
    assert len(wall_textures(folder / "freedoom2.wad")) > 900


def test_what_acts_on_its_own_can_be_taken_out():
    sectors = [{"heightfloor": 0, "heightceiling": 128, "special": 7, "id": 3}] * 2
    doom_map = room(middle={"special": EXIT}, sectors=sectors).stripped()
    assert "special" not in doom_map.lines[6] and doom_map.lines[6]["twosided"]
    assert doom_map.sectors == [{"heightfloor": 0, "heightceiling": 128, "id": 3}] * 2
    assert doom_map.things == []
    assert room(middle={"special": DOOR}).stripped().lines[6]["special"] == DOOR
    hexen = dataclasses.replace(room(middle={"special": EXIT}), namespace="Hexen").stripped()
    assert hexen.lines[6]["special"] == EXIT  # another meaning there


# From above


def test_an_image_shows_what_stops_the_player_and_what_does_not():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax = figure.subplots()
    draw_map(ax, room())
    light, dark = ax.collections
    assert (len(light.get_segments()), len(dark.get_segments())) == (1, 6)
    assert light.get_colors()[0].sum() > dark.get_colors()[0].sum() and light.get_zorder() < dark.get_zorder()
    assert ax.get_aspect() == 1.0 and not len(ax.get_xticks()) and not len(ax.get_yticks())
    assert ax.get_xlim()[0] < 0 and ax.get_xlim()[1] > 256 and ax.get_ylim()[1] > 128
