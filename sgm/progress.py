"""Progress bars without cost when they are hidden, and without locks shared with other processes."""

from __future__ import annotations

import functools
import threading
from typing import Any


@functools.cache
def _bar() -> Any:
    """Return a subclass of `tqdm.tqdm` with a lock that belongs to this process only.

    All processes forked from one parent share tqdm's own lock, and even a hidden bar takes it: if a process is killed
    while it holds the lock, all others wait forever.
    """
    from tqdm import tqdm  # imported here, so that programs without a bar need not import it

    class Bar(tqdm):
        pass

    Bar.set_lock(threading.RLock())
    return Bar


class _Silent:
    """Replacement for a hidden bar: every method does nothing."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def progress_bar(*, shown: bool, **options: Any) -> Any:
    """Return a tqdm bar with these options if `shown`, otherwise an object whose methods do nothing."""
    return _bar()(**options) if shown else _Silent()
