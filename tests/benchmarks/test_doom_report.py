"""A Doom run folder becomes a page that says all of it, with whatever of it is there."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import sgm
from sgm.benchmarks import label, load, map_plots, paper, plots, tables
from sgm.benchmarks import page as pages
from sgm.benchmarks.doom import figures
from sgm.benchmarks.doom.report import console
from sgm.envs.doom import mazes as doom_mazes
from sgm.envs.doom.wad import write_lumps
from sgm.navigation import wilson

pytest.importorskip("matplotlib")

FRAMES = 200
STAGES = (
    ("random", 0),
    ("controller", 0),
    ("sptm", 0),
    ("dense", 0),
    ("sptm+sgm", 0),
    ("sptm+sgm", 54_000),
    ("sptm+sgm", 114_000),
    ("ours", 0),
    ("ours", 54_000),
    ("ours", 114_000),
    ("ours-random-goals", 114_000),
)
FIGURES = {
    "map",
    "success",
    "steps",
    "lengths",
    "heat",
    "strip",
    "alias",
    "memory-sptm",
    "memory-sptm-sgm",
    "memory-ours",
    "episode",
}
DRAWN = {
    plots: ("success_curves", "edge_lengths"),
    map_plots: ("memory_stages", "episode"),
    figures: ("draw_floor_plan", "steps_to_goal", "heat_map", "waypoint_strip", "aliased"),
}


def write_report(folder):
    return pages.write_report(load("doom"), folder)


def row(method="sptm+sgm", seed=0, steps=0, successes=(20, 11, 4), **other):
    memory, total = method not in ("random", "controller"), sum(successes)
    levels = {
        level: {"episodes": 25, "successes": count, "mean_steps": 40.0 * (number + 1) if count else None}
        for number, (level, count) in enumerate(zip(("easy", "medium", "hard"), successes, strict=True))
    }
    return {
        "environment": "doom:maze0",
        "method": method,
        "seed": seed,
        "phase": "cleaned" if steps else "initial",
        "cleanup_steps": steps,
        "episodes": 75,
        "successes": total,
        "success_rate": total / 75,
        "ci95": list(wilson(total, 75)),
        "mean_steps": 71.5 if total else None,
        "reasons": {"time": 75 - total},
        "seconds_per_action": 0.0034,
        "nodes": 61 if memory else None,
        "edges": 1234 if memory else None,
        "largest_part": 59 if memory else None,
        "false_edges": 0.125 if memory else None,
        "levels": levels,
        "lost_engines": 0,
        **other,
    }


def some_rows():
    return [
        row(method, seed, steps, (22 - number % 3, 10 + number % 7, 3 + number))
        for seed in (0, 1)
        for number, (method, steps) in enumerate(STAGES)
    ]


def write_results(folder, rows, **other):
    content = {
        "schema": 1,
        "command": "sgm run doom --seeds 0 1 --out <here>",
        "date": "2025-01-02T03:04:05+00:00",
        "versions": {"python": "3.99.1"},
        "machine": "Abacus, 2 cores",
        "settings": {"seeds": [0, 1], "wad": None, "maze_seed": 0, "episode_steps": 200, "note": "<b>&"},
        "agent": {"temperature": 0.123},
        "quality": {
            "distance": {
                "auc": 0.9664,
                "precision": {
                    "0.3": {"threshold": 3.5, "false": 0.194},
                    "0.1": {"threshold": 1.25, "precision": 0.71, "false": 0.065},
                },
            },
            "controller": {"accuracy": {"1": 0.634, "2": 0.517}},
        },
        "rows": rows,
        **other,
    }
    (folder / "results.json").write_text(json.dumps(content))


def write_memories(home, poses, random):
    """Memories over a metric in which some far places look near; cleanup has removed a few edges of two of them."""
    places = poses[:, :2].copy()
    places[random.random(len(places)) < 0.1] += 150
    apart = np.linalg.norm(places[:, None] - places, axis=-1) / 20
    for method in ("sptm", "sptm+sgm", "ours"):
        kind = {"criterion": "uniform", "size": 60} if method == "sptm" else {"tau_a": 0.5}
        memory = sgm.SparseGraphicalMemory(sgm.TableDistance(apart), tau_p=None, max_dist=4.0, k=4, **kind)
        memory.extend(np.arange(len(poses)), attributes={"pose": poses})
        edges = memory.edges()
        for u, v in zip(edges.source[:20:4], edges.target[:20:4], strict=True):
            if method != "sptm":
                memory.record(int(u), int(v), False)
        (home / method).mkdir(parents=True)
        memory.save(home / method / "memory.sgm")
    return memory


def write_images(home, poses, random):
    image = random.integers(0, 255, (4, 5, 3), np.uint8)
    steps = np.hypot(*(poses[:, :2] - poses[7, :2]).T).astype(np.float32) / 20
    np.savez(
        home / "images.npz",
        reference=image,
        reference_pose=poses[7],
        poses=poses,
        steps=steps,
        steps_window=1.1 * steps,
        threshold=3.0,
        strip=np.stack([image] * 10),
        strip_poses=poses[10:20],
        strip_goal=image,
        alias=np.stack([image] * 2),
        alias_poses=poses[[3, 90]],
        alias_steps=1.5,
        alias_apart=321.0,
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("run"), np.random.default_rng(0)
    write_results(folder, some_rows())
    doom_map = doom_mazes.generate(0, size=384, rooms=2)
    x, y, _ = doom_map.start
    text = doom_map.text(f"thing {{ x = {x}; y = {y}; angle = 0; type = 1; }}")
    write_lumps(folder / "map.wad", [("MAP01", b""), ("TEXTMAP", text.encode()), ("ENDMAP", b"")])
    home = folder / "seed0"
    home.mkdir()
    poses = np.column_stack([doom_map.draw_positions(random, FRAMES), random.uniform(0, 360, FRAMES)])
    memory = write_memories(home, poses, random)
    write_images(home, poses, random)
    lengths = {stage: random.exponential(60, 400).astype(np.float32) for stage in ("dense", "two-way", "ours")}
    np.savez(home / "lengths.npz", **lengths)
    u, v = (int(ends[0]) for ends in memory.edges()[:2])
    trace = {
        "goal": poses[50].tolist(),
        "observations": poses[:30].tolist(),
        "waypoints": [u, v],
        "success": True,
        "plans": [{"step": 0, "nodes": [u, v]}, {"step": 9, "nodes": [v]}],
        "cuts": [],
    }
    (home / "episode.json").write_text(json.dumps(trace))
    return folder


@pytest.fixture(scope="module")
def page(run_folder):
    return write_report(run_folder).read_text(encoding="utf-8")


@pytest.fixture
def copy(run_folder, tmp_path):
    """The folder to spoil."""
    return shutil.copytree(run_folder, tmp_path / "copy", ignore=shutil.ignore_patterns("figures", "report.html"))


@pytest.fixture
def undrawn(monkeypatch):
    """All that figures are drawn from is read, which is quick, and nothing is drawn."""
    for module, names in DRAWN.items():
        for name in names:
            monkeypatch.setattr(module, name, lambda path, *_, **__: path.write_bytes(b"PNG"))


class Balanced(HTMLParser):
    """Fails on a tag that is closed without having been opened; what is left open stays in `open`."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def not_drawn(page):
    """Why figures were not drawn, by name."""
    notes = re.findall(r'<p class="note">Not drawn: (.*?), because ([^<]*)</p>', page)
    return {name.removesuffix(".png"): reason for names, reason in notes for name in names.split(", ")}


