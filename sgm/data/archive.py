"""Arrays in .npz files and folders of .npy files, mapped from disk where they are not compressed. Nothing is unpickled.

Members of an .npz that this module writes begin at a multiple of 64 bytes, so that mapped arrays are aligned.
"""

from __future__ import annotations

import ast
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, printable

Arrays = Mapping[str, NDArray[Any]]
_ALIGNMENT = 64
_LOCAL_HEADER = 30  # bytes of a zip member's header before its name
_ZIP64_EXTRA = 20  # bytes that zipfile adds to the header of a member that may be large
_PADDING = 0xD935  # the extra field that alignment is known by
_MOST_DEFLATED = 1100  # deflate shrinks zeros about 1030 times, and nothing more than that
_DAMAGE = (
    OSError, EOFError, ValueError, TypeError, LookupError, SyntaxError, ArithmeticError, RuntimeError, MemoryError,
    NotImplementedError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert exceptions from an invalid, damaged or malicious file into an InputError that names the file."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{printable(str(path))} does not exist") from error
    except _DAMAGE as error:
        reason = printable(str(error)) or type(error).__name__
        raise InputError(f"{printable(str(path))} cannot be read: {reason}") from error


class Archive:
    """Arrays of an .npz file or of a folder of .npy files, by name; each is opened on access."""

    def __init__(self, path: Path) -> None:
        """List the arrays without reading them."""
        self.path = path
        self._members: dict[str, zipfile.ZipInfo] = {}
        with reading(path):
            if path.is_dir():
                self.files = sorted(file.name for file in path.iterdir() if file.is_file())
            else:
                with zipfile.ZipFile(path) as file:
                    self._members = {info.filename: info for info in file.infolist()}
                self.files = sorted(self._members)
        self.names = [name.removesuffix(".npy") for name in self.files if name.endswith(".npy")]

    def __contains__(self, name: str) -> bool:
        """Whether an array of this name exists."""
        return name in self.names

    def nbytes(self, name: str) -> int:
        """Size of an array in memory according to the file, bytes."""
        member = f"{name}.npy"
        return self._members[member].file_size if self._members else (self.path / member).stat().st_size

    def array(self, name: str) -> NDArray[Any]:
        """Return a read-only array, memory-mapped if it is not compressed, otherwise read into memory."""
        member = f"{name}.npy"
        with reading(self.path):
            if not self._members:
                return _mapped(self.path / member, 0, (self.path / member).stat().st_size)
            info = self._members[member]
            if info.flag_bits & 1:
                raise InputError(f"{printable(str(self.path))} is encrypted: expected a plain .npz")
            if info.compress_type == zipfile.ZIP_STORED:
                return _mapped(self.path, self._begin(info), info.file_size)
            return self._inflated(info)

    def text(self, member: str, most: int = 1_000_000) -> str | None:
        """Return a text file; None if it is missing."""
        if member not in self.files:
            return None
        with reading(self.path):
            if not self._members:
                with (self.path / member).open("rb") as file:
                    return file.read(most).decode()
            with zipfile.ZipFile(self.path) as archive, archive.open(member) as inside:
                return inside.read(most).decode()

    def _begin(self, info: zipfile.ZipInfo) -> int:
        """Offset of the contents of a member in the file, bytes."""
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\3\4":
            raise ValueError(f"{info.filename} has no header")
        name, extra = struct.unpack("<HH", header[26:])
        return int(info.header_offset + _LOCAL_HEADER + name + extra)

    def _inflated(self, info: zipfile.ZipInfo) -> NDArray[Any]:
        if info.file_size > _MOST_DEFLATED * (info.compress_size + 1_000):
            raise ValueError(f"{info.filename} claims {info.file_size:,} bytes in {info.compress_size:,}")
        with zipfile.ZipFile(self.path) as archive, archive.open(info) as file:
            shape, fortran, dtype = _header(file, info.file_size)
            values = np.empty(int(np.prod(shape, dtype=object)), dtype)
            buffer = values.view(np.uint8)
            done = 0
            while done < len(buffer):
                part = file.read(min(1 << 24, len(buffer) - done))
                if not part:
                    raise ValueError(f"{info.filename} is cut off")
                buffer[done : done + len(part)] = np.frombuffer(part, np.uint8)
                done += len(part)
            if file.read(1):
                raise ValueError(f"{info.filename} has more bytes than its shape needs")
        return values.reshape(shape, order="F" if fortran else "C")


def write_archive(
    file: IO[bytes], arrays: Mapping[str, NDArray[Any]], texts: Mapping[str, str], compress: bool
) -> None:
    """Write an .npz file that `np.load` can also read; text files come first."""
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
        for name, values in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type, info.external_attr = method, 0o600 << 16
            begin = file.tell() + _LOCAL_HEADER + len(info.filename) + _ZIP64_EXTRA + 4
            padding = -begin % _ALIGNMENT
            info.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=True) as inside:
                np.lib.format.write_array(inside, values, allow_pickle=False)


def _header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and dtype of an .npy file, and check them against its size."""
    version = np.lib.format.read_magic(file)
    length = struct.unpack("<H" if version == (1, 0) else "<I", file.read(2 if version == (1, 0) else 4))[0]
    if length > 10_000 or version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"it is no .npy this version reads (format {version}, header of {length} bytes)")
    facts = ast.literal_eval(file.read(length).decode("latin1" if version < (3, 0) else "utf8"))
    dtype = np.dtype(facts["descr"]) if isinstance(facts["descr"], str) else None
    shape, begin = facts["shape"], (10 if version == (1, 0) else 12) + length
    if dtype is None or dtype.kind not in "iufb":
        raise InputError(f"an array holds {facts['descr']!r}: expected numbers; nothing is unpickled")
    if not isinstance(shape, tuple) or not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"an array has shape {shape!r}")
    if int(np.prod(shape, dtype=object)) * dtype.itemsize != size - begin:
        raise ValueError(f"an array of shape {shape} and {dtype} does not fill its {size - begin:,} bytes")
    return shape, bool(facts["fortran_order"]), dtype


def _mapped(path: Path, begin: int, size: int) -> NDArray[Any]:
    if begin + size > path.stat().st_size:
        raise ValueError("it is cut off")
    with path.open("rb") as file:
        file.seek(begin)
        shape, fortran, dtype = _header(file, size)
        begin = file.tell()
    if 0 in shape:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", begin, shape, "F" if fortran else "C")


def sync(file: IO[bytes]) -> None:
    """Flush a file to disk."""
    file.flush()
    os.fsync(file.fileno())
