"""The lock on systems that these tests do not run on: Windows and macOS, with fakes of what they call."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from sgm.errors import StoreError
from sgm.memory import lock as ours


class Msvcrt(ModuleType):
    """Windows' file locks: of a region, at the place where the descriptor is, released when that is closed."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.calls: list[tuple[int, int]] = []
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, descriptor: int, mode: int, number: int) -> None:
        assert mode == self.LK_NBLCK and number == 1, "one byte, and no waiting"
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 0, "everybody must lock the same byte"
        self.calls.append((mode, number))
        found = os.fstat(descriptor)
        key = found.st_dev, found.st_ino
        holder = self.held.get(key)
        if holder not in (None, descriptor) and self._is_open(holder, key):  # the same number: it was closed meanwhile
            raise PermissionError(13, "Permission denied")
        self.held[key] = descriptor

    @staticmethod
    def _is_open(descriptor: int | None, key: tuple[int, int]) -> bool:
        try:
            found = os.fstat(descriptor or 0)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == key


def loaded(monkeypatch: pytest.MonkeyPatch, **modules: ModuleType | None) -> ModuleType:
    """sgm/memory/lock.py as it is on a system with these modules; None: the system does not have it."""
    for name, fake in modules.items():
        monkeypatch.setitem(sys.modules, name, fake)
    spec = importlib.util.spec_from_file_location("sgm.memory.lock_elsewhere", ours.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The lock on Windows: no fcntl, no pread, no O_NOFOLLOW, and open files cannot be removed."""
    msvcrt = Msvcrt()
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "pread"):
        monkeypatch.delattr(os, name, raising=False)
    module = loaded(monkeypatch, fcntl=None, msvcrt=msvcrt)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(32, "The process cannot access the file because it is being used by another process")

    monkeypatch.setattr(Path, "unlink", unlink)
    return SimpleNamespace(lock=module, msvcrt=msvcrt)


def test_windows_locks_one_byte_without_waiting(windows, tmp_path):
    lock = windows.lock.WriterLock(tmp_path / "memory.sgm")
    assert windows.msvcrt.calls == [(Msvcrt.LK_NBLCK, 1)]
    assert (tmp_path / "memory.sgm-lock").read_text() == str(os.getpid())
    lock.release()


def test_on_windows_a_second_writer_is_refused_and_told_that_somebody_writes(windows, tmp_path):
    first = windows.lock.WriterLock(tmp_path / "memory.sgm")
    with pytest.raises(StoreError, match="one writer at a time"):
        windows.lock.WriterLock(tmp_path / "memory.sgm")
    first.release()


def test_on_windows_the_lock_file_that_cannot_be_removed_does_not_keep_the_next_writer_out(windows, tmp_path):
    windows.lock.WriterLock(tmp_path / "memory.sgm").release()
    assert (tmp_path / "memory.sgm-lock").exists(), "it was open when it should have been removed"
    second = windows.lock.WriterLock(tmp_path / "memory.sgm")
    second.release()
    second.release()  # a second call does nothing


def test_on_windows_another_file_in_the_place_of_the_lock_is_left_alone(windows, tmp_path):
    (tmp_path / "memory.sgm-lock").write_text("a diary that is longer than any process number")
    with pytest.raises(StoreError, match="left alone"):
        windows.lock.WriterLock(tmp_path / "memory.sgm")
    assert (tmp_path / "memory.sgm-lock").read_text().startswith("a diary")


class Fcntl(ModuleType):
    """flock of BSD and macOS: the same call, which says EWOULDBLOCK (35 there) if another has the lock."""

    LOCK_EX, LOCK_NB = 2, 4

    def __init__(self) -> None:
        super().__init__("fcntl")
        self.flags: list[int] = []
        self.taken = False

    def flock(self, descriptor: int, flags: int) -> None:
        self.flags.append(flags)
        if self.taken:
            raise BlockingIOError(35, "Resource temporarily unavailable")
        self.taken = True


def test_macos_takes_an_exclusive_flock_without_waiting_and_names_the_holder(monkeypatch, tmp_path):
    fcntl = Fcntl()
    module = loaded(monkeypatch, fcntl=fcntl)
    first = module.WriterLock(tmp_path / "memory.sgm")
    assert fcntl.flags == [Fcntl.LOCK_EX | Fcntl.LOCK_NB]
    with pytest.raises(StoreError, match=f"written by process {os.getpid()}"):
        module.WriterLock(tmp_path / "memory.sgm")
    first.release()
    assert not (tmp_path / "memory.sgm-lock").exists()


def test_macos_names_that_lead_through_links_are_one_file(monkeypatch, tmp_path):
    """There /tmp and /var are links into /private, so that one folder has two names."""
    module = loaded(monkeypatch, fcntl=Fcntl())
    (tmp_path / "private").mkdir()
    (tmp_path / "var").symlink_to("private")
    assert module.real_path(tmp_path / "var" / "m.sgm") == module.real_path(tmp_path / "private" / "m.sgm")