def test_the_page_is_whole_and_needs_nothing_else(page):
    parser = Balanced()
    parser.feed(page)
    assert page.startswith("<!DOCTYPE html>") and not parser.open
    sources = re.findall(r'(?:src|href)\s*=\s*"([^"]{0,30})', page)
    assert len(sources) == len(FIGURES) and all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "<script" not in page and "url(" not in page and "@import" not in page


def test_every_figure_is_drawn_and_is_a_file_too(run_folder, page):
    assert {path.stem for path in (run_folder / "figures").iterdir()} == FIGURES
    assert not not_drawn(page)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (run_folder / "figures").iterdir())
    assert page.index("The maze from above") < page.index("sgm run doom")


def test_the_page_has_every_pooled_number_with_its_interval_and_every_seed(page):
    rows = some_rows()
    for method, steps in STAGES:
        mine = [each for each in rows if (each["method"], each["cleanup_steps"]) == (method, steps)]
        for level in ("easy", "medium", "hard", None):
            results = [each["levels"][level] if level else each for each in mine]
            won, of = (sum(result[name] for result in results) for name in ("successes", "episodes"))
            low, high = wilson(won, of)
            assert f"<td>{100 * won / of:.1f} %<small>{100 * low:.1f}–{100 * high:.1f}</small></td>" in page
        for each in mine:
            assert f"<td>{100 * each['success_rate']:.1f} %</td>" in page
    for number in ("2 × 75", "61", "1,234", "12.5 %", "3.4", "54,000", "114,000", "72", "59"):
        assert f"<td>{number}</td>" in page


