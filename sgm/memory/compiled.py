"""Whether compiled code is used: where numba is installed (extra `fast`). It gives what NumPy and SciPy give."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType

SWITCH = "SGM_COMPILED"  # an environment variable; 0: never


@functools.cache
def _load() -> ModuleType | None:
    try:
        return importlib.import_module("sgm.memory.fast_search")
    except (ImportError, RuntimeError):  # numba is missing, or has no folder for what it compiled
        return None


def kernels() -> ModuleType | None:
    """The compiled functions; None where numba is missing or `SGM_COMPILED=0` is set."""
    return None if os.environ.get(SWITCH) == "0" else _load()


def loaded() -> ModuleType | None:
    """The compiled functions, if something has used them already: small work is not worth loading numba for."""
    return kernels() if _load.cache_info().currsize else None
