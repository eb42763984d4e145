"""The experience of an agent as one type, independent of its source.

`sgm.collect` records it in an environment; this package reads it from recorded data, and saves and loads it.
Libraries that a source needs are imported when it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .experience import Experience

if TYPE_CHECKING:
    from .episodes import from_episodes
    from .files import load, save
    from .images import from_images
    from .minari import from_minari
    from .ogbench import from_ogbench

__all__ = ["Experience", "from_episodes", "from_images", "from_minari", "from_ogbench", "load", "save"]

_MODULES = {
    "from_episodes": "episodes",
    "from_images": "images",
    "from_minari": "minari",
    "from_ogbench": "ogbench",
    "load": "files",
    "save": "files",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
