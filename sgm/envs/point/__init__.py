"""PointMaze: a point robot in a maze of cells."""
