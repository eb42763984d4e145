"""The HTTP application: routes, JSON, arrays, images and the stream of changes.

From requests, only integers and the search text are passed on, and nothing reaches the file system.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sgm.errors import InputError, SGMError, StoreError, UnknownEdge, UnknownNode, printable

from . import answers, container, png, records, suspects, timeline
from .components import components
from .find import find
from .live import Live, Message
from .view import View
from .why import why

STATIC = Path(__file__).parent / "static"
PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
}
POLL = 0.1  # seconds between checks of the file
HEARTBEAT = 10.0  # seconds without an event after which a stream sends a comment
_SMALL = 1_000  # size below which answers are not compressed, bytes
_NUMBER = re.compile(r"[0-9]{1,15}")
_KEPT_STATES = 64  # number of compressed states that are cached


class Hub:
    """Watches the file and sends messages to all listeners."""

    def __init__(self, live: Live) -> None:
        """Make a hub for a file; `watch` starts watching."""
        self.live = live
        self.listeners: set[asyncio.Queue[Message]] = set()
        self.closed = False

    async def watch(self) -> None:
        """Check the file periodically until the hub is closed."""
        while not self.closed:
            try:
                await self.look()
            except Exception as error:  # the page must survive any file
                print(f"sgm inspect: {printable(f'{type(error).__name__}: {error}')}", file=sys.stderr, flush=True)
            await asyncio.sleep(POLL)

    async def look(self) -> None:
        """Check the file once."""
        for message in await run_in_threadpool(self.live.poll):
            if message.text:
                print(f"sgm inspect: {printable(message.text)}", file=sys.stderr, flush=True)
            elif message.kind == "back":
                print(f"sgm inspect: {printable(str(self.live.path))} is back", file=sys.stderr, flush=True)
            for listener in self.listeners:
                listener.put_nowait(message)

    async def stream(self) -> AsyncIterator[str]:
        """Yield messages as server-sent events; the first has the current version."""
        queue: asyncio.Queue[Message] = asyncio.Queue()
        self.listeners.add(queue)
        try:
            yield event(Message("hello", version=self.live.view.version))
            if self.live.problem is not None:
                yield event(self.live.problem)
            silence = 0.0
            while not self.closed:
                try:
                    yield event(await asyncio.wait_for(queue.get(), 0.5))
                    silence = 0.0
                except asyncio.TimeoutError:
                    silence += 0.5
                    if silence >= HEARTBEAT:
                        silence = 0.0
                        yield ": alive\n\n"
        finally:
            self.listeners.discard(queue)


def event(message: Message) -> str:
    """Format a message as a server-sent event."""
    facts = {"version": message.version} if message.version else {"text": message.text}
    return f"event: {message.kind}\ndata: {json.dumps(facts)}\n\n"


def make_app(live: Live, *, write: bool = False, name: str = "") -> tuple[Starlette, Hub]:
    """Make the application for a memory file, and its hub."""
    hub = Hub(live)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(hub.watch())
        try:
            yield
        finally:
            hub.closed = True
            watching.cancel()

    def about(view: View) -> dict[str, Any]:
        compared = None if live.second is None else {"name": str(live.second)}
        facts = {
            **answers.summary(view),
            "name": name or str(live.path),
            "floor": live.records.floor is not None,
            "write": write,
            "compare": compared,
            "episodes": len(live.records.episodes),
            "guarantee": live.records.guarantee is not None,
        }
        problem = [] if live.problem is None else [live.problem.text]
        facts["warnings"] = [*problem, *live.records.problems, *facts["warnings"]]
        return facts

    async def page(request: Request) -> Response:
        return await run_in_threadpool(_page, request)

    async def changes(request: Request) -> Response:
        return StreamingResponse(hub.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    def answer(make: Callable[[Request, View], Any]) -> Callable[[Request], Awaitable[Response]]:
        """Make a route that answers with the result of `make` for the latest view."""

        def work(request: Request) -> Response:
            try:
                with live.turn:
                    made = make(request, live.view)
                return made if isinstance(made, Response) else reply(request, made)
            except SGMError as error:
                return reply(request, {"error": str(error)}, _status(error))

        async def route(request: Request) -> Response:
            await hub.look()
            return await run_in_threadpool(work, request)

        return route

    def change(act: Callable[[int, int], None]) -> Callable[[Request], Awaitable[Response]]:
        """Make a route that changes an edge and answers with its new state."""

        def work(request: Request) -> Response:
            u, v = (request.path_params[end] for end in "uv")
            try:
                live.view.edge(u, v)
                act(u, v)
            except SGMError as error:
                return reply(request, {"error": str(error)}, _status(error))
            return Response(status_code=204)

        async def route(request: Request) -> Response:
            done = await run_in_threadpool(work, request)
            await hub.look()
            if done.status_code != 204:
                return done
            return await answer(lambda r, view: answers.edge(view, r.path_params["u"], r.path_params["v"]))(request)

        return route

    def ends(request: Request) -> tuple[int, int]:
        return number(request, "from"), number(request, "to")

    routes = [
        *(Route(path, page, methods=["GET"]) for path in PAGES),
        Route("/api/live", changes, methods=["GET"]),
        Route("/api/edge/{u:int}/{v:int}/remove", change(live.remove), methods=["POST"]),
        Route("/api/edge/{u:int}/{v:int}/restore", change(live.restore), methods=["POST"]),
    ]
    answered: dict[str, Callable[[Request, View], Any]] = {
        "/api/summary": lambda request, view: about(view),
        "/api/graph": _graph,
        "/api/state": _state,
        "/api/floor": lambda request, view: _or_404(request, records.floor(live.records), "there is no floor plan"),
        "/api/node/{node:int}": lambda request, view: answers.node(view, request.path_params["node"]),
        "/api/edge/{u:int}/{v:int}": lambda r, view: answers.edge(view, r.path_params["u"], r.path_params["v"]),
        "/api/plan": lambda request, view: answers.plan(view, *ends(request)),
        "/api/why": lambda request, view: why(view, *ends(request)),
        "/api/suspects": lambda request, view: suspects.suspects(view, number(request, "limit", 200, most=2_000)),
        "/api/components": lambda request, view: components(view),
        "/api/events": lambda request, view: answers.events(
            view, number(request, "after", 0), number(request, "limit", 500, most=10_000)
        ),
        "/api/compare": lambda request, view: live.compare(),
        "/api/episodes": lambda request, view: records.episodes(view, live.records),
        "/api/episode/{id:int}": lambda r, view: records.episode(view, live.records, r.path_params["id"]),
        "/api/episode/{id:int}/image/{step:int}": lambda r, view: _picture(
            r, records.episode_image(live.records, r.path_params["id"], r.path_params["step"])
        ),
        "/api/guarantee": lambda request, view: records.guarantee(view, live.records),
        "/api/image/{node:int}": lambda r, view: _picture(r, _image(view, r.path_params["node"])),
        "/api/find": lambda request, view: find(view, request.query_params.get("q", "")),
    }
    routes += [Route(path, answer(make), methods=["GET"]) for path, make in answered.items()]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: _unknown, 405: _unknown, 500: _mistake})
    return app, hub


# -- requests ----------------------------------------------------------------------------------------------------


def number(request: Request, name: str, default: int | None = None, most: int | None = None) -> int:
    """Parse an integer of the query; InputError if it is anything else."""
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None or not _NUMBER.fullmatch(text):
        raise InputError(f"{name} is {(text or '')[:40]!r}: expected a whole number, 0 or more")
    return int(text) if most is None else min(int(text), most)


# -- answers -----------------------------------------------------------------------------------------------------


def reply(request: Request, content: Any, status: int = 200, media: str = "application/json") -> Response:
    """Answer with JSON, or with unchanged bytes, compressed if the client accepts it."""
    body = content if isinstance(content, bytes) else json.dumps(content, allow_nan=False).encode()
    sent = {"vary": "accept-encoding"}
    if len(body) > _SMALL and takes_gzip(request):
        body = gzip.compress(body, 6, mtime=0)
        sent["content-encoding"] = "gzip"
    return Response(body, status, sent, media)


def takes_gzip(request: Request) -> bool:
    """Whether the client accepts gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def _arrays(request: Request, view: View, key: Any, make: Callable[[], bytes]) -> Response:
    """Answer with a binary message, which is made and compressed once for a view."""
    kept: dict[Any, bytes] = view.cache.setdefault("packed", {})
    if key not in kept:
        if len(kept) >= _KEPT_STATES:
            kept.pop(next(iter(kept)))
        kept[key] = gzip.compress(make(), 6, mtime=0)
    sent = {"vary": "accept-encoding"}
    body = kept[key]
    if takes_gzip(request):
        sent["content-encoding"] = "gzip"
    else:
        body = gzip.decompress(body)
    return Response(body, 200, sent, "application/octet-stream")


