"""A run folder becomes a page that says all of it and needs nothing else."""

from __future__ import annotations

import json
import re
import shutil
import sys

import numpy as np
import pytest

import sgm
from sgm.benchmarks import label, load, plots, tables
from sgm.benchmarks import page as pages
from sgm.benchmarks.point.report import console
from sgm.navigation import wilson

pytest.importorskip("matplotlib")

ENVIRONMENT = "point:FourRooms-thin"
SETTINGS = {"maze": "FourRooms", "resize": 1, "thin": True, "maze_seed": 0, "difficulty": 0.95, "note": "<b>&"}


def write_report(folder):
    return pages.write_report(load("point"), folder)


def markdown(rows):
    return tables.markdown(console(rows)[0])


class Euclid:
    """Straight-line distance, a unit square being ten steps wide."""

    def embed(self, observations):
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return 10 * np.linalg.norm(starts[:, None] - goals, axis=-1).astype(np.float32)


def row(method="sorb+sgm", seed=0, phase="initial", steps=0, episodes=100, successes=5, **other):
    memory = method.startswith("sorb")
    return {
        "environment": ENVIRONMENT,
        "method": method,
        "seed": seed,
        "phase": phase,
        "cleanup_steps": steps,
        "episodes": episodes,
        "successes": successes,
        "success_rate": successes / episodes,
        "ci95": list(wilson(successes, episodes)),
        "mean_steps": 121.0 if successes else None,
        "nodes": 201 if memory else None,
        "edges": 1797 if memory else None,
        "seconds_per_action": 5.9e-5,
        "reasons": {"time": episodes - successes},
        "largest_part": 199 if memory else None,
        **other,
    }


def some_rows():
    rows = []
    for seed in (0, 1):
        for method, final in (("sorb", 31), ("sorb+sgm", 99)):
            rows += [row(method, seed), row(method, seed, "filtered", successes=11)]
            rows += [row(method, seed, "cleaned", 1000 * n, successes=final - 7 * (2 - n)) for n in (1, 2)]
        rows += [row(method, seed, successes=0) for method in ("d3pg", "ddpg+her", "sac+her")]
    return rows


