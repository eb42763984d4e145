"""Short-range controllers, one file each; all of them need the extra `learn`, and are imported on first access."""

import importlib
from typing import Any

LEARNED = ("cloned", "d3pg", "proprioceptive", "sb3")
FUNCTIONS = {"from_sb3": "sb3", "quality": "held_out"}  # function and its module

__all__ = ["LEARNED"]


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return getattr(importlib.import_module(f"{__name__}.{FUNCTIONS[name]}"), name)
    if name in LEARNED:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
