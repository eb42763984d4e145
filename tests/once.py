"""What several test processes need and one of them makes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder of this name, filled by `make` in the first process that asks; the others wait until it is done."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done, failed = folder.with_suffix(".done"), folder.with_suffix(".failed")
    try:
        folder.mkdir()
    except FileExistsError:
        while not done.exists():
            if failed.exists():
                pytest.fail(f"{name} could not be made: {failed.read_text(encoding='utf-8')}")
            time.sleep(0.2)
        return folder
    try:
        make(folder)
    except BaseException as error:
        failed.write_text(str(error), encoding="utf-8")
        raise
    done.touch()
    return folder
