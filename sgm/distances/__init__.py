"""Asymmetric distances, one file each. The learned ones need the extra `learn` and are imported when asked for."""

import importlib
from typing import Any

from .table import TableDistance

LEARNED = ("bilinear", "contrastive", "quasimetric", "regression", "sb3", "sorb", "sptm", "window")

__all__ = ["LEARNED", "TableDistance", "distance_quality"]


def __getattr__(name: str) -> Any:
    if name == "from_sb3":
        return importlib.import_module(f"{__name__}.sb3").from_sb3
    if name == "distance_quality":
        from .quality import distance_quality

        return distance_quality
    if name in LEARNED:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
