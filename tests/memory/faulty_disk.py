"""A disk that fails on demand: every file operation of SQLite, and of Python, can be made to fail in turn.

`faulty_disk` registers a SQLite VFS, written with ctypes, between SQLite and its files. It counts the file operations.
At any one of them it can report an error, call a function, or cut the power:

    for at in itertools.count():
        with faulty_disk(only=lambda path: "map.sgm" in path) as disk:
            disk.fail(at=at, how="after")        # operation number `at` takes effect, and reports an error
            with contextlib.suppress(sqlite3.Error):
                write(path)
            disk.heal()
            check(path)
        if not disk.struck:                      # there are no more than `at` operations: all have been tried
            break

`failing_os` does the same for the file operations of Python code (`os.replace`, `os.fsync`, ...), on every platform.
`faulty_disk(kinds=CHANGES | PYTHON)` counts both in one sequence.

Limits of the simulation:
- Only operations of the given kinds, on files that `only` accepts, are counted and can fail.
- A power cut loses writes that were not synced, sector by sector. With `names="lost"` it also undoes creations,
  deletions and renamings whose directory was not synced. Writes by Python code count as durable at once.
- SQLite's syncs are simulated, not passed on to the file system. Memory-mapped reads are switched off.
- A connection that names its VFS (`?vfs=unix`) bypasses all this. So do files opened before the block.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import functools
import io
import os
import pathlib
import random
import signal
import sqlite3
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, c_int, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args
from unittest import mock

How = Literal["before", "after", "torn", "forget"]

# The kinds of operations: SQLite's that change files, that read them, that lock them; and Python's own.
CHANGES = frozenset({"open", "delete", "write", "truncate", "sync", "size hint", "shm map", "shm unmap"})
READS = frozenset({"read", "file size", "access"})
LOCKS = frozenset({"lock", "shm lock"})
_OF_PATHS = ["open", "unlink", "remove", "truncate", "mkdir", "rmdir"]
_OF_TWO_PATHS = ["replace", "rename", "link", "symlink"]
_OF_DESCRIPTORS = ["write", "pwrite", "ftruncate", "fsync", "fdatasync"]
_RENAMING = ["unlink", "remove", "replace", "rename", "link"]
_OS = {name: getattr(os, name) for name in _OF_PATHS + _OF_TWO_PATHS + _OF_DESCRIPTORS if hasattr(os, name)}
_OPEN = io.open
PYTHON = frozenset({"open to write", *(f"os.{name}" for name in _OS)})

OK, BUSY, FULL, CANTOPEN, IOERR = 0, 5, 13, 14, 10
IOERR_SHORT_READ = IOERR | 2 << 8
CODES = {
    "open": CANTOPEN,
    "delete": IOERR | 10 << 8,
    "write": IOERR | 3 << 8,
    "truncate": IOERR | 6 << 8,
    "sync": IOERR | 4 << 8,
    "size hint": FULL,
    "shm map": IOERR | 21 << 8,
    "shm unmap": IOERR,
    "read": IOERR | 1 << 8,
    "file size": IOERR | 7 << 8,
    "access": IOERR | 13 << 8,
    "lock": BUSY,
    "shm lock": BUSY,
}

_SECTOR = 512


class Operation(NamedTuple):
    """One file operation: its kind and the name of the file, without its folder ("" for a nameless temporary file)."""

    name: str
    file: str


@dataclass
class _Fault:
    at: int | Callable[[Operation], bool]
    how: How
    function: Callable[[], object] | None = None
    code: int | None = None
    error: int = errno.EIO
    forever: bool = False
    struck: bool = False

    def strikes(self, number: int, operation: Operation) -> bool:
        if self.struck and not self.forever:
            return False
        strikes = bool(self.at(operation)) if callable(self.at) else number >= self.at
        self.struck |= strikes
        return strikes


# What an operation returns when a fault strikes it (None: the power is off), given the result it had, if any.
_Failed = Callable[["_Fault | None", Any], Any]


class Disk:
    """Counts file operations, lets them fail, and knows what a power cut would leave.

    Attributes:
        only: Which files count, given their full path ("" for a nameless temporary file).
        operations: The operations so far. Clear the list to count from 0 again.
        struck: The operations at which a fault or a function was due.
        errors: What functions given to `call` raised inside SQLite, which only saw an I/O error.
        sleeps: Whether SQLite really sleeps while it waits for a lock.
    """

    def __init__(self, kinds: frozenset[str], only: Callable[[str], bool] | None = None, tracks: bool = True):
        if unknown := kinds - CHANGES - READS - LOCKS - PYTHON:
            raise ValueError(f"no kinds of operations: {sorted(unknown)}; see CHANGES, READS, LOCKS and PYTHON")
        self.kinds = kinds
        self.only = only or (lambda path: True)
        self.operations: list[Operation] = []
        self.struck: list[Operation] = []
        self.errors: list[BaseException] = []
        self.sleeps = True
        self.off = False
        self._over = False
        self._faults: list[_Fault] = []
        self._files: dict[int, _File] = {}
        self._names = _Names() if tracks else None
        self._lock = threading.RLock()

    def fail(
        self,
        at: int | Callable[[Operation], bool],
        how: How = "before",
        code: int | None = None,
        error: int = errno.EIO,
        forever: bool = False,
    ) -> None:
        """Lets operation number `at` (from 0) fail, or the first for which `at(operation)` is true.

        Args:
            at: Index that the operation will have in `operations`, or a test of the operation.
            how: "before" it takes effect; "after" it did; "torn", a write of which only the first half takes effect;
                "forget", a sync that fails and whose writes no later sync will make durable, as on Linux. Other
                operations take "torn" and "forget" for "before", and a lock that fails was never taken.
            code: SQLite's result code; by default the one in `CODES` for the kind of operation.
            error: `errno` of the OSError that Python's own operations raise.
            forever: Whether all later operations (for which `at(operation)` is true) fail, too, until `heal`.
        """
        self._plan(_Fault(at, how, None, code, error, forever))

    def call(self, at: int | Callable[[Operation], bool], function: Callable[[], object], how: How = "before") -> None:
        """Calls a function at operation `at`, before or after it takes effect, or with half of its bytes written."""
        self._plan(_Fault(at, how, function))

    def heal(self) -> None:
        """Ends all faults. After a power cut, the power is back: files can be opened again."""
        self._faults.clear()
        self.off = False

    def power_cut(self, seed: int | None = None, names: Literal["kept", "lost"] = "kept") -> None:
        """Puts the files that `only` accepts back to what was synced. All operations on them fail until `heal`.

        Connections opened before the cut are dead for good: they can only be closed.

        Args:
            seed: None loses all writes that were not synced. A number keeps a random part of them, in any order.
            names: "lost" also undoes creations, deletions and renamings whose directory was not synced: all of them,
                or with a seed, all but the first few.
        """
        if self._names is None:
            raise RuntimeError("only the disk of `faulty_disk` knows what was synced")
        with self._lock:
            for file in list(self._files.values()):
                file.dead = file.dead or self.only(file.path)
            self.off = True
            self._names.cut(self.only, None if seed is None else random.Random(seed), names == "lost")

    def _plan(self, fault: _Fault) -> None:
        if fault.how not in get_args(How):
            raise ValueError(f"how = {fault.how!r}; it can be one of {get_args(How)}")
        if not callable(fault.at) and fault.at < len(self.operations):
            raise ValueError(f"operation {fault.at} is in the past: {len(self.operations)} operations so far")
        self._faults.append(fault)

    def _next(self, name: str, path: str) -> _Fault | None:
        if self._over or name not in self.kinds or not self.only(path):
            return None
        operation = Operation(name, os.path.basename(path))
        with self._lock:
            number = len(self.operations)
            self.operations.append(operation)
            fault = next((fault for fault in self._faults if fault.strikes(number, operation)), None)
            if fault:
                self.struck.append(operation)
        return fault

    def _perform(
        self,
        name: str,
        path: str,
        perform: Callable[[], Any],
        failed: _Failed,
        instead: dict[str, Callable[[], object]] | None = None,
        file: _File | None = None,
    ) -> Any:
        """The result of an operation, or what the fault that is due makes of it."""

        def dead() -> bool:
            return (self.off and self.only(path)) or (file is not None and file.dead)

        if dead():
            return failed(None, None)
        fault = self._next(name, path)
        if fault is None:
            return perform()
        after = fault.how == "after" and (fault.function is not None or name not in LOCKS)
        result = None
        if after:
            result = perform()
        elif instead and fault.how in instead:
            instead[fault.how]()
        if fault.function is not None:
            fault.function()
            if not dead():
                return result if after else perform()
        return failed(fault, result)


@contextlib.contextmanager
def faulty_disk(kinds: frozenset[str] = CHANGES, only: Callable[[str], bool] | None = None) -> Iterator[Disk]:
    """All connections opened inside the block use the disk it gives; outside, everything is as before.

    Close the connections before the block ends: one that lives on writes and deletes files unnoticed. An error that a
    function given to `Disk.call` raised is raised again at the end of the block.
    """
    shim = _shim()
    if shim.disk is not None:
        raise RuntimeError("there is a faulty disk already, and SQLite has one default VFS: leave its block first")
    disk = Disk(kinds, only)
    with _python_through(disk):
        shim.register(disk)
        try:
            yield disk
        finally:
            shim.unregister()
            disk.heal()
            disk._over = True
    if disk.errors:
        raise disk.errors[0]


@contextlib.contextmanager
def failing_os(
    at: int | Callable[[Operation], bool] | None = None,
    how: How = "before",
    error: int = errno.ENOSPC,
    forever: bool = False,
    only: Callable[[str], bool] | None = None,
) -> Iterator[Disk]:
    """Counts the file operations of Python code, and lets number `at` fail with an OSError (None: none).

    These are the functions of `PYTHON`, called as attributes of `os` (`pathlib`, `shutil` and `tempfile` do so), and
    `open` for writing. Writes to an object that `open` returned are not seen.
    """
    disk = Disk(PYTHON, only, tracks=False)
    if at is not None:
        disk.fail(at, how, error=error, forever=forever)
    with _python_through(disk):
        yield disk


@functools.cache
def available() -> bool:
    """Whether `faulty_disk` works here: on Linux, where Python uses a SQLite whose functions ctypes can reach."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        _shim()
    except (ImportError, OSError, AttributeError, MemoryError, RuntimeError):
        return False
    with tempfile.TemporaryDirectory() as folder, faulty_disk() as disk:
        with contextlib.closing(sqlite3.connect(os.path.join(folder, "probe"))) as connection:
            connection.execute("CREATE TABLE probe (x)")
        return bool(disk.operations)


