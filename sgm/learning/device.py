"""Devices for training, by name: the CPU, a CUDA GPU or Apple's MPS."""

from __future__ import annotations

import torch

from sgm.errors import InputError


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """Return the device of a name: "auto", "cpu", "cuda", "cuda:1", "mps".

    "auto" is CUDA where there is a card, else MPS where there is one, else the CPU. InputError names the devices of
    this machine if the one asked for is not among them. Only the CPU is tested by us.
    """
    here = devices_here()
    if str(name) == "auto":
        return torch.device("cuda" if "cuda:0" in here else here[-1])
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device is {name!r}: expected 'auto', {_listed(here)}") from error
    full = f"cuda:{device.index or 0}" if device.type == "cuda" else device.type
    if full not in here:
        raise InputError(f"device is {str(name)!r}, which is not here: expected 'auto', {_listed(here)}")
    return device


def devices_here() -> list[str]:
    """Names of the devices of this machine: "cpu", then the CUDA cards, then "mps"."""
    cards = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else [])]


def _listed(names: list[str]) -> str:
    return " or ".join(map(repr, names))
