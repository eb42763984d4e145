"""The names of OGBench's datasets and environments."""

from __future__ import annotations

import re

MAZES = ("medium", "large", "giant", "teleport")  # of the point mazes
KINDS = ("navigate", "stitch")  # of their datasets
POINT_MAZES = tuple(f"pointmaze-{maze}-{kind}-v0" for maze in MAZES for kind in KINDS)
_KIND = re.compile(rf"-(?:{'|'.join(KINDS)}|explore|play|noisy)(?=-)")  # what a dataset adds to its environment's name


def environment_of(name: str) -> str:
    """The id of the environment of a dataset: its name without the kind of data. Other names are returned as they are.

    "antmaze-giant-stitch-v0" gives "antmaze-giant-v0".
    """
    return _KIND.sub("", name, count=1)


def maze_of(name: str) -> str | None:
    """The maze of a point maze, by the name of the environment or of a dataset; None if it is none of `MAZES`."""
    found = re.fullmatch(r"pointmaze-(\w+)-v0", environment_of(name))
    return found[1] if found and found[1] in MAZES else None
