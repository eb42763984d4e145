"""Mazes: the cells, thick and thin; the distances; what is refused."""

from __future__ import annotations

import copy
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgm.envs.point.mazes import FOUR_ROOMS, MAX_FREE_CELLS, Maze, load_maze, random_maze, spiral

NAMES = ["FourRooms", "U", "Tree", "Spiral4", "Spiral7", "Spiral11", "Random9", "Random15+6"]


def breadth_first(maze: Maze, start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Moves from a cell to every free cell, the plain way."""
    moves, queue = {start: 0}, deque([start])
    while queue:
        row, column = queue.popleft()
        for i in (-1, 0, 1):
            for j in (-1, 0, 1):
                there = (row + i, column + j)
                inside = 0 <= there[0] < maze.height and 0 <= there[1] < maze.width
                if not inside or maze.walls[there] or there in moves:
                    continue
                if maze.walls[row + i, column] and maze.walls[row, column + j]:
                    continue
                moves[there] = moves[row, column] + 1
                queue.append(there)
    return moves


def test_four_rooms_is_the_map_of_the_paper():
    walls = np.zeros((11, 11), dtype=bool)
    walls[:, 5] = True
    walls[[2, 9], 5] = False
    walls[5, 0:6] = True
    walls[5, 1] = False
    walls[6, 5:11] = True
    walls[6, 8] = False
    np.testing.assert_array_equal(load_maze("FourRooms").walls, walls)


def test_thick_resizing_turns_a_cell_into_a_block():
    walls = load_maze("FourRooms", resize=5).walls
    np.testing.assert_array_equal(walls, np.kron(load_maze("FourRooms").walls, np.ones((5, 5), dtype=bool)))


def test_thin_four_rooms_has_walls_one_cell_thick():
    walls = np.zeros((55, 55), dtype=bool)
    walls[:, 25] = True
    walls[6:15, 25] = False  # a wall ends with the first copy of its last cell, so doors gain four cells
    walls[41:50, 25] = False
    walls[25, 0:26] = True
    walls[25, 1:10] = False
    walls[30, 25:55] = True
    walls[30, 36:45] = False
    thin = load_maze("FourRooms", resize=5, thin=True)
    np.testing.assert_array_equal(thin.walls, walls)
    assert len(thin.cells) == 2952
    assert thin.diameter == 66


def test_thinning_follows_the_rule_of_the_authors_for_any_walls():
    maze, factor = load_maze("Random9+6", seed=3), 4
    thin = maze.resized(factor, thin=True).walls
    for i, j in np.ndindex(thin.shape):
        rows, columns = ([k // factor] if k % factor == 0 else [k // factor, k // factor + 1] for k in (i, j))
        block = maze.walls[np.ix_(np.minimum(rows, maze.height - 1), np.minimum(columns, maze.width - 1))]
        assert thin[i, j] == block.all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("thin", [False, True])
def test_every_named_maze_resizes_both_ways_and_stays_in_one_piece(name, thin):
    base, large = load_maze(name), load_maze(name, resize=3, thin=thin)
    assert large.walls.shape == (3 * base.height, 3 * base.width)
    assert (np.isfinite(large.distances) & (large.distances >= 0)).all()
    assert large.diameter > base.diameter


def test_resizing_by_one_changes_nothing():
    assert str(load_maze("Tree", resize=1, thin=True)) == str(load_maze("Tree"))


@pytest.mark.parametrize("size", range(3, 14))
def test_a_spiral_is_one_corridor_without_side_branches(size):
    maze = Maze("spiral", spiral(size))
    free = ~maze.walls
    padded = np.pad(free, 1).astype(int)
    neighbours = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    assert np.sort(neighbours[free])[:3].tolist() == [1, 1, 2]
    assert neighbours[free].max() == 2


@given(size=st.integers(1, 10).map(lambda half: 2 * half + 1), seed=st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_random_maze_is_a_tree(size, seed):
    free = ~random_maze(size, seed)
    corridors = (free[1:] & free[:-1]).sum() + (free[:, 1:] & free[:, :-1]).sum()
    assert free[::2, ::2].all()
    assert corridors == free.sum() - 1
    Maze("random", ~free)  # in one piece


def test_loops_open_that_many_further_walls():
    assert random_maze(15, 1).sum() - random_maze(15, 1, loops=7).sum() == 7


def test_a_seed_gives_one_random_maze():
    first, again, other = (load_maze("Random15", seed=seed) for seed in (4, 4, 5))
    assert str(first) == str(again) != str(other)


@pytest.mark.parametrize("name", ["FourRooms", "Tree", "Random9+6"])
def test_distances_are_moves_to_eight_neighbours(name):
    maze = load_maze(name)
    for index in range(0, len(maze.cells), 7):
        moves = breadth_first(maze, tuple(maze.cells[index]))
        assert maze.distances[index].tolist() == [moves[tuple(cell)] for cell in maze.cells]


def test_distance_is_that_of_the_cells_and_takes_batches():
    maze = load_maze("FourRooms")
    assert maze.distance((0.9, 0.1), (0.2, 4.8)) == 4
    assert maze.distance([[0.5, 0.5], [0.5, 4.5]], [10.5, 10.5]).shape == (2,)


def test_no_path_slips_between_walls_that_touch_at_a_corner():
    maze = Maze.from_text("..#\n.#.\n...")
    assert maze.distance((0.5, 1.5), (1.5, 2.5)) == 3


def test_equal_mazes_share_one_distance_table():
    first, second = load_maze("U", 2), load_maze("U", 2)
    assert first.distances is second.distances
    assert copy.deepcopy(first) is first


def test_text_and_maze_are_each_others_inverse(tmp_path):
    maze = load_maze("Random15", seed=2)
    path = tmp_path / "maze.txt"
    path.write_text(str(maze), encoding="utf-8")
    np.testing.assert_array_equal(load_maze(path).walls, maze.walls)
    np.testing.assert_array_equal(load_maze(str(path), 3, thin=True).walls, maze.resized(3, thin=True).walls)


def test_a_space_is_free_and_line_ends_may_be_those_of_windows():
    assert str(Maze.from_text("\r\n .#\r\n. .\r\n")) == "..#\n...\n"


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_settling_returns_any_free_position_from_its_observation(data):
    maze = load_maze("FourRooms", 5, thin=True)
    cell = maze.cells[data.draw(st.integers(0, len(maze.cells) - 1))]
    inside = st.floats(0, 1, exclude_max=True)
    position = np.minimum(cell + np.array([data.draw(inside), data.draw(inside)]), np.nextafter(cell + 1.0, 0))
    rounded = (position / maze.size).astype(np.float32).astype(np.float64) * maze.size
    settled = maze.settle(rounded)
    assert maze.is_free(settled)
    np.testing.assert_allclose(settled, position, atol=2e-5)


@pytest.mark.parametrize("position", [(5.5, 4.5), (-0.1, 1.0), (3.0, 11.1), (np.nan, 1.0), (1.0, 2.0, 3.0), 4.0])
def test_a_position_in_a_wall_or_outside_is_refused(position):
    with pytest.raises(ValueError, match=r"start.*give.*\(row, column\)"):
        load_maze("FourRooms").settle(position, "start")


@pytest.mark.parametrize("name", ["Fourrooms", "Spiral", "Spiral7+2", "Random", "RandomX", "no/such/file.txt"])
def test_an_unknown_name_is_quoted_with_what_is_accepted(name):
    with pytest.raises(ValueError, match=rf"{name.replace('+', '.')!r}.*accepted: 'FourRooms', 'U', 'Tree'"):
        load_maze(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [("Spiral2", "size 2.*at least 3"), ("Random14", "size 14.*odd"), ("Random5+99", r"99 loops.*give 0 to 4")],
)
def test_an_impossible_size_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        load_maze(name)


@pytest.mark.parametrize("resize", [0, -1, 2.5, True, "5"])
def test_a_resize_that_is_no_count_is_refused(resize):
    with pytest.raises(ValueError, match=r"resize is .* whole number"):
        load_maze("U", resize)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("..#\n.x.\n", "'x' in line 2, column 2; accepted"),
        ("...\n..\n", "line 2 has 2 characters, line 1 has 3"),
        ("", "at least one free cell"),
        ("##\n##", "at least one free cell"),
        ("...#.\n...#.\n", r"2 separate free regions.*\(0, 4\), \(1, 4\)\. Open"),
        (".#.\n#..\n", r"from 0\): \(0, 0\)\."),  # touching at a corner is no passage
    ],
)
def test_a_bad_text_maze_says_what_is_wrong_and_where(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_maze(path)


def test_many_unreachable_cells_are_counted_not_listed():
    with pytest.raises(ValueError, match="and 5 more"):
        Maze.from_text("." * 20 + "#" + "." * 15)


def test_a_maze_too_large_for_the_table_says_so():
    maze = Maze("hall", np.zeros((MAX_FREE_CELLS // 100 + 1, 100), dtype=bool))
    with pytest.raises(ValueError, match="smaller `resize`"):
        _ = maze.distances


def test_a_maze_does_not_change():
    walls = load_maze("FourRooms").walls
    with pytest.raises(ValueError, match="read-only"):
        walls[0, 0] = True
    assert str(load_maze("FourRooms")) == FOUR_ROOMS.lstrip()
