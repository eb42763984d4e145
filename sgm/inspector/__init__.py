"""The inspector: a local page that answers what a memory will do, why, and which of its edges are wrong.

Answers are plain functions over a `View`, a memory as it is at one moment; only web.py, guard.py and server.py know of
the web. `sgm inspect` and `serve` open the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import Server

__all__ = ["serve"]


def serve(
    path: Any,
    second: Any = None,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    write: bool = False,
    embed: bool = False,
) -> Server:
    """Start the page of a memory file, agent folder or run folder in a thread; its `url`, and `close()` to end it.

    Args:
        path: what to show.
        second: a memory of the same stream to compare it with.
        port: where; 0: any that is free.
        host: the address to listen at. Others than 127.0.0.1 let other machines look.
        write: let the page remove and restore edges.
        embed: let notebooks on this machine show the page in a frame; it only reads then.
    """
    from .server import start

    return start(path, second, port=port, host=host, write=write, embed=embed)