def _graph(request: Request, view: View) -> Response:
    last = timeline.event_range(view.memory)[1]
    at = timeline.check(view, number(request, "at", last))

    def make() -> bytes:
        shown = view if at == last else timeline.past(view, at)
        arrays = answers.graph_arrays(shown)
        return container.pack(arrays, version=view.version, at=at, nodes=len(shown), edges=len(arrays["source"]))

    return _arrays(request, view, ("graph", at), make)


def _state(request: Request, view: View) -> Response:
    at = timeline.check(view, number(request, "at"))

    def make() -> bytes:
        arrays = timeline.state_arrays(view, at)
        return container.pack(arrays, version=view.version, at=at, nodes=len(view), edges=len(arrays["state"]))

    return _arrays(request, view, ("state", at), make)


def _image(view: View, node: int) -> Any:
    view.node(node)
    return view.images[node] if view.images is not None and view.has_image(node) else None


def _picture(request: Request, image: Any) -> Response:
    if image is None:
        return reply(request, {"error": "there is no image"}, 404)
    return Response(png.encode(image), 200, media_type="image/png")


def _or_404(request: Request, content: Any, text: str) -> Any:
    return reply(request, {"error": text}, 404) if content is None else content


def _page(request: Request) -> Response:
    """Answer with one of the three files of the page. Names are fixed here, and never come from a request."""
    name, media = PAGES[request.url.path]
    try:
        body = (STATIC / name).read_bytes()
    except OSError:
        return reply(request, {"error": f"{name} is not installed: build the page with make inspector"}, 503)
    return reply(request, body, media=media)


def _status(error: SGMError) -> int:
    if isinstance(error, (UnknownNode, UnknownEdge)):
        return 404
    return 409 if isinstance(error, StoreError) else 400


async def _unknown(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    text = "there is nothing at this address" if status == 404 else "this address does not support the method"
    return reply(request, {"error": text}, status)


async def _mistake(request: Request, error: Exception) -> Response:
    return reply(request, {"error": f"an error in the inspector, please report it: {type(error).__name__}"}, 500)