def kill() -> None:
    """Ends this process at once, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


# What a power cut leaves


class _Image:
    """What of a file is durable, what it holds now, and the changes between that a power cut may lose.

    A change is an offset and the bytes written there, or None where the file was cut off.
    """

    def __init__(self, content: bytes | bytearray, inode: tuple[int, int] | None):
        self.durable = bytearray(content)
        self.now = bytearray(content)
        self.changes: list[tuple[int, bytes | None]] = []
        self.inode = inode

    def change(self, offset: int, data: bytes | None) -> None:
        self.changes.append((offset, data))
        _apply(self.now, offset, data)

    def sync(self) -> None:
        for change in self.changes:
            _apply(self.durable, *change)
        self.changes = []

    def after_cut(self, chance: random.Random | None) -> bytearray:
        """What is left: the durable part, and, by chance, sectors of what was written since."""
        content = bytearray(self.durable)
        share = chance.choice([0.1, 0.5, 0.9]) if chance else 0
        for offset, data in self.changes:
            for start in range(0, len(data) if data else 1, _SECTOR):
                if chance and chance.random() < share:
                    _apply(content, offset + start, data and data[start : start + _SECTOR])
        return content


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


class _Names:
    """The files that SQLite opened, by path, and the changes of names that no sync of the directory followed."""

    def __init__(self) -> None:
        self.images: dict[str, _Image | None] = {}
        self.log: list[tuple[str, dict[str, _Image | None]]] = []

    def known(self, path: str) -> _Image | None:
        """The image of the file at a path, if it is still the file that was tracked."""
        image = self.images.get(path)
        return image if image is not None and image.inode == _inode(path) else None

    def image(self, path: str) -> _Image | None:
        """The image of a file, or None if there is none. A file that SQLite never opened is taken to be durable."""
        if (image := self.known(path)) or not os.path.isfile(path):
            return image
        with _OPEN(path, "rb") as file:
            return _Image(file.read(), _inode(path))

    def change(self, after: dict[str, _Image | None], before: dict[str, _Image | None]) -> None:
        self.log.append((os.path.dirname(next(iter(after))), before))
        self.images.update(after)

    def sync(self, directory: str) -> None:
        self.log = [entry for entry in self.log if entry[0] != directory]

    def cut(self, only: Callable[[str], bool], chance: random.Random | None, names_lost: bool) -> None:
        for path in filter(only, self.images):
            self.images[path] = self.image(path)
            _must_be_as_tracked(path, self.images[path])
        if names_lost:
            kept = chance.randint(0, len(self.log)) if chance else 0
            for _, before in reversed(self.log[kept:]):
                self.images.update(before)
        self.log = []
        contents = {path: image.after_cut(chance) if image else None for path, image in self.images.items()}
        for path in filter(only, contents):
            content = contents[path]
            _write_anew(path, content)
            self.images[path] = None if content is None else _Image(content, _inode(path))


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _must_be_as_tracked(path: str, image: _Image | None) -> None:
    if image is not None:
        with _OPEN(path, "rb") as file:
            if file.read() != image.now:
                raise RuntimeError(f"{path} was changed by others than SQLite: what would a power cut leave of it?")


def _write_anew(path: str, content: bytearray | None) -> None:
    """A new file in the place of the old, so that connections to the old one share neither locks nor shared memory."""
    mode = None
    for old in (path + "-shm", path):
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(old).st_mode)
            _OS["unlink"](old)
    if content is not None:
        with _OPEN(path, "wb") as file:
            file.write(content)
        if mode is not None:
            os.chmod(path, mode)


# Between SQLite and its files

_Pointer = c_void_p
_METHODS: dict[str, Any] = {
    "xClose": CFUNCTYPE(c_int, _Pointer),
    "xRead": CFUNCTYPE(c_int, _Pointer, _Pointer, c_int, c_int64),
    "xWrite": CFUNCTYPE(c_int, _Pointer, _Pointer, c_int, c_int64),
    "xTruncate": CFUNCTYPE(c_int, _Pointer, c_int64),
    "xSync": CFUNCTYPE(c_int, _Pointer, c_int),
    "xFileSize": CFUNCTYPE(c_int, _Pointer, _Pointer),
    "xLock": CFUNCTYPE(c_int, _Pointer, c_int),
    "xUnlock": CFUNCTYPE(c_int, _Pointer, c_int),
    "xCheckReservedLock": CFUNCTYPE(c_int, _Pointer, _Pointer),
    "xFileControl": CFUNCTYPE(c_int, _Pointer, c_int, _Pointer),
    "xSectorSize": CFUNCTYPE(c_int, _Pointer),
    "xDeviceCharacteristics": CFUNCTYPE(c_int, _Pointer),
    "xShmMap": CFUNCTYPE(c_int, _Pointer, c_int, c_int, c_int, _Pointer),
    "xShmLock": CFUNCTYPE(c_int, _Pointer, c_int, c_int, c_int),
    "xShmBarrier": CFUNCTYPE(None, _Pointer),
    "xShmUnmap": CFUNCTYPE(c_int, _Pointer, c_int),
}
_VFS_METHODS: dict[str, Any] = {
    "xOpen": CFUNCTYPE(c_int, _Pointer, _Pointer, _Pointer, c_int, _Pointer),
    "xDelete": CFUNCTYPE(c_int, _Pointer, _Pointer, c_int),
    "xAccess": CFUNCTYPE(c_int, _Pointer, _Pointer, c_int, _Pointer),
    "xSleep": CFUNCTYPE(c_int, _Pointer, c_int),
}
_VFS_ORDER = [
    *("xOpen", "xDelete", "xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose", "xRandomness"),
    *("xSleep", "xCurrentTime", "xGetLastError", "xCurrentTimeInt64"),
    *("xSetSystemCall", "xGetSystemCall", "xNextSystemCall"),
]

_FCNTL_SIZE_HINT = 5
_SHM_UNLOCK = 1
_DELETE_ON_CLOSE = 0x8
_MAY_SYNC_DIRECTORY = 0x800 | 0x4000 | 0x80000  # a rollback journal, a super-journal, a write-ahead log


class _IoMethods(ctypes.Structure):
    """sqlite3_io_methods, version 2: without xFetch and xUnfetch, so that all reads come by."""

    _fields_ = [("iVersion", c_int), *((name, _Pointer) for name in _METHODS)]


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = [
        *((name, c_int) for name in ("iVersion", "szOsFile", "mxPathname")),
        *((name, _Pointer) for name in ("pNext", "zName", "pAppData", *_VFS_ORDER)),
    ]


class _SqliteFile(ctypes.Structure):
    _fields_ = [("pMethods", _Pointer)]


@dataclass
class _File:
    """An open file of SQLite. Its image is None if the file is temporary."""

    path: str
    disk: Disk
    real: dict[str, Any]
    image: _Image | None = None
    syncs_directory: bool = False
    dead: bool = False


def _failed(name: str) -> _Failed:
    """SQLite's result code for an operation that a fault struck, or that came after a power cut."""

    def code(fault: _Fault | None, result: int | None) -> int:
        if result not in (None, OK, IOERR_SHORT_READ):
            return result
        if fault is None:
            return IOERR if name in LOCKS else CODES[name]  # nobody is to wait for a lock on a dead disk
        return CODES[name] if fault.code is None else fault.code

    return code


