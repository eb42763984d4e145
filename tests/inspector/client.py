"""A client that says exactly what a test wants it to say."""

from __future__ import annotations

import gzip
import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, {name.lower(): value for name, value in response.getheaders()}
        self.sent = response.read()
        packed = self.headers.get("content-encoding") == "gzip"
        self.body = gzip.decompress(self.sent) if packed else self.sent

    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, path: str = "/api/summary", method: str = "GET", **headers: str) -> Answer:
    """One request; headers are named with underscores, and `Host` may be any."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
        for name, value in given.items():
            connection.putheader(name, value)
        if method == "POST":
            connection.putheader("Content-Length", "0")
        connection.endheaders()
        return Answer(connection.getresponse())
    finally:
        connection.close()


class Stream:
    """The server-sent events of a page."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
        self._connection.request("GET", "/api/live")
        self._response = self._connection.getresponse()

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event: kind and facts."""
        kind, alive = "", 0
        while True:
            line = self._response.readline().decode().rstrip("\n")
            alive += line.startswith(":")
            if alive > 3:
                raise TimeoutError("nothing but heartbeats")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return kind, json.loads(line.removeprefix("data: "))

    def until(self, kind: str) -> dict[str, Any]:
        """The facts of the next event of a kind."""
        while True:
            found, facts = self.next()
            if found == kind:
                return facts

    def close(self) -> None:
        self._response.close()
        self._connection.close()
