"""The server: what it answers, and whom it does not answer."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import numpy as np
import pytest

import sgm
import sgm.inspector
from sgm.inspector import container
from sgm.inspector.guard import Guard
from tests.inspector.client import ask
from tests.inspector.worlds import live_for, plane

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&"


def small(path, **attributes):
    memory = plane()
    live_for(memory, 60)
    for name, values in attributes.items():
        memory.attributes[name] = values
    memory.save(path)
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = small(tmp_path_factory.mktemp("web") / "m.sgm")
    with sgm.inspector.serve(path) as running:
        yield running


@pytest.fixture
def writable(tmp_path):
    with sgm.inspector.serve(small(tmp_path / "m.sgm"), write=True) as running:
        yield running


def port(server) -> int:
    return urlsplit(server.url).port


# -- answers -----------------------------------------------------------------------------------------------------


def test_every_address_answers_with_json_and_the_version(server):
    edge = server.live.view.memory.edges()
    u, v = int(edge.source[0]), int(edge.target[0])
    for path in (
        "/api/summary", "/api/node/3", f"/api/edge/{u}/{v}", "/api/plan?from=0&to=9", "/api/why?from=0&to=9",
        "/api/suspects", "/api/components", "/api/events", "/api/compare", "/api/episodes", "/api/guarantee",
        "/api/find?q=3",
    ):  # fmt: skip
        answer = ask(server.url, path)
        assert answer.status == 200 and answer.headers["content-type"] == "application/json", path
        assert answer.json()["version"] == server.live.view.version


def test_arrays_come_packed_and_plain(server):
    plain = ask(server.url, "/api/graph")
    packed = ask(server.url, "/api/graph", Accept_Encoding="gzip, br")
    assert "content-encoding" not in plain.headers and packed.headers["content-encoding"] == "gzip"
    assert plain.body == packed.body and len(packed.sent) < len(plain.sent)
    arrays, facts = container.unpack(plain.body)
    assert facts["nodes"] == 60 and len(arrays["source"]) == facts["edges"] == len(server.live.view.drawn)
    last = ask(server.url).json()["events"]["last"]
    then, _ = container.unpack(ask(server.url, f"/api/state?at={last}").body)
    np.testing.assert_array_equal(then["state"], arrays["state"])
    np.testing.assert_array_equal(then["price"], arrays["price"])
    np.testing.assert_array_equal(then["component"], arrays["component"])
    past, facts = container.unpack(ask(server.url, "/api/graph?at=3").body)
    assert facts["at"] == 3 and (past["successes"].sum() + past["failures"].sum()) <= 3


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/node/999999", 404), ("/api/edge/0/0", 404), ("/api/plan?from=0", 400), ("/api/plan?from=0&to=x", 400),
        ("/api/plan?from=0&to=-1", 400), ("/api/state?at=99999999", 400), ("/api/state", 400), ("/api/image/0", 404),
        ("/api/floor", 404), ("/api/episode/0", 404), ("/api/nothing", 404), ("/api/image/99999", 404),
        (f"/api/node/{'9' * 400}", 404), (f"/api/plan?from={'9' * 400}&to=0", 400), ("/api/plan?from=١&to=0", 400),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_one_sentence(server, path, status):
    from urllib.parse import quote

    answer = ask(server.url, quote(path, safe="/?=&"))
    assert answer.status == status
    text = answer.json()["error"]
    assert text and "\n" not in text and "Traceback" not in text and len(text) < 500


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/static/../web.py", "/api/image/..%2f..%2fetc%2fpasswd", "/api/image/%2e%2e",
        "//etc/passwd",
        "/api/image/1.5", "/api/image/-1", "/api/image/0x1", "/app.js/../../web.py", "/index.html", "/api/image/1%00",
        "/%2e%2e/web.py", "/app.js%00.txt", "/api/episode/../../../x/image/0", "/web.py", "\\..\\web.py",
    ],
)  # fmt: skip
def test_no_path_reaches_the_file_system(server, path):
    answer = ask(server.url, path)
    assert answer.status in (400, 404) and b"root:" not in answer.body and b"import" not in answer.body


# -- who is answered ---------------------------------------------------------------------------------------------


def test_the_server_listens_on_this_machine_alone(server):
    assert server.url.startswith("http://127.0.0.1:")
    with socket.socket() as other:  # another address of this machine
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", port(server))) != 0


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "",
        "127.0.0.1:{port}.evil.example",
        "10.0.0.1:{port}",
        "[::2]:{port}",
    ],
)
def test_a_foreign_name_is_not_answered(server, host):
    for path in ("/", "/api/summary", "/app.js"):
        answer = ask(server.url, path, Host=host.format(port=port(server)))
        assert answer.status in (400, 421) and b"nodes" not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"])
def test_the_names_of_this_machine_are_answered(server, host):
    name = host.format(port=port(server))
    assert ask(server.url, Host=name).status == 200
    assert ask(server.url, Host=name, Origin=f"http://{name}").status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:1",
        "http://localhost:{port}",
        "file://",
    ],
)
def test_a_foreign_page_is_not_answered(server, origin):
    assert ask(server.url, Origin=origin.format(port=port(server))).status == 403


def test_what_the_browser_says_of_a_request_counts(server):
    for site in ("cross-site", "same-site", "odd"):
        assert ask(server.url, Sec_Fetch_Site=site).status == 403
        assert ask(server.url, "/app.js", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors").status == 403
    for site in ("same-origin", "none"):
        assert ask(server.url, Sec_Fetch_Site=site).status == 200
    opened = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert ask(server.url, "/", Sec_Fetch_Dest="document", **opened).status in (200, 503)
    assert ask(server.url, "/", Sec_Fetch_Dest="iframe", **opened).status == 403
    assert ask(server.url, "/api/summary", Sec_Fetch_Dest="document", **opened).status == 403


def test_a_header_given_twice_is_refused():
    async def app(scope, receive, send):
        raise AssertionError("passed on")

    guard = Guard(app, "127.0.0.1", 80)
    assert guard.refusal("GET", "/", b"", {"host": None})[0] == 421
    assert guard.refusal("GET", "/", b"", {"host": "127.0.0.1", "origin": None})[0] == 403
    assert guard.refusal("GET", "/", b"", {"host": "127.0.0.1:80"}) is None


def test_where_others_may_look_names_are_still_checked_and_numbers_are_not():
    guard = Guard(None, "0.0.0.0", 8000)
    assert guard.knows("192.168.1.7:8000") and guard.knows("[fe80::1]:8000") and guard.knows("localhost:8000")
    assert not guard.knows("evil.example:8000") and not guard.knows("192.168.1.7:8001")
    named = Guard(None, "lab.example", 8000)
    assert named.knows("lab.example:8000") and named.knows("LAB.example:8000") and not named.knows("evil.example:8000")


def test_every_answer_has_the_headers_that_keep_a_page_safe(server):
    for path in ("/", "/app.js", "/api/summary", "/api/graph", "/api/nothing", "/api/node/9999999"):
        headers = ask(server.url, path).headers
        policy = headers["content-security-policy"]
        for part in (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ):
            assert part in policy
        assert "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY" and headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers and "server" not in headers
    assert ask(server.url, Host="evil.example").headers["content-security-policy"] == policy


def test_notebooks_may_show_a_page_that_only_reads_in_a_frame(tmp_path):
    path = small(tmp_path / "m.sgm")
    with sgm.inspector.serve(path, embed=True) as embedded:
        answer = ask(embedded.url, "/", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")
        assert answer.status in (200, 503) and "x-frame-options" not in answer.headers
        assert "frame-ancestors http://localhost:*" in answer.headers["content-security-policy"]
        assert ask(embedded.url, Sec_Fetch_Site="same-site").status == 403
    with pytest.raises(sgm.InputError, match="read-only"):
        sgm.inspector.serve(path, embed=True, write=True)


# -- writing -----------------------------------------------------------------------------------------------------


def test_a_page_that_only_reads_changes_nothing(server):
    edges = server.live.view.memory.edges()
    u, v = int(edges.source[0]), int(edges.target[0])
    assert server.token is None and server.address == server.url
    answer = ask(server.url, f"/api/edge/{u}/{v}/remove", "POST", X_SGM_Token="")
    assert answer.status == 403 and "--write" in answer.json()["error"]
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
        assert ask(server.url, "/api/summary", method).status == 405
    assert (
        sgm.SparseGraphicalMemory.load(server.live.path, None).removed().source.tolist()
        == server.live.view.memory.removed().source.tolist()
    )


def test_edges_are_removed_and_restored_by_hand_as_events_of_the_file(writable):
    edges = writable.live.view.memory.edges()
    u, v = int(edges.source[0]), int(edges.target[0])
    token = writable.token
    before = ask(writable.url).json()["events"]["last"]
    answer = ask(writable.url, f"/api/edge/{u}/{v}/remove", "POST", X_SGM_Token=token)
    assert answer.status == 200 and answer.json()["state"] == 2 and "by hand" in answer.json()["rule"]
    memory = sgm.SparseGraphicalMemory.load(writable.live.path, None)
    assert memory.evidence(u, v).removed_at is not None and memory.events(u, v).kind[-1] == "removed"
    assert ask(writable.url).json()["events"]["last"] == before + 1
    answer = ask(writable.url, f"/api/edge/{u}/{v}/restore", "POST", X_SGM_Token=token)
    assert answer.status == 200 and answer.json()["state"] == 0
    assert sgm.SparseGraphicalMemory.load(writable.live.path, None).events(u, v).kind[-1] == "restored"
    assert sorted(path.name for path in writable.live.path.parent.iterdir()) == ["m.sgm"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_SGM_Token": ""},
        {"X_SGM_Token": "wrong"},
        {"X_SGM_Token": "{token}", "Origin": "http://evil.example"},
        {"X_SGM_Token": "{token}", "Sec_Fetch_Site": "cross-site"},
        {"X_SGM_Token": "{token}", "Host": "evil.example"},
    ],
    ids=str,
)
def test_nothing_is_written_for_anybody_else(writable, headers):
    edges = writable.live.view.memory.edges()
    u, v = int(edges.source[0]), int(edges.target[0])
    token = writable.token
    given = {name: value.format(token=token) for name, value in headers.items()}
    content = writable.live.path.read_bytes()
    answer = ask(writable.url, f"/api/edge/{u}/{v}/remove", "POST", **given)
    assert answer.status in (400, 403, 421) and writable.live.path.read_bytes() == content


def test_no_answer_tells_the_token(writable):
    assert writable.address == f"{writable.url}#token={writable.token}"
    for path in ("/", "/app.js", "/api/summary", "/api/graph", "/api/components", "/api/find?q=token"):
        assert writable.token.encode() not in ask(writable.url, path).body
    assert ask(writable.url).json()["write"] is True


def test_what_cannot_be_written_is_one_sentence(writable):
    token = writable.token
    for path, status in (
        ("/api/edge/0/0/remove", 404),
        ("/api/edge/0/99999/restore", 404),
        ("/api/edge/x/1/remove", 404),
        ("/api/summary", 405),
    ):
        answer = ask(writable.url, path, "POST", X_SGM_Token=token)
        assert answer.status == status and answer.json()["error"]
    edges = writable.live.view.memory.edges()
    u, v = int(edges.source[0]), int(edges.target[0])
    with sgm.SparseGraphicalMemory.open(writable.live.path, None):
        answer = ask(writable.url, f"/api/edge/{u}/{v}/remove", "POST", X_SGM_Token=token)
    assert answer.status == 409 and "one writer at a time" in answer.json()["error"]
    writable.live.path.unlink()
    answer = ask(writable.url, f"/api/edge/{u}/{v}/remove", "POST", X_SGM_Token=token)
    assert answer.status == 409 and "no longer exists" in answer.json()["error"] and not writable.live.path.exists()


# -- hostile memories --------------------------------------------------------------------------------------------


def test_hostile_names_in_a_memory_stay_text(tmp_path):
    path = small(tmp_path / "m.sgm", **{HOSTILE: np.arange(60.0)})
    with sgm.inspector.serve(path) as running:
        assert HOSTILE in {attribute["name"] for attribute in ask(running.url).json()["attributes"]}
        assert ask(running.url, "/api/node/3").json()["attributes"][HOSTILE] == 3.0
        found = ask(running.url, "/api/find?q=%3C%2Fscript%3E%3D1")
        assert (
            found.headers["content-type"] == "application/json" and found.headers["x-content-type-options"] == "nosniff"
        )
        for path in ("/api/summary", "/api/node/3"):
            assert ask(running.url, path).headers["content-type"] == "application/json"
        page = ask(running.url, "/")
        assert HOSTILE.encode() not in page.body


def test_hostile_names_of_policies_stay_text(tmp_path):
    class Odd(sgm.CleanupPolicy):
        name = HOSTILE

        def gives_up(self, evidence):
            return True

    memory = plane(policy=Odd())
    memory.record(*(int(end[0]) for end in memory.edges()[:2]), False)
    memory.save(tmp_path / "m.sgm")
    with sgm.inspector.serve(tmp_path / "m.sgm") as running:
        facts = ask(running.url).json()
        assert facts["policy"]["name"] == HOSTILE and any(
            "not part of this package" in text for text in facts["warnings"]
        )
        u, v = (int(end[0]) for end in running.live.view.memory.removed()[:2])
        assert HOSTILE[:80] in ask(running.url, f"/api/edge/{u}/{v}").json()["rule"]


def test_not_a_number_in_a_memory_is_null(tmp_path):
    values = np.full(60, np.nan)
    path = small(tmp_path / "m.sgm", odd=values, huge=np.full((60, 2), np.inf))
    with sgm.inspector.serve(path) as running:
        told = ask(running.url, "/api/node/3").json()["attributes"]
        assert told["odd"] is None and told["huge"] == [None, None]
        json.dumps(told, allow_nan=False)