def write_results(folder, rows, **other):
    content = {
        "schema": 1,
        "command": "sgm run point --seeds 0 1 --out <here>",
        "date": "2025-01-02T03:04:05+00:00",
        "versions": {"python": "3.99.1"},
        "machine": "Abacus, 2 cores",
        "settings": SETTINGS,
        "rows": rows,
        **other,
    }
    (folder / "results.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_results(folder, some_rows())
    for method in ("sorb", "sorb+sgm"):
        memory = sgm.SparseGraphicalMemory(Euclid(), tau_p=0.5, tau_a=1.0, max_dist=4.0, k=4)
        seen = np.random.default_rng(0).uniform(0, 1, (60, 2))
        memory.extend(seen, attributes={"position": 11 * seen})
        u, v = (int(ends[0]) for ends in memory.edges()[:2])
        memory.record(u, v, False)
        home = folder / "seed0" / method
        home.mkdir(parents=True)
        memory.save(home / "memory.sgm")
    trace = {
        "goal": [0.9, 0.9],
        "observations": [[0.1, 0.1], [0.2, 0.2]],
        "waypoints": [u, v],
        "success": True,
        "plans": [{"step": 0, "nodes": [u, v]}, {"step": 1, "nodes": [v]}],
        "cuts": [{"step": 1, "u": u, "v": v}],
    }
    (home / "episode.json").write_text(json.dumps(trace))
    return folder


@pytest.fixture(scope="module")
def page(run_folder):
    return write_report(run_folder).read_text(encoding="utf-8")


def test_the_page_names_every_method_and_the_paper(page):
    for method in ("sorb", "sorb+sgm", "d3pg", "ddpg+her", "sac+her"):
        assert f"<td>{label('point', method)}</td>" in page
    assert "28.0 ± 6.3 %" in page and "100.0 ± 0.1 %" in page and page.count("<td>near zero</td>") == 3


def test_the_page_has_every_seed_and_every_pooled_number(page):
    for item in tables.pool(some_rows()):
        low, high = item.ci95
        assert f"<td>{100 * item.rate:.1f} %<small>{100 * low:.1f}–{100 * high:.1f}</small></td>" in page
    for each in some_rows():
        if each["nodes"]:
            assert f"<td>{100 * each['success_rate']:.1f} %</td>" in page
    for number in ("2 × 100", "1,797", "201", "199", "121", "0.059", "2,000"):
        assert f"<td>{number}</td>" in page


def test_the_page_says_how_to_rerun_and_what_made_it(page):
    assert "sgm run point --seeds 0 1 --out &lt;here&gt;" in page
    assert "&lt;b&gt;&amp;" in page and "<b>" not in page
    assert "3.99.1" in page and "Abacus, 2 cores" in page and "2025-01-02" in page


def test_the_page_needs_nothing_else(page):
    sources = re.findall(r'(?:src|href)\s*=\s*"([^"]{0,30})', page)
    assert len(sources) == 4 and all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in re.sub(r"base64,[^\"]*", "", page)
    assert "<script" not in page and "url(" not in page and "@import" not in page


def test_the_figures_are_files_too(run_folder, page):
    names = {path.name for path in (run_folder / "figures").iterdir()}
    assert names == {"success.png", "memory-sorb.png", "memory-sorb-sgm.png", "episode-sorb-sgm.png"}
    assert "Not drawn" not in page
    assert all(path.stat().st_size <= plots.LARGEST_FILE for path in (run_folder / "figures").iterdir())


def test_optional_parts_may_be_missing(tmp_path):
    rows = some_rows()
    for each in rows:
        del each["reasons"], each["largest_part"]
    (tmp_path / "results.json").write_text(json.dumps({"schema": 1, "rows": rows}))
    assert "SoRB + SGM" in write_report(tmp_path).read_text()


def test_without_matplotlib_the_page_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    write_results(tmp_path, some_rows())
    page = write_report(tmp_path).read_text()
    assert "Not drawn: success.png, because figures need matplotlib" in page and "[viz]" in page


def test_a_run_without_any_row_yet_has_a_page(tmp_path):
    write_results(tmp_path, [])
    assert "sgm run point" in write_report(tmp_path).read_text()


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"goal": [1], "observations": [], "plans": []}'])
def test_a_damaged_episode_is_named_and_the_rest_is_drawn(run_folder, tmp_path, content):
    home = tmp_path / "seed0" / "sorb"
    home.mkdir(parents=True)
    write_results(tmp_path, [row("sorb"), row("sorb", phase="filtered")])
    (home / "memory.sgm").write_bytes((run_folder / "seed0" / "sorb" / "memory.sgm").read_bytes())
    (home / "episode.json").write_text(content)
    page = write_report(tmp_path).read_text()
    assert "Not drawn: episode-sorb.png, because" in page and page.count("Not drawn") == 1


def test_a_damaged_memory_is_named(tmp_path):
    (tmp_path / "seed0" / "sorb").mkdir(parents=True)
    (tmp_path / "seed0" / "sorb" / "memory.sgm").write_text("no memory")
    write_results(tmp_path, [row("sorb")])
    assert "Not drawn: memory-sorb.png, because" in write_report(tmp_path).read_text()


def test_memories_of_version_1_are_said_to_have_no_positions_in_one_note(run_folder, tmp_path):
    shutil.copytree(run_folder / "seed0", tmp_path / "seed0")
    write_results(tmp_path, some_rows())
    for path in tmp_path.glob("seed0/*/memory.sgm"):
        memory = sgm.SparseGraphicalMemory.load(path, None)
        del memory.attributes["position"]
        memory.save(path)
    page = write_report(tmp_path).read_text()
    assert page.count("has no attribute") == 1
    assert "Not drawn: memory-sorb.png, memory-sorb-sgm.png, episode-sorb-sgm.png, because the memory has no" in page


