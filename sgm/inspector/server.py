"""The web server of the inspector, in a thread, and the command `sgm inspect`."""

from __future__ import annotations

import contextlib
import errno
import secrets
import shlex
import socket
import threading
import time
import webbrowser
from pathlib import Path
from typing import Any

from sgm.errors import InputError, MissingExtra, SGMError, printable

from . import sources

PORT = 8460  # tried first if no port is given
_MOST_LISTED = 12


class Server:
    """A running inspector.

    Attributes:
        url: address of the page.
        live: the memory file that it shows.
        token: token that requests to write must have; None: the page is read-only. No answer of the server contains it.
    """

    def __init__(
        self, url: str, live: Any, runner: Any, hub: Any, thread: threading.Thread, token: str | None = None
    ) -> None:
        """Wrap a server that runs in a thread."""
        self.url, self.live, self.token = url, live, token
        self._runner, self._hub, self._thread = runner, hub, thread

    @property
    def address(self) -> str:
        """Address to open: the page, with the token after "#", a part that a browser does not send to servers."""
        return self.url if self.token is None else f"{self.url}#token={self.token}"

    @property
    def is_running(self) -> bool:
        """Whether the server is running."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stop the server; a second call does nothing."""
        self._hub.closed = True
        self._runner.should_exit = True
        self._thread.join(timeout=10)

    def __enter__(self) -> Server:
        """Return the server, for `with`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.close()


def start(
    path: Any,
    second: Any = None,
    *,
    port: int | None = 0,
    host: str = "127.0.0.1",
    write: bool = False,
    embed: bool = False,
) -> Server:
    """Read a memory and start its page in a thread; see `sgm.inspector.serve`."""
    try:
        import uvicorn

        from .guard import Guard
        from .web import make_app
    except ModuleNotFoundError as error:
        raise MissingExtra("sgm inspect", "inspect", error) from error
    from .live import Live

    if write and embed:
        raise InputError("a page that notebooks show in a frame is read-only: leave out write=True")
    live = Live(sources.find(path).path, None if second is None else sources.find(second).path, write=write)
    token = secrets.token_urlsafe(24) if write else None
    listening = listen(host, port)
    try:
        number = listening.getsockname()[1]
        app, hub = make_app(live, write=write)
        guarded = Guard(app, host, number, token=token, embed=embed)
        config = uvicorn.Config(
            guarded, log_level="critical", access_log=False, lifespan="on", ws="none", http="h11", loop="asyncio",
            server_header=False, timeout_graceful_shutdown=2,
        )  # fmt: skip
        runner = uvicorn.Server(config)
        thread = threading.Thread(target=runner.run, args=([listening],), name="sgm inspect", daemon=True)
        thread.start()
        while not runner.started and thread.is_alive():
            time.sleep(0.01)
    except BaseException:
        listening.close()
        raise
    if not runner.started:
        raise SGMError("the server did not start")
    return Server(f"http://{_shown(host)}:{number}/", live, runner, hub, thread, token)


def listen(host: str, port: int | None) -> socket.socket:
    """Open a listening socket; a port of None is the default one, or any free one if that is taken."""
    if port is not None and not 0 <= port <= 65535:
        raise InputError(f"the port is {port}: expected a number from 0 (any free port) to 65535")
    if port is None:
        with contextlib.suppress(SGMError):
            return listen(host, PORT)
        port = 0
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        where = f"{host}:{port}"
        raise SGMError(
            f"cannot listen at {where}: {error.strerror or error}. Give another {_to_change(error)}."
        ) from None
    return listening


def _to_change(error: OSError) -> str:
    """Option to change if a server cannot listen, for the error message."""
    strange = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    return "--host, an address of this machine" if strange else "--port, or --port 0 for any"


def _shown(host: str) -> str:
    """Format the host for the address of a page; for a server that listens at all addresses it is 127.0.0.1."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def run(path: Path, second: Path | None, *, port: int | None, host: str, browser: bool, write: bool) -> None:
    """Run `sgm inspect`: start the server, print its address, and wait for Ctrl-C."""
    source = sources.find(path)
    with start(source.path, second, port=port, host=host, write=write) as server:
        view = server.live.view
        print(f"{_text(source.path)}: {len(view):,} nodes, {len(view.drawn):,} edges on the map")
        for line in _others(source):
            print(line)
        if host not in ("127.0.0.1", "localhost", "::1"):
            print(f"everyone who can reach {host} can see this memory")
        if write:
            print("everyone with this address and its token can remove and restore edges; each is an event in the file")
        print(f"open {server.address}", flush=True)
        print(f"a plan: {server.url}#from=0&to={max(0, len(view) - 1)}; Ctrl-C stops the server", flush=True)
        if browser:
            with contextlib.suppress(webbrowser.Error):
                webbrowser.open(server.address)
        try:
            while server.is_running:
                time.sleep(0.2)
        except KeyboardInterrupt:
            print("\nended")


def _others(source: sources.Source) -> list[str]:
    """List the other memories of a folder, a line each."""
    if not source.others:
        return []
    listed = [f"  sgm inspect {shlex.quote(_text(path))}" for path in source.others[:_MOST_LISTED]]
    left = len(source.others) - len(listed)
    more = [f"  … and {left:,} more"] if left > 0 else []
    return ["there are other memories:", *listed, *more]


def _text(path: Path) -> str:
    return printable(str(path))
