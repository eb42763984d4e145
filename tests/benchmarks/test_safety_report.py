"""A SafetyGym run folder becomes a page that says all of it, with whatever of it is there."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import sgm
from sgm.benchmarks import load, map_plots, plots, tables
from sgm.benchmarks import page as pages
from sgm.benchmarks.comparisons import comparison_table, tally
from sgm.benchmarks.ground_truth import largest_component
from sgm.benchmarks.safety import figure_data, figures
from sgm.benchmarks.safety import tables as safety_tables
from sgm.benchmarks.safety.report import console
from sgm.envs.safety import layouts as safety_layouts
from sgm.navigation import wilson

pytest.importorskip("matplotlib")

METHODS, POLICIES, AGENTS, STEPS = ("uniform", "two-way"), ("first-failure", "belief"), ("plain", "persistent"), (0, 50)
HOME = "layout0/seed1"
FIGURES = {f"{name}-layout0" for name in ("rooms", "success", "reasons", "lengths", "memory", "similarity", "episode")}
DRAWN = {
    plots: ("success_curves", "edge_lengths"),
    map_plots: ("memory_stages", "episode"),
    figures: ("draw_rooms", "draw_reasons", "draw_similarity"),
}


def write_report(folder):
    return pages.write_report(load("safety"), folder)


def row(method="two-way", policy="belief", agent="plain", seed=0, steps=0, successes=20, layout=0, **other):
    return {
        "environment": f"safety:rooms{layout}",
        "layout": layout,
        "method": method,
        "policy": policy,
        "agent": agent,
        "seed": seed,
        "phase": "cleaned" if steps else "initial",
        "cleanup_steps": steps,
        "cleanup_seconds": 12.5 if steps else None,
        "episodes": 80,
        "successes": successes,
        "success_rate": successes / 80,
        "ci95": list(wilson(successes, 80)),
        "mean_steps": 101.5,
        "reasons": {"time": 80 - successes, "no path": 0},
        "seconds_per_action": 0.0034,
        "nodes": 60,
        "edges": 345 - steps,
        "largest_part": 57 if steps else 60,
        "false_edges": 0.0625 if steps else 0.125,
        "true_part": 51,
        "false_starts": 0.15,
        "false_goals": 0.2,
        **other,
    }


def some_rows():
    return [
        row(method, policy, agent, seed, steps, 20 + 3 * number + seed + steps // 2)
        for number, method in enumerate(METHODS)
        for policy in POLICIES
        for agent in AGENTS
        for seed in (1, 2)
        for steps in STEPS
    ]


def write_results(folder, rows, **other):
    choice = {
        "name": "tau_a",
        "asked": 60,
        "value": 4.3219,
        "nodes": 61,
        "edges": 345,
        "largest_part": 59,
        "redrawn": 2,
        "within_tolerance": False,
        "settings": {"tau_a": 4.3219, "tau_p": 5.5},
        "tried": 9,
    }
    judged = {
        "auc": 0.97451,
        "precision": {"0.3": {"precision": 0.71, "false": 0.194}, "0.1": {"false": 0.065}},
        "calibration": {"c": 12.3, "T": 1.31, "longest": 10.0, "medians": {"1": 1.0, "5": 4.44, "9": 9.0, "10": 9.9}},
    }
    content = {
        "schema": 1,
        "command": "sgm run safety --out <here>",
        "date": "2025-01-02T03:04:05+00:00",
        "versions": {"python": "3.99.1"},
        "machine": "Abacus, 2 cores",
        "settings": {"layouts": [0], "note": "<b>&"},
        "agent": {"radius": 0.321},
        "quality": {HOME: {"distance": judged}, "layout0/seed2": None},
        "thresholds": {f"{HOME}/both": choice},
        "rows": rows,
        **other,
    }
    (folder / "results.json").write_text(json.dumps(content))


def build(places, aliased):
    """A memory over a metric in which some far places look near."""
    seen = places[:, :2].copy()
    seen[aliased] = seen[aliased][::-1]
    apart = np.linalg.norm(seen[:, None] - seen, axis=-1).astype(np.float32) * 5
    memory = sgm.SparseGraphicalMemory(sgm.TableDistance(apart), criterion="none", tau_p=None, max_dist=9.0, k=4)
    memory.extend(np.arange(len(places)), attributes={"pose": places})
    return memory


def write_memories(home, places, random):
    for method in METHODS:
        memory = build(places, random.random(len(places)) < 0.2)
        edges = memory.edges()
        (home / method).mkdir(parents=True)
        memory.save(home / method / "built.sgm")
        for policy in POLICIES:
            for u, v in zip(edges.source[:40:4], edges.target[:40:4], strict=True):
                memory.record(int(u), int(v), False)
            (home / method / policy).mkdir()
            memory.save(home / method / policy / "memory.sgm")


def write_images(home, places, random):
    images = random.integers(0, 255, (12, 8, 8, 3), np.uint8)
    content = {"reference": images[0], "reference_pose": places[0], "references": 200, "views": images[:8]}
    for name, shown in (("perceptual", 12), ("two-way", 3)):
        content |= {
            f"{name}_images": images[:shown],
            f"{name}_poses": places[:shown],
            f"{name}_turned": np.arange(shown),
            f"{name}_apart": np.linspace(0, 2, shown),
            f"{name}_passed": [shown, 1],
            f"{name}_sample": [400, 30],
        }
    np.savez(home / "images.npz", view_poses=places[:8], sources=["", "two-way", "two-way"], **content)
    trace = {
        "method": "two-way",
        "goal": places[50].tolist(),
        "start": places[0].tolist(),
        "success": True,
        "observations": places[:30].tolist(),
        "waypoints": [1] * 30,
        "plans": [{"step": 0, "nodes": [1, 2, 3]}, {"step": 9, "nodes": [4, 5]}],
        "cuts": [{"step": 9, "u": 2, "v": 3, "length": 1.5, "blocked": True}],
    }
    (home / "episode.json").write_text(json.dumps(trace))


@pytest.fixture(scope="module")
def layout():
    return safety_layouts.generate(0)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, layout):
    folder, random = tmp_path_factory.mktemp("run"), np.random.default_rng(0)
    write_results(folder, some_rows())
    places = layout.draw_poses(random, 60).astype(np.float32)
    write_memories(folder / HOME, places, random)
    write_images(folder / HOME, places, random)
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


def not_drawn(page):
    """Why figures were not drawn, by name."""
    notes = re.findall(r'<p class="note">Not drawn: (.*?), because ([^<]*)</p>', page)
    return {name.removesuffix(".png"): reason for names, reason in notes for name in names.split(", ")}


def cells(table):
    return [[cell.text for cell in line] for line in table.lines]


# -- the page ----------------------------------------------------------------------------------------------------


def test_every_figure_is_drawn_and_stands_in_the_page_itself(run_folder, page):
    assert {path.stem for path in (run_folder / "figures").iterdir()} == FIGURES and not not_drawn(page)
    sources = re.findall(r'(?:src|href)\s*=\s*"([^"]{0,30})', page)
    assert len(sources) == len(FIGURES) and all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)


def test_the_page_says_what_was_run_and_what_made_it(page):
    assert "sgm run safety --out &lt;here&gt;" in page and "&lt;b&gt;&amp;" in page and "<b>" not in page
    for text in ("0.321", "3.99.1", "Abacus, 2 cores", "2025-01-02"):
        assert text in page
    assert "7.5 % of 400 matches of the two-way check are false" in page


def test_the_page_has_every_pooled_number_with_its_interval_and_every_seed(page):
    for method in METHODS:
        for steps in STEPS:
            mine = [each for each in some_rows() if (each["method"], each["cleanup_steps"]) == (method, steps)]
            of_one = [each for each in mine if (each["policy"], each["agent"]) == ("belief", "plain")]
            won = sum(each["successes"] for each in of_one)
            low, high = wilson(won, 160)
            interval = f"{100 * low:.1f}–{100 * high:.1f}"
            assert f"<td>{100 * won / 160:.1f} ± 0.6 %<small>{interval}; {won}/160</small></td>" in page
            for each in of_one:
                assert f"<td>{100 * each['success_rate']:.1f} %</td>" in page


@pytest.mark.parametrize(
    ("name", "undrawn_figures"),
    [
        (f"{HOME}/images.npz", {}),
        (f"{HOME}/episode.json", {}),
        (f"{HOME}/two-way/belief/memory.sgm", {}),
        (f"{HOME}/two-way/built.sgm", {"memory-layout0", "episode-layout0"}),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_what_is_missing_is_left_out_and_the_rest_is_drawn(copy, name, undrawn_figures):
    (copy / name).unlink()
    problems = not_drawn(write_report(copy).read_text())
    assert problems == dict.fromkeys(undrawn_figures, f"the run has no {name}")


def test_what_is_damaged_is_named_and_the_rest_is_drawn(copy):
    for name in ("images.npz", "episode.json", "two-way/built.sgm"):
        (copy / HOME / name).write_text("{}")
    problems = not_drawn(write_report(copy).read_text())
    assert problems.keys() == {f"{name}-layout0" for name in ("similarity", "episode", "lengths", "memory")}
    assert problems["similarity-layout0"].startswith(f"{HOME}/images.npz cannot be read")


@pytest.mark.usefixtures("undrawn")
def test_memories_of_version_1_are_said_to_have_no_poses_in_one_note(copy):
    for path in copy.rglob("*.sgm"):
        memory = sgm.SparseGraphicalMemory.load(path, None)
        del memory.attributes["pose"]
        memory.save(path)
    page = write_report(copy).read_text()
    assert not_drawn(page).keys() == {"lengths-layout0", "memory-layout0", "episode-layout0"}
    assert page.count("has no attribute &#x27;pose&#x27;") == 1


@pytest.mark.usefixtures("undrawn")
def test_layouts_have_figures_of_their_own(copy):
    write_results(copy, some_rows() + [{**each, "layout": 3, "environment": "safety:rooms3"} for each in some_rows()])
    page = write_report(copy).read_text()
    assert "Figures, layout 3" in page and "safety:rooms0, safety:rooms3" in page
    drawn = {path.stem for path in (copy / "figures").iterdir()}
    assert drawn == FIGURES | {"rooms-layout3", "success-layout3", "reasons-layout3", "lengths-layout3"}


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    write_results(tmp_path, [row()], quality=None, settings=None, agent=None, thresholds=None)
    problems = not_drawn(write_report(tmp_path).read_text())
    assert problems["success-layout0"] == "no method with cleanup was run"
    assert problems["lengths-layout0"] == "no memory has an edge"
    (tmp_path / "results.json").write_text(json.dumps({"schema": 1, "rows": []}))
    assert "no results yet" in write_report(tmp_path).read_text()


def test_optional_fields_of_rows_may_be_missing(tmp_path):
    rows = some_rows()
    for each in rows:
        for name in ("reasons", "largest_part", "false_edges", "false_starts", "false_goals", "cleanup_seconds"):
            del each[name]
    (tmp_path / "results.json").write_text(json.dumps({"schema": 1, "rows": rows}))
    assert "two-way" in write_report(tmp_path).read_text()


def test_without_matplotlib_the_page_says_what_to_install(copy, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    problems = not_drawn(write_report(copy).read_text())
    assert problems.keys() == FIGURES and all("[viz]" in text for text in problems.values())


# -- tables ------------------------------------------------------------------------------------------------------


def test_the_console_has_a_line_for_each_method_policy_and_agent():
    success, memories = tables.console(console(some_rows())).split("\n\n")
    lines = success.splitlines()
    assert len(lines) == 2 + 8 and lines[0].startswith("Method") and len(memories.splitlines()) == 2 + 4
    low, high = wilson(43, 160)
    first = f"uniform  first-failure       plain      2  26.9 ± 0.6 % [{100 * low:.1f}–{100 * high:.1f}; 43/160]"
    assert lines[2].startswith(first) and "31.2 ± 3.8 %" in lines[2] and "64.6 ± 3.4 %" in lines[2]


def test_the_papers_numbers_stand_beside_its_methods():
    methods = ("consptm", "perceptual", "two-way", "both")
    table = safety_tables.success_table([row(method, steps=steps) for method in methods for steps in STEPS])
    without, with_cleanup = (table.heads.index(head) for head in ("Paper w/o", "Paper w/"))
    found = {line[0]: (line[without], line[with_cleanup]) for line in cells(table)}
    assert found == {
        "dense (ConSPTM)": ("–", "68.2 ± 4.1 %"),
        "perceptual": ("31.8 ± 3.6 %", "77.0 ± 2.5 %"),
        "two-way": ("38.2 ± 3.8 %", "92.9 ± 1.2 %"),
        "two-way and perceptual": ("–", "92.9 ± 1.4 %"),
    }


def test_methods_come_in_the_papers_order_whatever_the_order_of_rows():
    rows = [row(method, agent=agent) for method in ("both", "uniform", "consptm") for agent in reversed(AGENTS)]
    assert [(each["agent"], each["method"]) for each in safety_tables.ordered(rows)] == [
        (agent, method) for agent in AGENTS for method in ("consptm", "uniform", "both")
    ]


def test_the_table_of_memories_has_means_over_seeds_before_and_after_cleanup():
    rows = [row(seed=seed, steps=steps) for seed in (0, 1) for steps in (0, 50, 100)]
    (line,) = cells(safety_tables.memory_table(rows))
    assert line == [
        "two-way",
        "belief",
        "60",
        "345",
        "245",
        "12.5 %",
        "6.2 %",
        "100.0 %",
        "85.0 %",
        "95.0 %",
        "15.0 %",
        "20.0 %",
        "25",
    ]


def test_thresholds_and_calibration_are_said(page):
    assert "<td>layout0/seed1</td><td>two-way and perceptual</td><td>τ_a, steps</td><td>4.32</td><td>5.5</td>" in page
    assert "<td>61<small>off target</small></td>" in page
    numbers = ("0.9745", "–", "–", "6.5 %", "–", "71.0 %", "19.4 %", "12.3", "1.31")
    assert "".join(f"<td>{number}</td>" for number in numbers) in page
    assert "Median at 10 steps" in page and "layout0/seed2</td>" not in page


def test_a_seed_that_is_not_done_yet_does_not_hide_the_stage_that_all_have_reached():
    rows = [
        row(seed=seed, steps=steps) for seed, last in ((0, 100), (1, 50)) for steps in (0, 50, 100) if steps <= last
    ]
    table = safety_tables.success_table(rows)
    assert table.lines[0][-1] == tables.Cell("50")


def test_methods_are_compared_on_the_same_tasks_of_the_seeds_that_both_have():
    rows = [
        row("two-way", seed=0, outcomes="1101"),
        row("two-way", seed=1, outcomes="1111"),
        row("uniform", seed=0, outcomes="1010"),
        row("consptm", seed=0),
        row("two-way", seed=0, steps=50, outcomes="1111"),
        row("uniform", seed=0, steps=50, outcomes="0010"),
        row("two-way", "first-failure", outcomes="0000"),
        row("uniform", "first-failure", outcomes="1110"),
    ]
    table = comparison_table(rows, "two-way", ("uniform", "consptm", "both"))
    assert table.heads == ["Method", "Policy", "Cleanup steps", "Over uniform", "Over dense (ConSPTM)"]
    cells = {(line[1].text, line[2].text): line[3:] for line in table.lines}
    nothing = tables.Cell(tables.NONE)
    assert cells == {
        ("belief", "initial"): [tables.Cell("+25.0", "[-47.3, +80.6]"), nothing],
        ("belief", "50"): [tables.Cell("+75.0", "[-1.6, +100.0]"), nothing],
        ("first-failure", "initial"): [tables.Cell("-75.0", "[-100.0, +1.6]"), nothing],
    }
    assert not comparison_table(rows, "uniform", ["both"]).lines


def test_a_lead_is_one_with_its_whole_interval():
    many = {"two-way": "1" * 40, "uniform": "1" * 38 + "00", "consptm": "10" * 20}
    rows = [row(method, steps=steps, outcomes=found) for method, found in many.items() for steps in (50, 90)]
    assert tally(rows, "two-way", "consptm", 60) == (1, 0, 0)
    assert tally(rows, "two-way", "consptm", 0) == (2, 0, 0) and tally(rows, "consptm", "two-way", 0) == (0, 0, 2)
    assert tally(rows, "two-way", "uniform", 0) == (0, 2, 0) and tally(rows, "two-way", "both", 0) == (0, 0, 0)


# -- figure data ----------------------------------------------------------------------------------------------------


def test_the_perceptual_check_orders_by_gap_and_knows_what_is_false():
    places = np.array([[0, 0], [0.5, 0], [3, 0], [0, 0.2]], np.float32)
    check = figure_data.Perceptual(np.array([[0.0], [2], [1], [9]], np.float32), 2.5, True)
    found = figure_data.passed(check, 0, places)
    assert found.rows.tolist() == [2, 1] and found.false.tolist() == [True, False]


@pytest.mark.parametrize("scope", ["neighbors", "memory"])
def test_the_two_way_check_is_the_one_that_building_makes(scope):
    random, merges = np.random.default_rng(0), 0
    for _ in range(20):
        table = np.maximum(random.uniform(0, 12, 7) + random.uniform(-2, 2, (7, 7)), 0).astype(np.float32)
        table = np.where(random.random((7, 7)) < 0.5, table.T, table)
        settings = {"tau_p": None, "max_dist": 9.0, "k": None, "scope": scope, "tau_a": random.uniform(1, 9)}
        nodes = random.permutation(7)[: random.integers(1, 5)]
        for reference, image in itertools.permutations(range(7), 2):
            standing = [reference, *np.setdiff1d(nodes, [reference, image]).tolist()]
            memory = sgm.SparseGraphicalMemory(sgm.TableDistance(table), **{**settings, "criterion": "none"})
            memory.extend(standing)
            merging = sgm.SparseGraphicalMemory(sgm.TableDistance(table), **settings)
            given = memory._nodes, memory._graph, memory._log
            merging._set_up(merging.distance, None, merging.settings, merging.policy, *given)
            check = figure_data.TwoWay(table, nodes, merging.settings)
            alike = image in figure_data.passed(check, reference, np.zeros((7, 2))).rows
            assert alike == (merging.add(image) == 0)  # the reference is the first node, and the first that passes
            merges += alike
    assert 50 < merges < 700


def test_an_image_without_neighbours_is_like_nothing():
    settings = sgm.SparseGraphicalMemory(sgm.TableDistance(np.zeros((1, 1))), max_dist=9.0).settings
    check = figure_data.TwoWay(np.full((3, 3), 10, np.float32), np.array([1, 2]), settings)
    assert not len(figure_data.passed(check, 0, np.zeros((3, 2))).rows)


def trace(success=True, cuts=(), plans=(0,), steps=60):
    told = [{"step": step, "u": 0, "v": 1, "length": length, "blocked": blocked} for step, length, blocked in cuts]
    made = [{"step": step} for step in plans]
    return {"success": success, "observations": [[0, 0, 0]] * steps, "plans": made, "cuts": told}


def test_the_episode_shown_is_a_success_with_one_blocked_edge_and_a_second_plan():
    best = trace(cuts=[(25, 1.6, True)], plans=(0, 25))
    others = [
        trace(),
        trace(False, [(25, 3.0, True)], (0, 25)),
        trace(cuts=[(25, 0.3, False)], plans=(0, 25)),
        trace(cuts=[(25, 1.6, True), (50, 1.6, True)], plans=(0, 25, 50)),
        trace(cuts=[(5 * number, 1.0, True) for number in range(1, 9)], plans=range(0, 45, 5)),
    ]
    assert max([*others, best], key=figure_data._clarity) is best
    assert max(others[:2], key=figure_data._clarity) is others[1]


def test_a_cut_is_told_with_its_length_and_whether_a_wall_is_in_the_way(layout):
    places = np.array([[0.9, 0.9, 0], [0.9, 1.1, 0], [2.7, 2.7, 0]], np.float32)  # through the corner of four rooms
    walked = SimpleNamespace(asdict=lambda: {"cuts": [{"step": 1, "u": 0, "v": 1}, {"step": 2, "u": 0, "v": 2}]})
    near, far = figure_data._told(walked, places, layout)["cuts"]
    assert near["length"] == pytest.approx(0.2) and not near["blocked"]
    assert far["length"] == pytest.approx(np.hypot(1.8, 1.8)) and far["blocked"]


def test_evidence_is_out_of_date_when_a_better_method_has_come(copy):
    home = copy / HOME
    (home / "two-way" / "choice.json").write_text("{}")
    assert figure_data.sources(home) == ["", "two-way", "two-way"] and figure_data.is_written(home)
    (home / "both").mkdir()
    (home / "both" / "choice.json").write_text("{}")
    assert not figure_data.is_written(home)
    (home / "images.npz").unlink()
    assert not figure_data.is_written(home)


# -- figures -----------------------------------------------------------------------------------------------------


def test_figures_say_what_they_cannot_draw(tmp_path, layout):
    with pytest.raises(sgm.InputError, match="1 views from 0 poses"):
        figures.draw_rooms(tmp_path / "x.png", layout, np.zeros((1, 8, 8, 3)))
    with pytest.raises(sgm.SGMError, match="no method was evaluated"):
        figures.draw_reasons(tmp_path / "x.png", [])
    with pytest.raises(sgm.InputError, match="expected finite"):
        map_plots.memory_stages(tmp_path / "x.png", None, [[np.nan, 0]], [])


@pytest.mark.usefixtures("undrawn")
def test_an_episode_without_a_failed_edge_is_not_shown(copy):
    path = copy / HOME / "episode.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cuts": []}))
    assert "in which an edge failed" in not_drawn(write_report(copy).read_text())["episode-layout0"]


def test_nodes_outside_the_largest_strongly_connected_component_are_known():
    source, target = np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3])
    assert largest_component(5, source, target).tolist() == [True, True, True, False, False]