class _Shim:
    """The VFS. There is one per process and it is never freed, since connections may outlive its registration.

    A file is opened by the original VFS, in the memory that SQLite provides. Then its table of methods is replaced by
    a copy with some methods of this class. The others stay C functions: a Python exception, such as one in a text
    factory, can end a read transaction (xUnlock, xShmLock, xDeviceCharacteristics), and no Python code may run while
    an exception is set. If "shm lock" is counted, xShmLock is Python code, and such an exception is lost: the caller
    gets a SystemError, and the block of the disk ends with an error that quotes the exception.
    """

    def __init__(self) -> None:
        import _sqlite3

        # Looking up a symbol through the extension module finds the very library the module is linked to.
        self.library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        self.library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self.library.sqlite3_vfs_register.argtypes = [_Pointer, c_int]
        self.library.sqlite3_vfs_unregister.argtypes = [_Pointer]
        self.original = self.library.sqlite3_vfs_find(None)
        if not self.original:
            raise RuntimeError("SQLite has no default VFS")
        self.original_address = ctypes.cast(self.original, c_void_p).value
        self.disk: Disk | None = None
        self.files: dict[int, _File] = {}
        self.tables: dict[tuple[int, bool], tuple[_IoMethods, dict[str, Any]]] = {}
        self.name = ctypes.create_string_buffer(b"faulty-disk")
        self.vfs = _Vfs.from_buffer_copy(self.original.contents)
        self.vfs.iVersion = min(3, self.vfs.iVersion)
        self.vfs.zName = ctypes.addressof(self.name)
        self.real = {name: kind(getattr(self.vfs, name)) for name, kind in _VFS_METHODS.items()}
        ours: dict[str, Callable[..., int]]
        ours = {"xOpen": self.open, "xDelete": self.delete, "xAccess": self.access, "xSleep": self.sleep}
        self.alive = [_VFS_METHODS[name](self.never_raising(method)) for name, method in ours.items()]
        for name, method in zip(ours, self.alive, strict=True):
            setattr(self.vfs, name, ctypes.cast(method, c_void_p).value)
        ours = {
            "xClose": self.close,
            "xRead": self.read,
            "xWrite": self.write,
            "xTruncate": self.truncate,
            "xSync": self.sync,
            "xFileSize": self.file_size,
            "xLock": self.lock,
            "xFileControl": self.file_control,
            "xShmMap": self.shm_map,
            "xShmLock": self.shm_lock,
            "xShmUnmap": self.shm_unmap,
        }
        self.methods = {name: _METHODS[name](self.never_raising(method)) for name, method in ours.items()}

    def register(self, disk: Disk) -> None:
        self.disk = disk
        self.library.sqlite3_vfs_register(ctypes.addressof(self.vfs), 1)

    def unregister(self) -> None:
        self.library.sqlite3_vfs_unregister(ctypes.addressof(self.vfs))
        self.library.sqlite3_vfs_register(self.original_address, 1)
        self.disk = None

    def never_raising(self, method: Callable[..., int]) -> Callable[..., int]:
        failure = IOERR  # a connection may live until the interpreter ends, when the names of modules are gone

        def callback(*arguments: Any) -> int:
            try:
                return method(*arguments)
            except BaseException as error:
                if self.disk is not None:
                    self.disk.errors.append(error)
                return failure

        return callback

    def current(self) -> Disk:
        """The disk of operations that concern no open file. A connection may outlive the block of its own disk."""
        return self.disk or Disk(frozenset(), tracks=False)

    def table(self, methods: int, shm_lock: bool) -> tuple[_IoMethods, dict[str, Any]]:
        """Our copy of a table of methods, and the functions of the original."""
        if (methods, shm_lock) not in self.tables:
            table = _IoMethods.from_address(methods)
            copy = _IoMethods.from_buffer_copy(table)
            copy.iVersion = min(2, table.iVersion)
            known = list(_METHODS) if table.iVersion > 1 else [name for name in _METHODS if "Shm" not in name]
            real = {name: _METHODS[name](getattr(table, name)) for name in known if getattr(table, name)}
            for name, method in self.methods.items():
                if name in real and (shm_lock or name != "xShmLock"):
                    setattr(copy, name, ctypes.cast(method, c_void_p).value)
            self.tables[methods, shm_lock] = copy, real
        return self.tables[methods, shm_lock]

    def open(self, vfs: int, name: int | None, file: int, flags: int, out_flags: int | None) -> int:
        opened = _SqliteFile.from_address(file)
        opened.pMethods = None
        disk = self.current()
        path = os.fsdecode(ctypes.string_at(name)) if name else ""

        def perform() -> int:
            existed = os.path.exists(path)
            result = self.real["xOpen"](self.original_address, name, file, flags, out_flags)
            if result == OK:
                table, real = self.table(opened.pMethods, "shm lock" in disk.kinds)
                opened.pMethods = ctypes.addressof(table)
                self.files[file] = disk._files[file] = _File(path, disk, real)
                if path and not flags & _DELETE_ON_CLOSE and disk._names:
                    self.track(file, disk._names, created=not existed, flags=flags)
            return result

        result = disk._perform("open", path, perform, _failed("open"))
        if result != OK and opened.pMethods is not None:
            self.close(file)
            opened.pMethods = None
        return result

    def track(self, address: int, names: _Names, created: bool, flags: int) -> None:
        """Finds out what a file holds now, with SQLite's own descriptor: closing another would give up its locks."""
        file = self.files[address]
        with file.disk._lock:
            file.image = names.known(file.path)
            if file.image is not None:
                return
            size = c_int64(0)
            file.real["xFileSize"](address, ctypes.addressof(size))
            content = (ctypes.c_char * size.value)()
            file.real["xRead"](address, ctypes.addressof(content), size.value, 0)
            file.image = _Image(bytes(content), _inode(file.path))
            file.syncs_directory = created and bool(flags & _MAY_SYNC_DIRECTORY)
            if created:
                names.change({file.path: file.image}, {file.path: None})
            else:
                names.images[file.path] = file.image

    def delete(self, vfs: int, name: int, sync_directory: int) -> int:
        disk = self.current()
        path = os.fsdecode(ctypes.string_at(name))

        def perform() -> int:
            names = disk._names
            image = names.image(path) if names else None
            result = self.real["xDelete"](self.original_address, name, sync_directory)
            if result == OK and names:
                with disk._lock:
                    names.change({path: None}, {path: image})
                    if sync_directory & 1:
                        names.sync(os.path.dirname(path))
            return result

        return disk._perform("delete", path, perform, _failed("delete"))

    def access(self, vfs: int, name: int, flags: int, out: int) -> int:
        path = os.fsdecode(ctypes.string_at(name))
        return self.current()._perform(
            "access", path, lambda: self.real["xAccess"](self.original_address, name, flags, out), _failed("access")
        )

    def sleep(self, vfs: int, microseconds: int) -> int:
        return self.real["xSleep"](self.original_address, microseconds) if self.current().sleeps else microseconds

    def close(self, address: int) -> int:
        file = self.files.pop(address)
        file.disk._files.pop(address, None)
        return file.real["xClose"](address)

    def pass_on(
        self, name: str, address: int, perform: Callable[[], int], instead: dict[str, Any] | None = None
    ) -> int:
        """An operation on an open file, as the disk of that file lets it happen."""
        file = self.files[address]
        path = file.path + "-shm" if name.startswith("shm") else file.path
        return file.disk._perform(name, path, perform, _failed(name), instead, file)

    def read(self, address: int, buffer: int, amount: int, offset: int) -> int:
        real = self.files[address].real["xRead"]
        return self.pass_on("read", address, lambda: real(address, buffer, amount, offset))

    def write(self, address: int, buffer: int, amount: int, offset: int) -> int:
        file = self.files[address]

        def perform(amount: int = amount) -> int:
            result = file.real["xWrite"](address, buffer, amount, offset)
            if result == OK and file.image is not None:
                with file.disk._lock:
                    file.image.change(offset, ctypes.string_at(buffer, amount))
            return result

        return self.pass_on("write", address, perform, {"torn": lambda: perform(amount // 2)})

    def truncate(self, address: int, size: int) -> int:
        file = self.files[address]

        def perform() -> int:
            result = file.real["xTruncate"](address, size)
            if result == OK and file.image is not None:
                with file.disk._lock:
                    file.image.change(size, None)
            return result

        return self.pass_on("truncate", address, perform)

    def sync(self, address: int, flags: int) -> int:
        file = self.files[address]

        def perform() -> int:
            # Not passed on: a real sync is slow, and protects from nothing but a real power cut.
            names = file.disk._names
            if file.image is not None and names:
                with file.disk._lock:
                    file.image.sync()
                    if file.syncs_directory:
                        names.sync(os.path.dirname(file.path))
                        file.syncs_directory = False
            return OK

        def forget() -> None:
            if file.image is not None:
                file.image.changes = []

        return self.pass_on("sync", address, perform, {"forget": forget})

    def file_size(self, address: int, out: int) -> int:
        real = self.files[address].real["xFileSize"]
        return self.pass_on("file size", address, lambda: real(address, out))

    def lock(self, address: int, level: int) -> int:
        real = self.files[address].real["xLock"]
        return self.pass_on("lock", address, lambda: real(address, level))

    def file_control(self, address: int, control: int, argument: int | None) -> int:
        real = self.files[address].real["xFileControl"]
        if control != _FCNTL_SIZE_HINT:
            return real(address, control, argument)
        return self.pass_on("size hint", address, lambda: real(address, control, argument))

    def shm_map(self, address: int, page: int, size: int, extend: int, out: int) -> int:
        real = self.files[address].real["xShmMap"]
        result = self.pass_on("shm map", address, lambda: real(address, page, size, extend, out))
        if result != OK:
            c_void_p.from_address(out).value = None
        return result

    def shm_lock(self, address: int, offset: int, count: int, flags: int) -> int:
        real = self.files[address].real["xShmLock"]
        if flags & _SHM_UNLOCK:
            try:
                return real(address, offset, count, flags)
            except ctypes.ArgumentError as error:  # a Python exception was set: see the class
                self.files[address].disk.errors.append(error)
                return real(address, offset, count, flags)
        return self.pass_on("shm lock", address, lambda: real(address, offset, count, flags))

    def shm_unmap(self, address: int, delete: int) -> int:
        """The memory is given back in any case; a fault before it leaves the file of the shared memory behind."""
        file = self.files[address]
        real = file.real["xShmUnmap"]
        if not delete or file.dead:
            return real(address, 0)
        unmapped = []

        def perform() -> int:
            unmapped.append(True)
            return real(address, delete)

        result = self.pass_on("shm unmap", address, perform)
        if not unmapped:
            real(address, 0)
        return result


@functools.cache
def _shim() -> _Shim:
    return _Shim()


# Between Python code and its files


@contextlib.contextmanager
def _python_through(disk: Disk) -> Iterator[None]:
    with contextlib.ExitStack() as patches:
        accessor = getattr(pathlib, "_NormalAccessor", None)  # Python 3.10: pathlib keeps its own references
        for name in _OS:
            function = _through(disk, name, getattr(os, name))
            patches.enter_context(mock.patch.object(os, name, function))
            if hasattr(accessor, name) and name != "open":
                patches.enter_context(mock.patch.object(accessor, name, staticmethod(function)))
        opening = _open_through(disk, io.open)
        patches.enter_context(mock.patch.object(io, "open", opening))
        patches.enter_context(mock.patch.object(builtins, "open", opening))
        if hasattr(accessor, "open"):
            patches.enter_context(mock.patch.object(accessor, "open", staticmethod(opening)))
        yield


def _os_error(fault: _Fault | None, path: str) -> OSError:
    number = errno.EIO if fault is None else fault.error
    return OSError(number, os.strerror(number), path)


def _through(disk: Disk, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `os` as the disk lets it happen."""

    @functools.wraps(real)
    def function(*arguments: Any, **options: Any) -> Any:
        paths = _paths(name, arguments, options)
        if not paths:
            return real(*arguments, **options)

        def perform() -> Any:
            names = disk._names
            if names is None:
                return real(*arguments, **options)
            before = {path: names.image(path) for path in paths} if name in _RENAMING else {}
            result = real(*arguments, **options)
            with disk._lock:
                _follow(names, name, paths, before)
            return result

        def failed(fault: _Fault | None, result: Any) -> Any:
            if name == "open" and result is not None:
                os.close(result)
            raise _os_error(fault, paths[-1])

        def half() -> None:
            descriptor, data, *rest = arguments
            real(descriptor, bytes(data)[: len(data) // 2], *rest)

        return disk._perform(f"os.{name}", paths[-1], perform, failed, {"torn": half} if "write" in name else None)

    return function


def _open_through(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def opening(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return real(file, mode, *arguments, **options)
        path = _real_path(file)

        def failed(fault: _Fault | None, result: Any) -> Any:
            if result is not None:
                result.close()
            raise _os_error(fault, path)

        return disk._perform("open to write", path, lambda: real(file, mode, *arguments, **options), failed)

    return opening


def _paths(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[str]:
    """The files that a call of `os` concerns; none if a descriptor belongs to a pipe or a terminal."""
    operands = [*arguments, *options.values()][: 2 if name in _OF_TWO_PATHS else 1]
    if isinstance(operands[0], int):
        path = _descriptor_path(operands[0])
        return [] if path is None else [path]
    folder = options.get("dir_fd")
    start = "" if folder is None else _descriptor_path(folder) or ""
    return [_real_path(os.path.join(start, os.fsdecode(operand))) for operand in operands]


def _real_path(path: Any) -> str:
    """The absolute path with the links of its folders followed, as SQLite names files."""
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(folder), name)


def _descriptor_path(descriptor: int) -> str | None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return f"descriptor {descriptor}"


def _follow(names: _Names, name: str, paths: list[str], before: dict[str, _Image | None]) -> None:
    """What a successful call of `os` means for a power cut."""
    path = paths[-1]
    if name in ("unlink", "remove"):
        names.change({path: None}, before)
    elif name in ("replace", "rename") and before[paths[0]] is not None:
        names.change({path: before[paths[0]], paths[0]: None}, before)
    elif name == "link":
        names.change({path: before[paths[0]]}, {path: None})
    elif name in ("fsync", "fdatasync"):
        names.sync(path)
        if (image := names.known(path)) is not None:
            image.sync()
    elif name in ("truncate", "ftruncate") and (image := names.known(path)) is not None:
        image.change(os.path.getsize(path), None)