def test_the_papers_numbers_stand_beside_its_methods_only(page):
    (table,) = console(some_rows())
    column = table.heads.index("Paper")
    for (method, steps), line in zip(STAGES, table.lines, strict=True):
        assert line[0].text == label("doom", method)
        assert (line[column].text != "–") == ((method, steps) in paper.LEVELS)
    assert "<td>60.7 ± 4.0 %<small>92.0 / 64.0 / 26.0</small></td>" in page
    assert "<td>55.3 %<small>88.0 / 52.0 / 26.0</small></td>" in page


def test_the_page_says_how_to_rerun_how_good_the_networks_are_and_what_made_it(page):
    assert "sgm run doom --seeds 0 1 --out &lt;here&gt;" in page
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page
    for text in ("0.9664", "0.123", "3.99.1", "Abacus, 2 cores", "2025-01-02"):
        assert text in page
    assert "<td>1.25</td><td>71.0 %</td><td>6.5 %</td><td>3.5</td><td>–</td><td>19.4 %</td>" in page
    assert "<td>Actions predicted correctly</td><td>63.4 %</td><td>51.7 %</td>" in page


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("map.wad", FIGURES - {"success", "steps", "lengths"}),
        ("seed0/lengths.npz", {"lengths"}),
        ("seed0/images.npz", {"heat", "strip", "alias"}),
        ("seed0/sptm+sgm/memory.sgm", {"memory-sptm-sgm"}),
        ("seed0/ours/memory.sgm", {"memory-ours", "episode"}),
        ("seed0/episode.json", {"episode"}),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_what_is_missing_is_named_and_the_rest_is_drawn(copy, name, missing):
    (copy / name).unlink()
    problems = not_drawn(write_report(copy).read_text())
    assert problems.keys() == missing
    assert set(problems.values()) == {f"the run has no {name}"}


def test_what_is_damaged_is_named_and_the_rest_is_drawn(copy):
    for name in ("lengths.npz", "images.npz", "ours/memory.sgm", "episode.json"):
        (copy / "seed0" / name).write_text("{}")
    problems = not_drawn(write_report(copy).read_text())
    assert problems.keys() == {"lengths", "heat", "strip", "alias", "memory-ours", "episode"}
    assert problems["lengths"].startswith("seed0/lengths.npz cannot be read")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("content", ["[]", "not json", "{}", '{"goal": [1], "observations": [], "plans": []}'])
