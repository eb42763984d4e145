"""Short-range policies, one file each; all of them need the extra `learn`, and are imported when asked for."""

import importlib
from typing import Any

LEARNED = ("cloned", "d3pg", "proprioceptive", "sb3")

__all__ = ["LEARNED"]


def __getattr__(name: str) -> Any:
    if name == "from_sb3":
        return importlib.import_module(f"{__name__}.sb3").from_sb3
    if name in LEARNED:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
