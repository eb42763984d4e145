"""Whatever a results.json or a bench.json of somebody else holds, tables and reports say what is wrong with it."""

from __future__ import annotations

import copy
import importlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sgm
from sgm import cli
from sgm.benchmarks import load, paper_tables, tables
from sgm.benchmarks import page as pages
from sgm.benchmarks.point import figures as point_figures
from sgm.benchmarks.results import read_json
from sgm.benchmarks.runs import RunFolder, find
from sgm.envs.point import mazes

ESCAPE = "\x1b[2J\x1b]0;owned\x07\r\n\u202e\ud800"
HOSTILE = ["text", "", ESCAPE, [], [1], {}, {"a": 1}, {"a": {"b": []}}, True, -1, 0, 0.5, 10**400, -(10**400), None]


def row(environment, method, **other):
    return {
        "environment": environment,
        "method": method,
        "seed": 0,
        "phase": "cleaned",
        "cleanup_steps": 2000,
        "episodes": 100,
        "successes": 31,
        "mean_steps": 50.0,
        "nodes": 200,
        "edges": 900,
        "seconds_per_action": 1e-4,
        "reasons": {"time": 69},
        "largest_part": 190,
        **other,
    }


LEVELS = {level: {"episodes": 30, "successes": 7, "mean_steps": 9.0} for level in ("easy", "medium", "hard")}
JUDGED = {
    "auc": 0.97,
    "precision": {"0.3": {"precision": 0.7, "false": 0.2, "threshold": 1.5}},
    "calibration": {"c": 12.3, "T": 1.31, "medians": {"1": 1.0, "5": 4.4}},
}
CHOICE = {
    "name": "tau_a",
    "asked": 60,
    "value": 4.3,
    "nodes": 61,
    "edges": 345,
    "largest_part": 59,
    "redrawn": 2,
    "within_tolerance": False,
    "settings": {"tau_a": 4.3, "tau_p": 5.5},
    "tried": 9,
}
SAFETY = {"layout": 0, "policy": "first-failure", "agent": "plain"}
COMMON = {
    "schema": 1,
    "command": "sgm run",
    "date": "2025-01-02",
    "versions": {"python": "3"},
    "machine": "Abacus",
    "agent": {"radius": 0.3},
}
RESULTS = {
    "point": {
        **COMMON,
        "settings": {"maze": "FourRooms", "policy": "belief"},
        "rows": [row("point:FourRooms-thin", "sorb+sgm"), row("point:FourRooms-thin", "sorb", phase="initial")],
    },
    "doom": {
        **COMMON,
        "settings": {"episode_steps": 200},
        "quality": {"distance": JUDGED, "controller": {"accuracy": {"1": 0.6}}, "rollouts": 20},
        "comparison": {"closeness": {"auc": 0.75}},
        "rows": [row("doom:maze0", "ours", levels=LEVELS, false_edges=0.1, lost_engines=1)],
    },
    "safety": {
        **COMMON,
        "settings": {"layouts": [0]},
        "quality": {"layout0/seed0": {"distance": JUDGED}},
        "thresholds": {"layout0/seed0/both": CHOICE},
        "rows": [
            row(
                "safety:rooms0",
                method,
                **SAFETY,
                false_edges=0.1,
                true_part=9,
                false_starts=0.1,
                false_goals=0.2,
                cleanup_seconds=3.5,
                outcomes="01" * 50,
            )
            for method in ("two-way", "uniform")
        ],
    },
}
BENCH = {
    "command": "python -m speed.navigation",
    "machine": "Abacus",
    "sections": {
        "Time to take an action, one agent": [
            {"method": "sorb", "nodes": 1000, "ours_s": 2.5e-4, "reference_s": 6e-3},
            {"method": "sorb+sgm", "nodes": 200, "ours_s": 2e-4, "reference_s": 2e-3},
        ]
    },
}