def test_a_damaged_episode_is_named(copy, content):
    (copy / "seed0" / "episode.json").write_text(content)
    assert not_drawn(write_report(copy).read_text()).keys() == {"episode"}


def test_a_damaged_map_is_named(copy):
    (copy / "map.wad").write_text("no map")
    shutil.rmtree(copy / "seed0")
    assert "is not a WAD" in not_drawn(write_report(copy).read_text())["map"]


@pytest.mark.usefixtures("undrawn")
def test_images_that_were_not_taken_are_named(copy):
    path = copy / "seed0" / "images.npz"
    arrays = dict(np.load(path))
    np.savez(path, **{name: value for name, value in arrays.items() if not name.startswith(("alias", "strip_g"))})
    problems = not_drawn(write_report(copy).read_text())
    assert problems.keys() == {"alias", "strip"} and problems["strip"] == "seed0/images.npz has no strip_goal"


@pytest.mark.usefixtures("undrawn")
def test_figures_come_from_the_first_seed_that_has_them(copy):
    (copy / "seed0").rename(copy / "seed10")
    (copy / "seed2").mkdir()
    page = write_report(copy).read_text()
    assert not not_drawn(page) and "One episode of ours, seed 10" in page


def test_a_run_of_one_method_has_a_page(tmp_path):
    write_results(tmp_path, [row("random", successes=(0, 0, 0))], quality=None, settings=None, agent=None)
    page = write_report(tmp_path).read_text()
    assert "<td>random actions</td>" in page and "<td>0.0 %<small>0.0–4.9</small></td>" in page
    problems = not_drawn(page)
    assert problems["success"] == "no method with cleanup was run"
    assert problems["steps"] == "no episode reached its goal"
    assert "memory-ours" not in problems


def test_a_run_without_any_row_yet_has_a_page(tmp_path):
    write_results(tmp_path, [])
    assert "sgm run doom" in write_report(tmp_path).read_text()
    (tmp_path / "results.json").write_text(json.dumps({"schema": 1, "rows": []}))
    assert "no results yet" in write_report(tmp_path).read_text()


def test_optional_fields_of_rows_may_be_missing(tmp_path):
    rows = some_rows()
    for each in rows:
        del each["reasons"], each["largest_part"], each["levels"], each["false_edges"], each["lost_engines"]
    (tmp_path / "results.json").write_text(json.dumps({"schema": 1, "rows": rows}))
    assert "SPTM + SGM" in write_report(tmp_path).read_text()


def test_lost_engines_are_said_aloud(tmp_path, page):
    assert "engines died" not in page
    write_results(tmp_path, [row("random", seed, lost_engines=2) for seed in (0, 1)])
    assert "4 engines died during evaluation" in write_report(tmp_path).read_text()


def test_without_matplotlib_the_page_says_what_to_install(copy, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    problems = not_drawn(write_report(copy).read_text())
    assert problems.keys() == FIGURES and all("[viz]" in text for text in problems.values())


def test_the_console_has_a_line_for_each_method_and_stage_with_intervals():
    lines = tables.console(console(some_rows())).splitlines()
    assert len(lines) == 2 + len(STAGES) and lines[0].startswith("Method")
    easy, overall = wilson(44, 50), wilson(70, 150)
    line = lines[2]
    assert line.startswith("random actions") and "2 × 75" in line and "30.5 % [58.0 / 21.5 / 12.0]" in line
    assert f"88.0 % [{100 * easy[0]:.1f}–{100 * easy[1]:.1f}]" in line
    assert f"46.7 % [{100 * overall[0]:.1f}–{100 * overall[1]:.1f}]" in line


def test_several_environments_are_kept_apart():
    other = [{**each, "environment": "doom:other:MAP01"} for each in some_rows()]
    lines = tables.console(console(some_rows() + other)).splitlines()
    assert lines[0].startswith("Environment") and len(lines) == 2 + 2 * len(STAGES)
