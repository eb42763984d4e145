"""`memory.view()`: the page of a memory in a notebook.

The inspector runs in a separate process, as for `sgm inspect`: file locks belong to a process, and reading a file in
the process that writes it may release them. The process ends with the page, or with the notebook.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from sgm.errors import InputError, MissingExtra, SGMError, StoreError

HEIGHT = 700  # pixels
_PATIENCE = 10  # s to wait for a process to end


class Page:
    """An inspector page in a notebook; `close()` stops it.

    Attributes:
        url: address of the page, on this machine.
        height: height of the frame, pixels.
    """

    def __init__(self, process: subprocess.Popen[str], url: str, height: int, copy: Any = None) -> None:
        """Wrap a running inspector; `copy` is the temporary folder of a memory that was saved for it."""
        self.url, self.height = url, height
        self._process = process
        self._end = weakref.finalize(self, _end, process, copy)

    @property
    def is_running(self) -> bool:
        """Whether the inspector is running."""
        return self._process.poll() is None

    def close(self) -> None:
        """Stop the inspector; a second call does nothing."""
        self._end()

    def __enter__(self) -> Page:
        """Return the page, for `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the inspector."""
        self.close()

    def __repr__(self) -> str:
        """Return the address, and whether the page is closed."""
        return f"<Page {self.url}{'' if self.is_running else ', closed'}>"

    def _repr_html_(self) -> str:
        """Show the page in a frame."""
        if not self.is_running:
            return "<p>This page was closed: call memory.view() again.</p>"
        place = html.escape(self.url, quote=True)
        style = f"width: 100%; height: {self.height}px; border: 1px solid #8884"
        return f'<iframe src="{place}" style="{style}" title="Sparse Graphical Memory"></iframe>'


def show(memory: Any, path: Path | None, height: int = HEIGHT) -> Page:
    """Start the page of a memory: of its file if it has one, otherwise of a copy of its current state."""
    if isinstance(height, bool) or not isinstance(height, int) or not 100 <= height <= 10_000:
        raise InputError(f"height is {height!r}: expected 100 to 10,000 pixels")
    for module in ("starlette", "uvicorn"):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra("memory.view()", "inspect", ModuleNotFoundError(name=module))
    copy = None
    if path is None:
        copy = tempfile.TemporaryDirectory(prefix="sgm-view-", ignore_cleanup_errors=True)
        path = Path(copy.name) / "memory.sgm"
        memory.save(path)
    process = _start(path)
    try:
        return Page(process, _address(process), height, copy)
    except BaseException:
        _end(process, copy)
        raise


def _start(path: Path) -> subprocess.Popen[str]:
    """Start an inspector process, which ends when its standard input is closed."""
    package = str(Path(__file__).resolve().parents[2])  # for an sgm that is not installed
    known = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([package, known] if known else [package])
    return subprocess.Popen(
        [sys.executable, "-m", "sgm.inspector.notebook", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
    )


def _address(process: subprocess.Popen[str]) -> str:
    """Read the address of a new inspector; SGMError with its message if it cannot start."""
    line = process.stdout.readline() if process.stdout else ""
    try:
        told = json.loads(line)
    except ValueError:
        raise SGMError("the inspector ended before it had started: run sgm inspect FILE to see why") from None
    if "error" in told:
        raise StoreError(told["error"])
    return str(told["url"])


def _end(process: subprocess.Popen[str], copy: Any) -> None:
    """Stop an inspector, and remove its copy of the memory."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if copy is not None:
        copy.cleanup()


def main(path: str) -> None:
    """Serve a memory file until standard input is closed; print the address, or an error, as a line of JSON."""
    from .server import start

    try:
        server = start(path, embed=True)
    except SGMError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    with server:
        print(json.dumps({"url": server.url}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
