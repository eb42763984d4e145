"""Devices by name. Only the CPU is really here; the others are made believe as far as choosing one goes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from sgm.errors import InputError  # noqa: E402
from sgm.learning.device import devices_here, resolve_device  # noqa: E402


def pretend(monkeypatch, cards: int, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cards > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cards", "mps", "here", "auto"),
    [
        (0, False, ["cpu"], "cpu"),
        (2, False, ["cpu", "cuda:0", "cuda:1"], "cuda"),
        (0, True, ["cpu", "mps"], "mps"),
    ],
)
def test_auto_is_the_fastest_that_is_here(monkeypatch, cards, mps, here, auto):
    pretend(monkeypatch, cards, mps)
    assert devices_here() == here
    assert resolve_device() == torch.device(auto)
    assert resolve_device("cpu") == torch.device("cpu")


def test_a_card_is_chosen_by_its_number(monkeypatch):
    pretend(monkeypatch, 2, False)
    assert resolve_device("cuda:1") == torch.device("cuda:1") and resolve_device("cuda") == torch.device("cuda")
    with pytest.raises(InputError, match="device is 'cuda:2', which is not here: expected 'auto', 'cpu' or 'cuda:0'"):
        resolve_device("cuda:2")


def test_an_error_names_what_is_here(monkeypatch):
    pretend(monkeypatch, 0, False)
    for name in ("cuda", "mps", "meta"):
        with pytest.raises(InputError, match=f"device is '{name}', which is not here: expected 'auto', 'cpu'"):
            resolve_device(name)
    with pytest.raises(InputError, match="device is 'gpu': expected 'auto', 'cpu'"):
        resolve_device("gpu")
