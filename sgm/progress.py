"""Progress bars that cost nothing when not shown, and that never wait for another process."""

from __future__ import annotations

import functools
import threading
from typing import Any


@functools.cache
def _bar() -> Any:
    """The class of tqdm's bars, with a lock of this process alone.

    tqdm's own lock is shared by all processes forked from one parent, and taken even for a bar that is not shown: a
    process killed while it holds the lock would stop all the others.
    """
    from tqdm import tqdm  # only here: a program that shows no bar does not import it

    class Bar(tqdm):
        pass

    Bar.set_lock(threading.RLock())
    return Bar


class _Silent:
    """Stands in for a bar that is not shown."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def progress_bar(*, shown: bool, **options: Any) -> Any:
    """A tqdm bar with these options, or something that takes the same calls and does nothing."""
    return _bar()(**options) if shown else _Silent()
