"""Tensors on disk: safetensors files that are written completely or not at all, and whose format is checked."""

from __future__ import annotations

import os
from pathlib import Path

from sgm.errors import MissingExtra, StoreError

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtra("learning", "learn", error) from error


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file so that a crash leaves either the old file or the new one, never half of one."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, unfinished, metadata)
        unfinished.chmod(0o644)  # safetensors lets only the owner read, but run folders are shared
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def read_tensors(path: str | os.PathLike[str], expected: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors and metadata of a safetensors file; StoreError unless its `format` is `expected`."""
    if not Path(path).is_file():
        raise StoreError(f"{path} does not exist: expected a .safetensors file of format {expected!r}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise StoreError(f"{path} is not a safetensors file ({error}): expected format {expected!r}") from error
    if metadata.get("format") != expected:
        raise StoreError(f"{path} has format {metadata.get('format')!r}: expected {expected!r}")
    return tensors, metadata
