"""Asymmetric distances, one file each. The learned ones need the extra `learn` and are imported on first access."""

import importlib
from typing import Any

from .table import TableDistance

LEARNED = ("bilinear", "contrastive", "quasimetric", "regression", "sb3", "sorb", "sptm", "window")

_FUNCTIONS = {"distance_quality": "quality", "from_sb3": "sb3"}  # function and its module

__all__ = ["LEARNED", "TableDistance", "distance_quality", "from_sb3"]


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{_FUNCTIONS[name]}"), name)
    if name in LEARNED:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
