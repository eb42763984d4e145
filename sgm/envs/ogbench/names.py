"""Names of the datasets and environments of OGBench."""

from __future__ import annotations

import re

MAZES = ("medium", "large", "giant", "teleport")  # of the point mazes
KINDS = ("navigate", "stitch")  # of their datasets
POINT_MAZES = tuple(f"pointmaze-{maze}-{kind}-v0" for maze in MAZES for kind in KINDS)
_KIND = re.compile(rf"-(?:{'|'.join(KINDS)}|explore|play|noisy)(?=-)")  # suffix of a dataset's name, before its version


def environment_of(name: str) -> str:
    """Return the id of the environment of a dataset: its name without the kind of data; other names are unchanged.

    "antmaze-giant-stitch-v0" gives "antmaze-giant-v0".
    """
    return _KIND.sub("", name, count=1)


def maze_of(name: str) -> str | None:
    """Return the maze in the name of a point maze environment or dataset; None if it is none of `MAZES`."""
    found = re.fullmatch(r"pointmaze-(\w+)-v0", environment_of(name))
    return found[1] if found and found[1] in MAZES else None
