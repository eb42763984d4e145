"""Walls as lines: round free space, in the coordinates of the robots."""

from __future__ import annotations

import numpy as np
import pytest

from sgm.envs.floors import walls_of
from sgm.envs.outlines import boxes, discs, outline


def test_the_outline_of_a_grid_runs_between_walls_and_free_cells():
    lines = outline([[True, True, True], [True, False, True], [True, True, True]])
    assert sorted(map(tuple, lines.tolist())) == [(1, 1, 1, 2), (1, 1, 2, 1), (1, 2, 2, 2), (2, 1, 2, 2)]


def test_lines_in_a_row_are_one_and_the_border_counts_as_wall():
    lines = outline(np.zeros((3, 4), bool))
    assert sorted(map(tuple, lines.tolist())) == [(0, 0, 0, 4), (0, 0, 3, 0), (0, 4, 3, 4), (3, 0, 3, 4)]


def test_every_border_between_wall_and_free_cells_is_on_a_line():
    walls = np.random.default_rng(0).random((9, 13)) < 0.4
    padded = np.pad(walls, 1, constant_values=True)
    borders = (padded[1:] != padded[:-1]).sum() + (padded[:, 1:] != padded[:, :-1]).sum()
    lines = outline(walls)
    assert np.abs(lines[:, :2] - lines[:, 2:]).sum() == borders


def test_boxes_and_discs_are_closed():
    for lines in (boxes([[0, 0, 2, 1]]), discs([[3, 4, 0.5]])):
        assert (lines[1:, :2] == lines[:-1, 2:]).all() and np.allclose(lines[0, :2], lines[-1, 2:])
    assert np.allclose(np.hypot(*(discs([[3, 4, 0.5]])[:, :2] - (3, 4)).T), 0.5)
    assert boxes([]).shape == discs([]).shape == (0, 4)


def test_a_point_in_the_mazes_of_gymnasium_robotics_stays_between_their_walls():
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("gymnasium_robotics")
    gymnasium.register_envs(pytest.importorskip("gymnasium_robotics"))
    env = gymnasium.make("PointMaze_UMaze-v3")
    lines = walls_of(env).lines
    maze = env.unwrapped.maze
    for rows, free in ((maze.unique_reset_locations, True), ([maze.cell_rowcol_to_xy((0, 0))], False)):
        for x, y in rows:  # a ray to the right crosses walls that stand upright an odd number of times from inside
            upright = lines[lines[:, 0] == lines[:, 2]]
            low, high = np.minimum(upright[:, 1], upright[:, 3]), np.maximum(upright[:, 1], upright[:, 3])
            crossed = (upright[:, 0] > x) & (low <= y + 1e-9) & (y + 1e-9 < high)
            assert crossed.sum() % 2 == free
    env.close()


def test_ogbench_has_its_walls_where_its_cells_are():
    pytest.importorskip("ogbench")
    from sgm.envs.ogbench.maze import Maze

    maze = Maze("medium")
    low, high = maze.lines.reshape(-1, 2).min(axis=0), maze.lines.reshape(-1, 2).max(axis=0)
    centres = maze.centres(maze.cells)
    assert (centres > low).all() and (centres < high).all()
    gaps = np.abs(centres.min(axis=0) - low), np.abs(high - centres.max(axis=0))
    assert np.allclose(gaps, maze.unit / 2)
    assert np.allclose(walls_of(maze.env).lines, maze.lines)


def test_other_environments_have_no_walls_that_we_know():
    gymnasium = pytest.importorskip("gymnasium")
    assert walls_of(gymnasium.make("CartPole-v1")) is None
