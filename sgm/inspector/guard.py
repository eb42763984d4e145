"""Access control: only the inspector's own page gets answers.

Any web page can make a browser send requests to 127.0.0.1. With DNS rebinding its host name may even point there, and
then the browser lets it read the answers. So the headers Host, Origin and Sec-Fetch-Site are checked, and writing needs
a token that only the inspector's page has.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
LOCAL = ("127.0.0.1", "localhost", "[::1]")
NOTEBOOKS = "http://localhost:* http://127.0.0.1:* vscode-webview:"  # pages that may show the page in a frame
_LONGEST = 2_000  # largest number of characters of path and query


def headers(embed: bool) -> list[tuple[bytes, bytes]]:
    """Security headers of every answer; `embed` lets notebooks on this machine show the page in a frame."""
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {NOTEBOOKS if embed else chr(39) + 'none' + chr(39)}"
    )
    fixed = {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
        **({} if embed else {"x-frame-options": "DENY"}),
    }
    return [(name.encode(), value.encode()) for name, value in fixed.items()]


class Guard:
    """An ASGI application that passes only requests of the inspector's page on to another application."""

    def __init__(self, app: App, host: str, port: int, *, token: str | None = None, embed: bool = False) -> None:
        """Guard an application that is served at a host and port.

        Args:
            app: the application.
            host: address of the server.
            port: port of the server.
            token: token that requests to write must have; None: writing is not allowed.
            embed: let notebooks on this machine show the page in a frame.
        """
        self.app, self.host, self.port = app, host, port
        self.token, self.embed = token, embed
        self._headers = headers(embed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        given = _single(scope["headers"])
        refused = self.refusal(scope["method"], scope["path"], scope.get("query_string", b""), given)

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message.get("headers", [])}
                message["headers"] = [
                    *message.get("headers", []),
                    *(item for item in self._headers if item[0] not in own),
                ]
            await send(message)

        if refused is None:
            await self.app(scope, receive, send_with_headers)
        else:
            await _say(send_with_headers, *refused)

    def refusal(self, method: str, path: str, query: bytes, given: dict[str, str | None]) -> tuple[int, str] | None:
        """Return the status and reason if a request is refused, otherwise None. A header given twice must be None."""
        host, origin = given.get("host", ""), given.get("origin", "")
        if host is None or not self.knows(host):
            return 421, "This server has another name: open the address that sgm inspect printed."
        if len(path) + len(query) > _LONGEST:
            return 414, "The address is too long."
        if origin is None or (origin and origin != f"http://{host}"):
            return 403, "The request came from another page: only the inspector's own page gets answers."
        if not self._comes_from_us(method, path, given):
            return 403, "The request came from another page: only the inspector's own page gets answers."
        if method in ("GET", "HEAD"):
            return None
        if method != "POST":
            return 405, f"This server does not support {method[:20]}."
        return self._may_write(given)

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server. IP addresses are accepted: they cannot be used for DNS rebinding."""
        name, port = _split(host)
        if port != str(self.port) and not (port == "" and self.port == 80):
            return False
        if name in LOCAL or name.lower() == self.host.lower():
            return True
        return self.host not in ("127.0.0.1", "localhost", "::1") and _is_number(name)

    def _comes_from_us(self, method: str, path: str, given: dict[str, str | None]) -> bool:
        site = given.get("sec-fetch-site", "")
        if site in ("", "same-origin", "none"):
            return True
        # A link or a notebook may open the page itself, which contains no data.
        frame = ("document", "iframe") if self.embed else ("document",)
        opened = given.get("sec-fetch-mode") == "navigate" and given.get("sec-fetch-dest") in frame
        return method == "GET" and path == "/" and opened

    def _may_write(self, given: dict[str, str | None]) -> tuple[int, str] | None:
        if self.token is None:
            return 403, "This page is read-only: start it with --write to remove and restore edges."
        shown = given.get("x-sgm-token") or ""
        if not hmac.compare_digest(shown.encode(), self.token.encode()):
            return (
                403,
                "The token for writes is missing or wrong: open the address that sgm inspect printed.",
            )
        return None


def _single(pairs: list[tuple[bytes, bytes]]) -> dict[str, str | None]:
    """Headers by name; None for a header that is given twice."""
    found: dict[str, str | None] = {}
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        found[key] = None if key in found else value.decode("latin-1")
    return found


def _split(host: str) -> tuple[str, str]:
    """Split a Host header into name and port."""
    if host.startswith("["):
        name, _, port = host.partition("]")
        return f"{name}]", port.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


async def _say(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    kind = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": kind})
    await send({"type": "http.response.body", "body": body})
