"""Mazes from a seed: always the same, closed to the outside, open within."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgm.envs.doom.mazes import BLOCK, TEXTURES, generate
from sgm.envs.doom.wad import DoomMap, MapError


@st.composite
def mazes(draw) -> DoomMap:
    """Small mazes, the tightest ones too."""
    rooms = draw(st.integers(1, 5))
    blocks = draw(st.integers(3 * rooms, 3 * rooms + 9))
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return generate(draw(st.integers(0, 2**32)), size=blocks * BLOCK, rooms=rooms, open_share=share)


def digest(maze: DoomMap) -> str:
    blocks = [maze.vertices, maze.lines, maze.sides, maze.sectors, maze.things]
    return hashlib.sha256(json.dumps(blocks).encode()).hexdigest()[:16]


def test_mazes_never_change_for_weights_are_trained_in_them():
    assert digest(generate()) == "d2090520fd16b051"
    assert digest(generate(3, size=384, rooms=2, open_share=0.0, textures=TEXTURES[:5])) == "257d8482ed701ebf"
    assert digest(generate().retextured(TEXTURES, 1, "WOOD1", "WOOD3")) == "6d81325b61d0f5a4"


def test_the_default_maze_is_of_the_papers_kind():
    maze = generate(1)
    assert [edge.tolist() for edge in maze.bounds] == [[0, 0], [1856, 1856]]
    assert maze != generate(2) and maze == generate(1)
    worn = Counter(side["texturemiddle"] for side in maze.sides)
    assert worn.keys() == set(TEXTURES)
    assert len(maze.sides) > 5 * len(worn)  # so that one image does not say where one is


@given(mazes())
@settings(max_examples=30)
def test_its_walls_are_closed(maze):
    # Every corner has as many lines that arrive as lines that leave: free space is on the right of all of them.
    corners = Counter()
    for line in maze.lines:
        corners[line["v1"]] += 1
        corners[line["v2"]] -= 1
    assert not any(corners.values())
    assert maze.solid.all()


@given(mazes())
@settings(max_examples=30)
def test_every_place_can_be_reached(maze):
    side = int(maze.bounds[1][0] / BLOCK)
    wall = maze_blocks(maze, side)
    # A corner of blocks with nothing but free blocks around it.
    open_corners = ~(wall[1:, 1:] | wall[:-1, 1:] | wall[1:, :-1] | wall[:-1, :-1])
    corners = (np.argwhere(open_corners) + 1) * BLOCK
    assert len(corners) and maze.is_free(corners).all()


def maze_blocks(maze: DoomMap, side: int) -> np.ndarray:
    """(side, side) bool: which blocks are wall, by walking east from the rim."""
    change = np.zeros((side + 1, side), int)
    for (x, y), (u, v) in maze.segments.astype(int) // BLOCK:
        if x == u:
            change[x, min(y, v) : max(y, v)] += 1 if v > y else -1  # northwards: free space begins to the east
    return np.cumsum(change, axis=0)[:-1] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 1000}, "size is 1000: expected a multiple of 32"),
        ({"size": 640.0}, "size is 640.0: expected a multiple of 32"),
        ({"size": 0}, "size is 0"),
        ({"rooms": 0}, "rooms is 0: expected the number"),
        ({"rooms": 2.5}, "rooms is 2.5: expected the number"),
        ({"rooms": 20}, "20 rooms along 1856 map units are 93 each: expected 96 or more, that is at most 19 rooms"),
        ({"open_share": 1.5}, "open_share is 1.5: expected 0 to 1"),
        ({"textures": ()}, "expected a sequence of names"),
        ({"textures": "WOOD1"}, "textures are 'WOOD1': expected a sequence of names"),
    ],
)
def test_what_makes_no_maze_is_refused(settings, message):
    with pytest.raises(MapError, match=message):
        generate(**settings)
