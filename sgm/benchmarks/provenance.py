"""Provenance of results (command, date, versions, machine), stored with each of them."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import sgm

_PACKAGES = ("numpy", "scipy", "gymnasium", "torch", "networkx", "matplotlib", "stable-baselines3", "vizdoom", "mujoco")


def provenance(command: str) -> dict[str, Any]:
    """Collect command, date, versions and machine."""
    return {
        "command": command,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), "sgm": sgm.__version__, **_versions()},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