def places(content, path=()):
    """Where there is a value in JSON, at any depth."""
    yield path
    for key, item in content.items() if isinstance(content, dict) else enumerate(content):
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


def changed(content, path, value):
    """A copy with another value in one place."""
    if not path:
        return value
    content = copy.deepcopy(content)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return content


def report_of(kind):
    """The module that reports on a benchmark."""
    return importlib.import_module(f"sgm.benchmarks.{kind}.report")


def write_report(kind, folder, **trusted):
    return pages.write_report(load(kind), folder, trusted or None)


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take most of the time, and catch their own errors."""
    monkeypatch.setattr(pages, "_gallery", lambda *_: ())


def is_shown(text):
    return all(line.isprintable() for line in text.split("\n"))


def all_tables(folder):
    """Everything that `sgm table` would print, or what is wrong; both without anything that a terminal obeys."""
    try:
        texts = [paper_tables.show(paper_tables.TABLES, [folder], markdown) for markdown in (False, True)]
    except sgm.SGMError as error:
        texts = [str(error)]
    assert all(map(is_shown, texts))
    return texts


def a_page(kind, folder):
    """The report of a folder, or what is wrong."""
    try:
        text = write_report(kind, folder).read_text(encoding="utf-8")
    except sgm.SGMError as error:
        text = str(error)
    assert is_shown("".join(text.split("\n")))
    return text


# -- tables ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RESULTS)
def test_tables_print_or_refuse_whatever_stands_anywhere_in_results(tmp_path, kind):
    for path in places(RESULTS[kind]):
        for value in HOSTILE:
            (tmp_path / "results.json").write_text(json.dumps(changed(RESULTS[kind], path, value)))
            all_tables(tmp_path)


def test_tables_print_or_refuse_whatever_stands_anywhere_in_a_bench(tmp_path):
    for path in places(BENCH):
        for value in HOSTILE:
            (tmp_path / "bench.json").write_text(json.dumps(changed(BENCH, path, value)))
            all_tables(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"\xff\xfe", b'{"schema": NaN}', b'{"schema": 1e999}', b"[" * 200_000, b"[" * 99 + b"]" * 99],
    ids=["empty", "half", "not UTF-8", "NaN", "infinite", "deep", "nested"],
)
@pytest.mark.parametrize("name", ["results.json", "bench.json"])
def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path, capsys, name, damage):
    (tmp_path / name).write_bytes(damage)
    assert cli.main(["table", "--runs", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert name in said and "--runs" in said and is_shown(said)


@pytest.mark.parametrize("name", ["results.json", "bench.json"])
def test_a_folder_in_the_place_of_a_file_is_a_clear_error(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(sgm.SGMError, match=f"{name} cannot be read.*folder.*--runs"):
        find([tmp_path])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
@pytest.mark.parametrize("name", ["results.json", "bench.json"])
def test_tables_do_not_wait_for_a_fifo(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(sgm.SGMError, match="not a regular file"):
        find([tmp_path])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": True}, "seed True"),
        ({"episodes": 10**400}, "episodes 1000"),
        ({"mean_steps": "fast"}, "mean_steps 'fast'"),
        ({"nodes": [1]}, r"nodes \[1\]"),
        ({"seconds_per_action": {}}, "seconds_per_action {}"),
        ({"reasons": ["time"]}, "reasons .'time'."),
        ({"reasons": {"time": "often"}}, "reasons.time 'often'"),
        ({"levels": {"easy": 3}}, "levels.easy 3"),
        ({"levels": {"easy": {"episodes": "all"}}}, "levels.easy.episodes 'all'"),
        ({"method": 3}, "method 3"),
        ({"environment": ["point"]}, "environment .'point'."),
    ],
)
def test_a_row_of_another_type_is_named_with_what_is_accepted(tmp_path, change, said):
    rows = [{**RESULTS["doom"]["rows"][0], **change}]
    (tmp_path / "results.json").write_text(json.dumps({**RESULTS["doom"], "rows": rows}))
    with pytest.raises(sgm.SGMError, match=rf"row 0 of .*results.json.*{said}.*; accepted: .*docs/results.md"):
        find([tmp_path])


@pytest.mark.parametrize("settings", [[], "fast", 3, [["maze", "FourRooms"]]])
def test_settings_that_are_no_object_are_named(tmp_path, settings):
    (tmp_path / "results.json").write_text(json.dumps({**RESULTS["point"], "settings": settings}))
    with pytest.raises(sgm.SGMError, match="results.json has settings .*accepted: an object"):
        find([tmp_path])


def test_levels_with_more_successes_than_episodes_are_refused(tmp_path):
    rows = [{**RESULTS["doom"]["rows"][0], "levels": {"easy": {"episodes": 3, "successes": 4}}}]
    (tmp_path / "results.json").write_text(json.dumps({**RESULTS["doom"], "rows": rows}))
    with pytest.raises(sgm.SGMError, match="no more successes than episodes"):
        paper_tables.doom_levels(find([tmp_path]))


# -- what reaches a terminal -------------------------------------------------------------------------------------


def test_nothing_from_a_file_reaches_the_terminal_as_a_command(tmp_path, capsys):
    """Method, environment, policy, agent, command, machine, settings, schema, reasons and names of folders."""
    for number, kind in enumerate(RESULTS):
        content = copy.deepcopy(RESULTS[kind])
        content |= {"command": f"sgm {ESCAPE}", "machine": ESCAPE}
        content["settings"] |= {"policy": ESCAPE, "criterion": ESCAPE, "resize": [ESCAPE], ESCAPE: ESCAPE}
        for each in content["rows"]:
            each |= {"environment": each["environment"] + ESCAPE, "reasons": {ESCAPE: 3}}
            each |= {"agent": ESCAPE, "policy": ESCAPE} if kind == "safety" else {}
        content["rows"] += [{**content["rows"][0], "method": ESCAPE}]
        folder = tmp_path / f"{number}\x1b[31m"
        folder.mkdir()
        (folder / "results.json").write_text(json.dumps(content))
        (tmp_path / f"again{number}").mkdir()
        (tmp_path / f"again{number}" / "results.json").write_text(json.dumps(content))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "results.json").write_text(json.dumps({"schema": ESCAPE}))
    bench = {**BENCH, "command": ESCAPE, "machine": [ESCAPE]}
    (tmp_path / "bench.json").write_text(json.dumps(bench))
    for more in ([], ["--markdown"]):
        assert cli.main(["table", "--runs", str(tmp_path), *more]) == 0
        shown = capsys.readouterr().out
        assert is_shown(shown) and r"\x1b[2J" in shown and r"\u202e\ud800" in shown


@pytest.mark.parametrize("kind", ["point", "doom", "safety"])
def test_nothing_of_a_state_reaches_the_terminal_as_a_command_when_a_run_ends(kind):
    rows = [{**each, "environment": ESCAPE, "agent": ESCAPE, "policy": ESCAPE} for each in RESULTS[kind]["rows"]]
    rows += [{**rows[0], "environment": "b", "agent": "b", "method": ESCAPE}]
    shown = tables.console(report_of(kind).console(rows))
    assert is_shown(shown) and r"\x1b[2J" in shown


@pytest.mark.parametrize("name", ["results.json", "bench.json"])
def test_an_error_about_a_file_is_printable_whatever_the_file_is_called(tmp_path, capsys, name):
    folder = tmp_path / "\x1b[31mred\n"
    folder.mkdir()
    (folder / name).write_text("{")
    assert cli.main(["table", "--runs", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert is_shown(said) and r"\x1b[31mred\n" in said


def test_rows_that_cannot_be_told_apart_are_named_without_escapes(tmp_path):
    rows = [{**RESULTS["safety"]["rows"][0], "agent": ESCAPE}] * 2
    (tmp_path / "results.json").write_text(json.dumps({**RESULTS["safety"], "rows": rows}))
    with pytest.raises(sgm.SGMError, match="cannot be told apart") as raised:
        find([tmp_path])
    assert is_shown(str(raised.value))


# -- reports -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.usefixtures("undrawn")
def test_reports_are_written_or_refused_whatever_stands_anywhere_in_results(tmp_path, kind):
    pytest.importorskip("matplotlib")
    (tmp_path / "results.json").write_text(json.dumps(RESULTS[kind]))
    assert "</html>" in a_page(kind, tmp_path)
    for path in places(RESULTS[kind]):
        for value in HOSTILE:
            (tmp_path / "results.json").write_text(json.dumps(changed(RESULTS[kind], path, value)))
            a_page(kind, tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("kind", RESULTS)
@settings(max_examples=60)
@given(data=st.data())
def test_tables_and_reports_print_or_refuse_any_change(tmp_path_factory, kind, data):
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("any")
    content = RESULTS[kind]
    for path in data.draw(st.lists(st.sampled_from([path for path in places(content) if path]), max_size=3)):
        try:
            content = changed(content, path, data.draw(JSON))
        except (TypeError, KeyError, IndexError):  # an earlier change took the place away
            continue
    (folder / "results.json").write_text(json.dumps(content))
    all_tables(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_gallery", lambda *_: ())
        a_page(kind, folder)


@pytest.mark.parametrize("method", ["../../../elsewhere", "/elsewhere", "..", "a/b", "a\\b", "", ESCAPE])
def test_a_method_that_is_no_plain_name_opens_no_folder(tmp_path, monkeypatch, method):
    pytest.importorskip("matplotlib")
    method = method.replace("/elsewhere", str(tmp_path / "elsewhere")) if method.startswith("/") else method
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(np.ones((3, 3))), criterion="none")
    memory.extend(np.arange(3))
    run = tmp_path / "a" / "run"
    (run / "seed0").mkdir(parents=True)
    for place in (tmp_path / "elsewhere", run / "seed0", run / "seed0" / "a" / "b"):
        place.mkdir(exist_ok=True, parents=True)
        memory.save(place / "memory.sgm")
    rows = [row("point:FourRooms-thin", method)]
    (run / "results.json").write_text(json.dumps({**RESULTS["point"], "rows": rows}))
    drawn = []
    monkeypatch.setattr(pages, "_gallery", lambda items, _: drawn.extend(item.name for item in items) or ())
    a_page("point", run)
    assert drawn == ["success"]


@pytest.mark.parametrize("kind", RESULTS)
def test_figures_do_not_warn_in_words_of_a_file(tmp_path, kind, capfd):
    pytest.importorskip("matplotlib")
    rows = [{**each, "environment": ESCAPE, "agent": ESCAPE, "policy": ESCAPE} for each in RESULTS[kind]["rows"]]
    rows += [{**each, "phase": "initial", "cleanup_steps": 0} for each in rows]
    rows += [{**each, "environment": "b", "method": ESCAPE} for each in rows[:1]]
    (tmp_path / "results.json").write_text(json.dumps({**RESULTS[kind], "rows": rows}))
    assert "success" in a_page(kind, tmp_path)
    assert is_shown("".join(capfd.readouterr()))


@pytest.mark.parametrize("name", ["report.html", "figures", "figures/success.png"])
def test_a_report_is_not_written_through_a_link(tmp_path, name):
    pytest.importorskip("matplotlib")
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious")
    (run / name).parent.mkdir(parents=True)
    (run / name).symlink_to(outside if name == "figures" else outside / "file")
    (run / "results.json").write_text(json.dumps(RESULTS["point"]))
    with pytest.raises(sgm.SGMError, match="leads out of the run folder"):
        write_report("point", run)
    assert [path.read_text() for path in outside.iterdir()] == ["precious"]


@pytest.fixture
def with_memory(tmp_path):
    """A run of PointEnv with a memory to draw over its maze."""
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(np.ones((3, 3))), criterion="none")
    memory.extend(np.array([0, 1, 2]))
    home = tmp_path / "run" / "seed0" / "sorb+sgm"
    home.mkdir(parents=True)
    memory.save(home / "memory.sgm")
    return tmp_path / "run"


def opened_mazes(monkeypatch):
    """Text files that are read as mazes from now on."""
    seen, real = [], mazes.Maze.from_text.__func__

    def spy(cls, text, name="text"):
        seen.append(name)
        return real(cls, text, name)

    monkeypatch.setattr(mazes.Maze, "from_text", classmethod(spy))
    return seen


def test_a_maze_that_only_results_name_is_not_opened(with_memory, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    maze = tmp_path / "maze.txt"
    maze.write_text("...\n.#.\n...\n")
    content = {**RESULTS["point"], "settings": {"maze": str(maze), "resize": 1}}
    (with_memory / "results.json").write_text(json.dumps(content))
    seen = opened_mazes(monkeypatch)
    page = write_report("point", with_memory).read_text()
    assert "Not drawn: memory-sorb-sgm.png, because the maze of this run is" in page and seen == []
    page = write_report("point", with_memory, maze=str(maze)).read_text()
    assert "the maze of this run is" not in page and set(seen) == {str(maze)}


@pytest.mark.parametrize(
    ("maze", "resize"),
    [("Random999", 1), ("Spiral9999", 1), ("FourRooms", 10**9), ("FourRooms", "5"), ("FourRooms", True), (["U"], 1)],
)
def test_a_maze_too_large_to_have_been_run_is_not_made(with_memory, maze, resize, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(point_figures, "load_maze", lambda *_: pytest.fail("made a maze"))
    content = {**RESULTS["point"], "settings": {"maze": maze, "resize": resize}}
    (with_memory / "results.json").write_text(json.dumps(content))
    assert "Not drawn: memory-sorb-sgm.png" in write_report("point", with_memory).read_text()


def test_every_maze_that_has_a_name_can_be_drawn():
    for name in [*mazes._TEXTS, "Spiral11", "Random15", "Random15+4"]:
        run = RunFolder(Path(), {"settings": {"maze": name, "resize": 5, "thin": True}})
        assert str(point_figures.load(run)) == str(mazes.load_maze(name, 5, True))


@pytest.mark.parametrize("seed", ["²", "٣", "0x1", "-1", "1.5", "one"])
@pytest.mark.usefixtures("undrawn")
def test_folders_that_only_look_like_seeds_are_no_trouble(tmp_path, seed):
    pytest.importorskip("matplotlib")
    for kind, name in (("doom", f"seed{seed}"), ("safety", f"layout0/seed{seed}")):
        (tmp_path / kind / name).mkdir(parents=True)
        (tmp_path / kind / "results.json").write_text(json.dumps(RESULTS[kind]))
        assert "</html>" in a_page(kind, tmp_path / kind)


def test_an_episode_of_an_unknown_method_opens_no_folder(tmp_path):
    pytest.importorskip("matplotlib")
    run, outside = tmp_path / "run", tmp_path / "outside"
    home = run / "layout0" / "seed0"
    home.mkdir(parents=True)
    outside.mkdir()
    (run / "results.json").write_text(json.dumps(RESULTS["safety"]))
    for method in ("../../../outside", str(outside), 3, ["both"]):
        (home / "episode.json").write_text(json.dumps({"method": method}))
        page = a_page("safety", run)
        assert re.search(r"Not drawn: episode-layout0.png, because episode.json is of method .*; accepted: con", page)


def test_results_of_the_repository_are_as_they_are_accepted():
    for path in sorted((Path(__file__).parents[2] / "results").rglob("results.json")):
        needed = ("layout", "policy", "agent") if "safety" in path.parent.name else ()
        run = RunFolder.read(path.parent)
        run.require(*needed)
        assert run.rows == read_json(path)["rows"]
