"""Choice between compiled code, used if numba is installed (extra `fast`), and NumPy and SciPy; results are equal."""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType

SWITCH = "SGM_COMPILED"  # environment variable; 0: compiled code is never used


@functools.cache
def _load() -> ModuleType | None:
    try:
        return importlib.import_module("sgm.memory.fast_search")
    except (ImportError, RuntimeError):  # numba is missing, or has no folder for its cache
        return None


def kernels() -> ModuleType | None:
    """Return the module of compiled functions; None if numba is missing or `SGM_COMPILED=0` is set."""
    return None if os.environ.get(SWITCH) == "0" else _load()


def loaded() -> ModuleType | None:
    """Return the module of compiled functions if it is loaded already; small work is not worth loading numba."""
    return kernels() if _load.cache_info().currsize else None
