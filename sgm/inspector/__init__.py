"""The inspector: a local web page that shows a memory, its plans and the reasons for them, and suspicious edges.

Answers are plain functions of a `View`, the state of a memory at one moment; only web.py, guard.py and server.py deal
with HTTP. `sgm inspect` and `serve` open the page.
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
    """Serve the page of a memory in a thread; the result has its `url`, and `close()` stops it.

    Args:
        path: memory file, agent folder or run folder.
        second: a memory of the same stream of observations to compare it with.
        port: port to listen at; 0: any free port.
        host: address to listen at. With an address other than 127.0.0.1, other machines can see the memory.
        write: let the page remove and restore edges.
        embed: let notebooks on this machine show the page in a frame; not possible together with `write`.
    """
    from .server import start

    return start(path, second, port=port, host=host, write=write, embed=embed)
