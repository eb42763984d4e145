"""Progress bars that cost nothing where nobody looks, and that never wait for another process."""

from __future__ import annotations

import threading
from typing import Any

from tqdm import tqdm


class _Bar(tqdm):
    """A bar with a lock of this process alone.

    tqdm's own lock is shared by all processes forked from one parent, and taken even for a bar that is not shown: a
    process killed while it holds the lock would stop all the others.
    """


_Bar.set_lock(threading.RLock())


class _Silent:
    """What a bar is where nobody looks."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def progress_bar(*, shown: bool, **options: Any) -> Any:
    """A tqdm bar with these options, or something that takes the same calls and does nothing."""
    return _Bar(**options) if shown else _Silent()
