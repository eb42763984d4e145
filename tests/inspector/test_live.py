"""A file that others write, replace, damage and delete while it is looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import sgm
import sgm.inspector
from sgm.inspector import sources
from sgm.inspector.server import listen
from sgm.navigation.beside import Floor, write_floor
from tests.inspector.client import Stream, ask
from tests.inspector.worlds import Straight, plane

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
ROOT = Path(__file__).parents[2]
WRITER = """
import sys, time, warnings
import sgm
warnings.simplefilter("error")
with sgm.SparseGraphicalMemory.open(sys.argv[1], None) as memory:
    edges = memory.edges()
    print("open", flush=True)
    for line in sys.stdin:
        number = int(line)
        if number < 0:
            break
        memory.record(int(edges.source[number]), int(edges.target[number]), True)
        print("recorded", flush=True)
print("closed", flush=True)
"""


@pytest.fixture
def path(tmp_path) -> Path:
    plane().save(tmp_path / "m.sgm")
    return tmp_path / "m.sgm"


def start_writer(path) -> subprocess.Popen:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], text=True, cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert writer.stdout.readline() == "open\n"
    return writer


def test_what_another_process_writes_arrives_and_its_close_stays_clean(path):
    with sgm.inspector.serve(path) as server:
        stream = Stream(server.url)
        kind, hello = stream.next()
        assert kind == "hello" and hello["version"] == ask(server.url).json()["version"]
        writer = start_writer(path)
        versions = {hello["version"]}
        for number in range(5):
            writer.stdin.write(f"{number}\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "recorded\n"
            versions.add(stream.until("change")["version"])
            facts = ask(server.url).json()
            assert facts["version"] in versions and facts["events"]["last"] == number + 1
        assert len(versions) == 6
        out, err = writer.communicate("-1\n", timeout=30)  # warnings are errors there
        assert out == "closed\n" and err == "" and writer.returncode == 0
        assert os.listdir(path.parent) == ["m.sgm"]
        stream.close()


def test_a_writer_beside_a_busy_page_closes_cleanly(tmp_path):
    path = tmp_path / "m.sgm"
    points = np.random.default_rng(0).uniform(0, 60, (1500, 2)).astype(np.float32)
    memory = sgm.SparseGraphicalMemory(Straight(), criterion="none", max_dist=8.0, k=5)
    memory.extend(points)
    memory.save(path)
    with sgm.inspector.serve(path) as server, warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            with sgm.SparseGraphicalMemory.open(path, Straight()) as live:
                for _ in range(3):  # nodes are added: the page reads the whole file again and again
                    live.add(np.random.default_rng(len(live)).uniform(0, 60, 2).astype(np.float32))
                    ask(server.url)
            assert os.listdir(tmp_path) == ["m.sgm"]
        assert ask(server.url).json()["nodes"] == 1509


def test_a_killed_writer_leaves_what_it_had_written(path):
    with sgm.inspector.serve(path) as server:
        writer = start_writer(path)
        writer.stdin.write("3\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "recorded\n"
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        assert ask(server.url).json()["events"]["last"] == 1


def test_a_replaced_file_is_shown_anew(path):
    with sgm.inspector.serve(path) as server:
        stream = Stream(server.url)
        plane(80, seed=3).save(path)
        assert stream.until("change")["version"] == ask(server.url).json()["version"]
        assert ask(server.url).json()["nodes"] == 80
        stream.close()


def test_a_deleted_file_is_told_on_page_and_terminal_and_comes_back(path, capfd):
    content = path.read_bytes()
    with sgm.inspector.serve(path) as server:
        stream = Stream(server.url)
        path.unlink()
        assert "is gone" in stream.until("gone")["text"]
        facts = ask(server.url).json()
        assert facts["nodes"] == 60 and any("is gone" in text for text in facts["warnings"])
        assert ask(server.url, "/api/plan?from=0&to=5").status == 200
        again = Stream(server.url)  # who opens the page now is told too
        assert [again.next()[0] for _ in range(2)] == ["hello", "gone"]
        again.close()
        path.write_bytes(content)
        stream.until("back")
        assert not any("is gone" in text for text in ask(server.url).json()["warnings"])
        stream.close()
    said = capfd.readouterr().err.splitlines()
    assert sum("is gone" in line for line in said) == 1 and sum("is back" in line for line in said) == 1


@pytest.mark.parametrize("content", [b"", b"not a memory", b"SQLite format 3\0" + bytes(4000)])
def test_a_damaged_file_is_told_and_what_was_there_is_still_shown(path, capfd, content):
    with sgm.inspector.serve(path) as server:
        stream = Stream(server.url)
        path.write_bytes(content)
        text = stream.until("damaged")["text"]
        assert "m.sgm" in text and "shows the last state" in text and "\n" not in text
        assert ask(server.url).json()["nodes"] == 60
        stream.close()
    assert len([line for line in capfd.readouterr().err.splitlines() if "shows the last state" in line]) == 1


def test_damage_in_the_middle_of_a_file_is_found(path):
    with sgm.inspector.serve(path) as server:
        stream = Stream(server.url)
        content = bytearray(path.read_bytes())
        place = content.index(server.live.view.memory.embeddings[7].tobytes())  # the row of a node
        content[place] ^= 0x5A
        path.write_bytes(bytes(content))
        stream.until("damaged")
        stream.close()


def test_what_an_evaluation_leaves_beside_the_file_arrives(path):
    with sgm.inspector.serve(path) as server:
        stream = Stream(server.url)
        assert not ask(server.url).json()["floor"]
        write_floor(path.with_name("floor.json"), Floor(np.array([[0.0, 0.0, 1.0, 1.0]]), unit="m"))
        stream.until("change")
        assert ask(server.url).json()["floor"]
        stream.close()


def test_the_second_memory_is_read_again_when_it_changes(path, tmp_path):
    other = tmp_path / "other.sgm"
    memory = plane()
    memory.save(other)
    with sgm.inspector.serve(path, other) as server:
        assert ask(server.url).json()["compare"] == {"name": str(other)}
        assert ask(server.url, "/api/compare").json()["counts"]["removed"] == 0
        memory.remove(*(int(end[0]) for end in memory.edges()[:2]))
        memory.save(other)
        assert ask(server.url, "/api/compare").json()["counts"]["removed"] == 1
        other.unlink()
        answer = ask(server.url, "/api/compare")
        assert answer.status == 409 and "no file" in answer.json()["error"]


def test_a_computed_layout_stays_where_it_is_while_edges_go(path):
    memory = plane()
    del memory.attributes["position"]
    memory.save(path)
    with sgm.inspector.serve(path, write=True) as server:
        before = server.live.view.places.xy
        u, v = (int(end[0]) for end in server.live.view.memory.edges()[:2])
        assert ask(server.url, f"/api/edge/{u}/{v}/remove", "POST", X_SGM_Token=server.token).status == 200
        np.testing.assert_array_equal(server.live.view.places.xy, before)


# -- what to inspect, and where ----------------------------------------------------------------------------------


def test_files_agents_and_runs_are_found(tmp_path):
    memory = plane()
    memory.save(tmp_path / "one.sgm")
    assert sources.find(tmp_path / "one.sgm") == (tmp_path / "one.sgm", [])
    agent = tmp_path / "agent"
    agent.mkdir()
    for name in ("memory.sgm", "memory-built.sgm"):
        memory.save(agent / name)
    assert sources.find(agent) == (agent / "memory.sgm", [agent / "memory-built.sgm"])
    run = tmp_path / "run"
    for method in ("sorb", "sorb+sgm"):
        for seed in (0, 1):
            folder = run / f"seed{seed}" / method
            folder.mkdir(parents=True)
            memory.save(folder / "memory.sgm")
    found = sources.find(run)
    assert found.path == run / "seed0" / "sorb+sgm" / "memory.sgm" and len(found.others) == 3


@pytest.mark.parametrize("given", ["missing.sgm", "empty", ""])
def test_what_is_no_memory_is_one_sentence(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(sgm.SGMError, match="give a memory file"):
        sources.find(given)


def test_a_port_that_is_taken_is_one_sentence_and_the_usual_one_gives_way():
    with listen("127.0.0.1", 0) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(sgm.SGMError, match=f"127.0.0.1:{number}.*--port 0"):
            listen("127.0.0.1", number)
    with pytest.raises(sgm.InputError, match="65535"):
        listen("127.0.0.1", 70_000)
    with pytest.raises(sgm.SGMError, match="cannot listen.*--host"):
        listen("not.a.host.invalid", 0)
    one, two = listen("127.0.0.1", None), listen("127.0.0.1", None)
    assert one.getsockname()[1] != two.getsockname()[1]
    one.close()
    two.close()


def command(*arguments) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "sgm.cli", "inspect", *map(str, arguments), "--no-browser"], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_the_command_says_where_the_page_is_and_ends_with_ctrl_c(path):
    plane().save(path.parent / "memory.sgm")
    running = command(path.parent, "--port", 0)
    lines = []
    while not lines or "open http" not in lines[-1]:
        lines.append(running.stdout.readline())
        assert lines[-1], running.stderr.read()
    url = lines[-1].split()[1]
    assert f"a plan: {url}#from=0&to=59" in running.stdout.readline()
    assert "60 nodes" in lines[0] and any(str(path) in line for line in lines)
    stream = Stream(url)  # an open page does not keep it from ending
    stream.next()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 0 and err == "" and "ended" in out
    stream.close()


@pytest.mark.parametrize("content", [None, b"junk"])
def test_the_command_refuses_what_it_cannot_read_in_one_line(tmp_path, content):
    target = tmp_path / "m.sgm"
    if content is not None:
        target.write_bytes(content)
    done = command(target)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 2 and out == "" and err.startswith("sgm: ") and err.count("\n") == 1


def test_without_the_extra_the_command_names_it(monkeypatch, path):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(sgm.SGMError, match=r"sparse-graphical-memory\[inspect\]"):
        sgm.inspector.serve(path)


def test_a_server_can_be_closed_twice_and_started_again(path):
    server = sgm.inspector.serve(path)
    server.close()
    server.close()
    assert not server.is_running
    begun = time.monotonic()
    with sgm.inspector.serve(path) as again:
        assert ask(again.url).status == 200
    assert time.monotonic() > begun
