"""Doom maps: the three formats say the same, what is damaged is refused, and one can stand where it says."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgm.envs import doom_mazes
from sgm.envs.doom_picture import draw_map
from sgm.envs.wad import (
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


def same(one: DoomMap, other: DoomMap) -> bool:
    return dataclasses.replace(one, wad="") == dataclasses.replace(other, wad="")


# Formats


@pytest.mark.parametrize("hexen", [False, True])
def test_a_binary_map_becomes_the_blocks_of_udmf_and_comes_back_the_same(tmp_path, hexen):
    first = DoomMap.read(written(tmp_path / "a.wad", tables(hexen)))
    assert first.namespace == ("Hexen" if hexen else "Doom")
    assert first.start == (64.0, 64.0, 90.0)
    assert first.sectors[1] == {
        "heightfloor": 16, "heightceiling": 128, "texturefloor": "FLOOR0_1", "textureceiling": "CEIL1_1",
        "lightlevel": 160, "special": 0, "id": TAG,
    }  # fmt: skip
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
        st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True),
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
        ({"VERTEXES": b"12345"}, "requires a buffer of a multiple of 4 bytes"),
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
    ],
)
def test_text_that_is_no_udmf_is_refused(tmp_path, text, message):
    path = written(tmp_path / "a.wad", [("MAP01", b""), ("TEXTMAP", text.encode()), ("ENDMAP", b"")])
    with pytest.raises(MapError, match=message):
        DoomMap.read(path)


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
    ]  # fmt: skip
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


def test_a_picture_shows_what_stops_the_player_and_what_does_not():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax = figure.subplots()
    draw_map(ax, room())
    light, dark = ax.collections
    assert (len(light.get_segments()), len(dark.get_segments())) == (1, 6)
    assert light.get_colors()[0].sum() > dark.get_colors()[0].sum() and light.get_zorder() < dark.get_zorder()
    assert ax.get_aspect() == 1.0 and not len(ax.get_xticks()) and not len(ax.get_yticks())
    assert ax.get_xlim()[0] < 0 and ax.get_xlim()[1] > 256 and ax.get_ylim()[1] > 128