def test_figures_are_shrunk_to_what_a_repository_bears(tmp_path):
    rows, columns = np.mgrid[:600, :800]
    busy = np.stack([rows * columns, rows**2 + columns**2, 7 * rows + columns], axis=-1).astype(np.uint8)
    figure, axes = plots.pyplot().subplots(figsize=(7, 5))
    plots.draw_image(axes, busy)
    figure.savefig(tmp_path / "large.png", dpi=150)
    plots.save(figure, tmp_path / "small.png")
    large, small = ((tmp_path / name).read_bytes() for name in ("large.png", "small.png"))
    assert len(large) > plots.LARGEST_FILE >= len(small) and small.startswith(b"\x89PNG")


def test_seeds_are_pooled_by_episode():
    rows = [
        row(seed=0, episodes=100, successes=10, mean_steps=50.0, nodes=200, seconds_per_action=1e-4),
        row(seed=1, episodes=300, successes=90, mean_steps=150.0, nodes=210, seconds_per_action=3e-4),
        row(seed=2, episodes=100, successes=0, mean_steps=None, nodes=220, seconds_per_action=2e-4),
    ]
    (pooled,) = tables.pool(rows)
    assert (pooled.seeds, pooled.trials, pooled.successes) == (3, 500, 100)
    assert pooled.ci95 == wilson(100, 500)
    assert pooled.mean_steps == pytest.approx(140.0)
    assert pooled.mean("nodes") == 210 and pooled.mean("seconds_per_action") == pytest.approx(2e-4)
    assert pooled.reasons == {"time": 400}
    assert "| 3 seeds, 500 in all | 20.0 % [16.7–23.7] |" in markdown(rows)


def test_the_last_cleanup_is_the_longest_that_most_seeds_have_reached():
    rows = [row(seed=seed, phase="cleaned", steps=1000, successes=90) for seed in (0, 1)]
    rows.append(row(seed=0, phase="cleaned", steps=2000, successes=100))
    assert "| 90.0 % [85.1–93.4] | 1,000 |" in markdown(rows)


def test_tables_have_a_line_for_each_method_and_the_same_columns():
    lines = markdown(some_rows()).splitlines()
    assert len(lines) == 2 + 5 and len({line.count("|") for line in lines}) == 1
    shown = tables.console(console(some_rows())).splitlines()
    assert len(shown) == 2 + 5 and shown[0].startswith("Method") and "99.0 % [96.4–99.7]" in shown[3]


def test_other_mazes_are_not_compared_with_the_paper():
    rows = [{**each, "environment": "point:U-thick"} for each in some_rows()]
    assert "Paper" not in markdown(rows)
    both = markdown(rows + some_rows())
    assert both.startswith("| Environment |") and both.count("28.0 ± 6.3 %") == 1


@pytest.mark.parametrize("schema", [2, "1", None])
def test_another_schema_is_refused_with_what_is_accepted(tmp_path, schema):
    write_results(tmp_path, some_rows(), schema=schema)
    with pytest.raises(sgm.SGMError, match=rf"has schema {schema!r}; this version of sgm reads schema 1"):
        write_report(tmp_path)


def test_what_is_no_run_folder_is_refused(tmp_path):
    with pytest.raises(sgm.SGMError, match="holds no results.json"):
        write_report(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(sgm.SGMError, match="is not JSON"):
        write_report(tmp_path)
    write_results(tmp_path, [{"method": "sorb"}])
    with pytest.raises(sgm.SGMError, match="row 0 of .* has no environment, seed, phase"):
        write_report(tmp_path)
    write_results(tmp_path, [row(phase="final")])
    with pytest.raises(sgm.SGMError, match="phase 'final'; accepted: initial, filtered, cleaned"):
        write_report(tmp_path)
