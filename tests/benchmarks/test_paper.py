"""The tables of the paper are assembled from run folders, whatever is there and whatever is missing."""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from pathlib import Path

import pytest

import sgm
from sgm import cli
from sgm.benchmarks import BENCHMARKS, paper, paper_tables
from sgm.benchmarks.runs import default_folders, find
from sgm.navigation import wilson

ROOT = Path(__file__).parents[2]
POINT, DOOM, SAFETY = "point:FourRooms-thin", "doom:maze0", "safety:rooms0"


def row(environment, method, successes, seed=0, steps=0, episodes=100, **other):
    return {
        "environment": environment,
        "method": method,
        "seed": seed,
        "phase": "cleaned" if steps else "initial",
        "cleanup_steps": steps,
        "episodes": episodes,
        "successes": successes,
        "mean_steps": 50.0,
        "nodes": 200,
        "edges": 900,
        "seconds_per_action": 1e-4 * (1 + seed),
        **other,
    }


def levelled(method, easy, medium, hard, **other):
    by_name = {"easy": easy, "medium": medium, "hard": hard}
    levels = {name: {"episodes": 100, "successes": won, "mean_steps": 9.0} for name, won in by_name.items()}
    return row(DOOM, method, easy + medium + hard, episodes=300, levels=levels, **other)


def criterion(method, before, after, policy="first-failure", agent="plain", seed=0, environment=SAFETY):
    common = {"policy": policy, "agent": agent, "layout": 0}
    return [row(environment, method, before, seed, **common), row(environment, method, after, seed, 2000, **common)]


def put(folder, rows, schema=1, command="sgm run something", **settings):
    folder.mkdir(parents=True, exist_ok=True)
    content = {"schema": schema, "command": command, "machine": "Abacus, 2 cores", "settings": settings, "rows": rows}
    (folder / "results.json").write_text(json.dumps(content))
    return folder


def lines_of(printed, part=0):
    """The lines of a table, each as column to text; a column that comes twice counts from the left: Paper, Paper 2."""
    table = printed.parts[part]
    heads = []
    for head in table.heads:
        heads.append(head if head not in heads else f"{head} 2")
    return [dict(zip(heads, (cell.text for cell in line), strict=True)) for line in table.lines]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing is found unless a test puts it there."""
    monkeypatch.chdir(tmp_path)


def some_point_rows():
    rows = []
    for seed, successes in enumerate((90, 96)):
        rows += [row(POINT, "sorb+sgm", 1, seed), row(POINT, "sorb+sgm", successes, seed, 400_000)]
        rows += [row(POINT, "sorb", 1, seed), row(POINT, "sorb", 20, seed, 400_000)]
    return rows


# -- table 1 -----------------------------------------------------------------------------------------------------


def test_table_1_pools_seeds_and_says_how_far_they_are_apart(tmp_path):
    put(tmp_path / "a", some_point_rows(), policy="first-failure")
    line = lines_of(paper_tables.main_results(find([tmp_path])))[1]
    low, high = wilson(186, 200)
    error = statistics.stdev([90, 96]) / math.sqrt(2)
    assert line["Method"] == "SoRB + SGM"
    assert line["Success"] == f"93.0 % [{100 * low:.1f}–{100 * high:.1f}]"
    assert line["Mean over seeds"] == f"93.0 ± {error:.1f} %"
    assert line["Seeds × episodes"] == "2 × 100"
    assert line["Cleanup policy"] == "first-failure"
    assert line["Cleanup steps"] == line["Paper's steps"] == "400,000"
    assert line["Paper"] == "100.0 ± 0.1 %"


def test_table_1_has_all_six_rows_when_nothing_was_run_and_says_what_makes_them(tmp_path):
    printed = paper_tables.main_results(find([tmp_path]))
    lines = lines_of(printed)
    assert [line["Method"] for line in lines] == [
        "SoRB",
        "SoRB + SGM",
        "SPTM",
        "SPTM + SGM",
        "ConSPTM",
        "ConSPTM + SGM, two-way",
        "ConSPTM + SGM, two-way and perceptual",
    ]
    assert {line["Success"] for line in lines} == {"–"}
    assert [line["Paper"] for line in lines][-1] == "92.9 ± 1.4 %"
    for name in ("point", "doom", "safety"):
        assert paper_tables.command(name) in printed.console()


PAPERS = [name for name in BENCHMARKS if paper_tables.command(name)]  # OGBench is none of the paper's


@pytest.mark.parametrize("command", [paper_tables.command(name) for name in PAPERS])
def test_the_commands_that_make_what_is_missing_are_accepted(command):
    given = shlex.split(command)[1:]
    cli._parser(given).parse_args(given)


def test_table_1_takes_the_papers_policy_and_sends_to_table_3_for_others(tmp_path):
    rows = [*criterion("consptm", 10, 60), *criterion("both", 20, 80), *criterion("both", 20, 90, "belief")]
    rows += criterion("both", 20, 85, agent="persistent")
    put(tmp_path / "s", rows)
    printed = paper_tables.main_results(find([tmp_path]))
    mine = [line for line in lines_of(printed) if line["Method"] == "ConSPTM + SGM, two-way and perceptual"]
    assert {(line["Cleanup policy"], line["Success"][:6]) for line in mine} == {
        ("first-failure", "80.0 %"),
        ("first-failure, persistent agent", "85.0 %"),
    }
    assert "Table 3" in printed.console()


def test_a_policy_that_is_not_the_papers_is_shown_if_there_is_no_other(tmp_path):
    put(tmp_path, criterion("both", 20, 90, "belief"))
    line = lines_of(paper_tables.main_results(find([tmp_path])))[-1]
    assert line["Cleanup policy"] == "belief"


def test_an_unfinished_run_shows_the_longest_cleanup_that_most_seeds_have_reached(tmp_path):
    rows = [*some_point_rows(), row(POINT, "sorb+sgm", 100, 0, 500_000)]
    put(tmp_path, rows)
    assert lines_of(paper_tables.main_results(find([tmp_path])))[1]["Cleanup steps"] == "400,000"


# -- several folders ---------------------------------------------------------------------------------------------


def test_of_two_runs_the_one_with_more_episodes_is_used_and_both_are_named(tmp_path):
    put(tmp_path / "few", [row(POINT, "sorb", 5, steps=400_000, episodes=10)])
    put(tmp_path / "many", [row(POINT, "sorb", 40, steps=400_000)])
    printed = paper_tables.main_results(find([tmp_path]))
    assert lines_of(printed)[0]["Success"].startswith("40.0 %")
    assert f"{tmp_path / 'many'} is used instead of {tmp_path / 'few'}" in " ".join(printed.notes)


def test_of_two_folders_the_one_given_first_is_used(tmp_path):
    few = put(tmp_path / "few", [row(POINT, "sorb", 5, steps=400_000, episodes=10)])
    many = put(tmp_path / "many", [row(POINT, "sorb", 40, steps=400_000)])
    assert lines_of(paper_tables.main_results(find([few, many])))[0]["Success"].startswith("50.0 %")
    assert lines_of(paper_tables.main_results(find([many, few])))[0]["Success"].startswith("40.0 %")


def test_a_folder_given_twice_counts_once(tmp_path):
    put(tmp_path / "a", some_point_rows())
    found = find([tmp_path, tmp_path / "a"])
    assert not found.unused


def test_a_run_with_the_papers_settings_goes_before_a_larger_one_with_others(tmp_path):
    put(tmp_path / "other", [row(POINT, "sorb+sgm", 900, steps=400_000, episodes=1000)], criterion="perceptual")
    assert "criterion = perceptual" in " ".join(paper_tables.main_results(find([tmp_path])).notes)
    put(tmp_path / "paper", [row(POINT, "sorb+sgm", 40, steps=400_000)], criterion="two-way")
    printed = paper_tables.main_results(find([tmp_path]))
    assert lines_of(printed)[1]["Success"].startswith("40.0 %")
    assert "criterion = perceptual" not in " ".join(printed.notes)


def test_lines_from_runs_with_different_settings_say_so(tmp_path):
    put(tmp_path / "a", [row(POINT, "sorb", 40, steps=400_000)], iterations=10, seeds=[0])
    put(tmp_path / "b", [row(POINT, "sorb+sgm", 90, steps=400_000)], iterations=20, seeds=[1])
    notes = " ".join(paper_tables.main_results(find([tmp_path])).notes)
    assert "differ in iterations." in notes


def test_other_mazes_are_not_the_papers_point_env(tmp_path):
    put(tmp_path, [row("point:U-thin", "sorb", 99, steps=400_000)])
    assert lines_of(paper_tables.main_results(find([tmp_path])))[0]["Success"] == "–"


def test_runs_come_before_the_results_of_the_repository():
    assert default_folders() == []
    put(Path("results/point"), some_point_rows())
    assert default_folders() == [Path("results")]
    Path("runs").mkdir()
    assert default_folders() == [Path("results")]
    put(Path("runs/point"), some_point_rows())
    assert default_folders() == [Path("runs")]
    assert "--runs results" in paper_tables.show([1])
    assert "--runs results" not in paper_tables.show([1], [Path("results")])


# -- table 2 -----------------------------------------------------------------------------------------------------


def test_table_2_has_each_level_with_an_interval_and_the_papers_beside(tmp_path):
    rows = [
        levelled("sptm+sgm", 80, 60, 40),
        levelled("sptm+sgm", 90, 70, 30, steps=54_000),
        levelled("random", 50, 20, 5),
    ]
    rows += [levelled("sptm+sgm", 80, 60, 50, seed=1)]
    put(tmp_path, rows)
    printed = paper_tables.doom_levels(find([tmp_path]))
    lines = {(line["Method"], line["Cleanup steps"]): line for line in lines_of(printed)}
    low, high = wilson(90, 100)
    after = lines["SPTM + SGM", "54,000"]
    assert after["Easy"] == f"90.0 % [{100 * low:.1f}–{100 * high:.1f}]"
    assert after["Paper: easy / medium / hard"] == "88.0 / 52.0 / 26.0"
    assert after["Paper: overall"] == "55.3 %"
    assert lines["SPTM + SGM", "0"]["Hard"].startswith("45.0 %")
    assert lines["SPTM + SGM", "0"]["Seeds × episodes"] == "2 × 300"
    assert lines["SPTM + SGM", "114,000"]["Overall"] == "–"
    assert lines["SPTM + SGM", "114,000"]["Paper: overall"] == "60.7 %"
    assert "SPTM + SGM after 114,000 steps in doom:maze0" in printed.console()


def test_table_2_has_a_part_for_every_map(tmp_path):
    put(tmp_path / "a", [levelled("random", 50, 20, 5)])
    put(tmp_path / "b", [{**levelled("random", 40, 20, 5), "environment": "doom:other"}])
    assert [table.title for table in paper_tables.doom_levels(find([tmp_path])).parts] == ["doom:maze0", "doom:other"]


def test_table_2_says_how_much_was_explored_and_asks_for_the_papers_methods_only_where_one_of_them_was_run(tmp_path):
    put(tmp_path / "runs" / "a", [levelled("sptm+sgm", 80, 50, 20)], buffer_episodes=100, buffer_steps=200)
    put(tmp_path / "runs" / "b", [levelled("verified", 90, 85, 80)], buffer_episodes=200, buffer_steps=200)
    elsewhere = [{**levelled("verified", 70, 60, 50), "environment": "doom:maze7"}]
    put(tmp_path / "runs" / "c", elsewhere, buffer_episodes=300, buffer_steps=200)
    printed = paper_tables.doom_levels(find([tmp_path / "runs"]))
    first, second = (lines_of(printed, part) for part in (0, 1))
    explored = {line["Method"]: line["Explored"] for line in first if line["Overall"] != "–"}
    assert explored == {"SPTM + SGM": "20,000", "ours, verified": "40,000"}
    assert len(first) > 6 and [(line["Method"], line["Explored"]) for line in second] == [("ours, verified", "60,000")]


def test_rows_without_levels_have_their_overall_success_only(tmp_path):
    put(tmp_path, [row(DOOM, "sptm", 120, episodes=300)])
    line = next(line for line in lines_of(paper_tables.doom_levels(find([tmp_path]))) if line["Method"] == "SPTM")
    assert line["Easy"] == "–" and line["Overall"].startswith("40.0 %")


# -- table 3 -----------------------------------------------------------------------------------------------------


def test_table_3_has_criteria_before_and_after_cleanup_for_each_policy_and_layout(tmp_path):
    rows = [*criterion("two-way", 30, 90), *criterion("two-way", 34, 94, seed=1), *criterion("uniform", 10, 50)]
    rows += [*criterion("two-way", 30, 80, "belief"), *criterion("both", 31, 91, environment="safety:rooms1")]
    put(tmp_path, rows)
    printed = paper_tables.ablation(find([tmp_path]))
    assert [table.title for table in printed.parts] == ["safety:rooms0", "safety:rooms1"]
    lines = {(line["Cleanup policy"], line["Method"]): line for line in lines_of(printed)}
    both = lines["first-failure", "two-way"]
    assert both["W/o cleanup"].startswith("32.0 % [") and both["W/ cleanup"].startswith("92.0 % [")
    assert both["Mean over seeds"] == both["Mean over seeds 2"].replace("92", "32") == "32.0 ± 2.0 %"
    assert (both["Paper"], both["Paper 2"]) == ("38.2 ± 3.8 %", "92.9 ± 1.2 %")
    assert both["Cleanup steps"] == "2,000"
    assert lines["belief", "two-way"]["W/ cleanup"].startswith("80.0 %")
    assert lines["–", "incoming"]["W/ cleanup"] == "–"
    assert lines_of(printed, 1)[0]["Method"] == "two-way and perceptual"


def test_what_was_evaluated_before_cleanup_stands_for_every_policy(tmp_path):
    before, after = criterion("two-way", 30, 90)
    del before["policy"]
    put(tmp_path, [before, after])
    mine = [line for line in lines_of(paper_tables.ablation(find([tmp_path]))) if line["Method"] == "two-way"]
    assert len(mine) == 1
    assert mine[0]["W/o cleanup"].startswith("30.0 %") and mine[0]["W/ cleanup"].startswith("90.0 %")


def test_table_3_prints_the_papers_numbers_when_nothing_was_run(tmp_path):
    lines = lines_of(paper_tables.ablation(find([tmp_path])))
    assert [line["Method"] for line in lines] == list(paper.ABLATION)
    assert lines[0]["Paper 2"] == "64.6 ± 3.4 %"


# -- table 4 -----------------------------------------------------------------------------------------------------


def put_bench(folder, sgm_seconds=0.0005):
    folder.mkdir(parents=True)
    lines = [
        {"method": "sorb+sgm", "nodes": 209, "reference_s": 0.002, "ours_s": sgm_seconds},
        {"method": "sorb", "nodes": 1000, "reference_s": 0.006, "ours_s": 0.00025},
    ]
    sections = {"Other": [{"what": 1}], "Time to take an action, single agent": lines}
    (folder / "bench.json").write_text(json.dumps({"command": "python -m speed.x", "sections": sections}))


def test_table_4_has_times_and_their_ratio(tmp_path):
    put(tmp_path / "point", some_point_rows())
    put_bench(tmp_path / "speed")
    printed = paper_tables.time_per_action(find([tmp_path]))
    sorb, sparse, ratio = lines_of(printed)
    assert (sorb["One agent, ms"], sparse["One agent, ms"], ratio["One agent, ms"]) == ("0.25", "0.50", "0.50")
    assert ratio["Reference pattern, ms"] == "3.0"
    assert sorb["In a batch, ms"] == "0.15 ± 0.071"
    assert (sorb["Paper, ms"], sparse["Paper, ms"], ratio["Paper, ms"]) == ("550 ± 220", "77 ± 4", "7.1")
    assert "python -m speed.x" in printed.console()


def test_the_speed_of_the_repository_is_used_where_runs_have_none(tmp_path):
    put(tmp_path / "runs", some_point_rows())
    put_bench(tmp_path / "results" / "navigation")
    assert lines_of(paper_tables.time_per_action(find([Path("runs")])))[0]["One agent, ms"] == "0.25"


def test_table_4_without_measurements_says_how_to_measure(tmp_path):
    printed = paper_tables.time_per_action(find([tmp_path]))
    assert lines_of(printed)[0]["One agent, ms"] == "–"
    assert "python -m speed.navigation" in printed.console()


# -- what cannot be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["results.json", "bench.json"])
def test_a_file_that_is_not_json_is_a_clear_error(tmp_path, name, capsys):
    (tmp_path / name).write_text("{")
    assert cli.main(["table", "1", "--runs", str(tmp_path)]) == 2
    shown = capsys.readouterr().err
    assert name in shown and "not JSON" in shown and "--runs" in shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"successes": 101}, "no more successes than episodes"),
        ({"episodes": 0}, "episodes 0"),
        ({"seed": None}, "seed None"),
        ({"phase": "later"}, "phase 'later'"),
    ],
)
def test_a_row_that_cannot_be_counted_is_a_clear_error(tmp_path, change, said):
    put(tmp_path, [{**row(POINT, "sorb", 3), **change}])
    with pytest.raises(sgm.SGMError, match=f"row 0 of .*results.json.*{said}"):
        find([tmp_path])


@pytest.mark.parametrize("rows", [None, 3, {"a": 1}])
def test_results_without_rows_are_a_clear_error(tmp_path, rows):
    put(tmp_path, rows)
    with pytest.raises(sgm.SGMError, match="no list of rows"):
        find([tmp_path])


def test_rows_that_cannot_be_told_apart_are_not_mixed(tmp_path):
    put(tmp_path, [row(POINT, "sorb", 3), row(POINT, "sorb", 4)])
    with pytest.raises(sgm.SGMError, match="cannot be told apart"):
        find([tmp_path])


def test_results_of_an_unknown_schema_are_passed_over_aloud(tmp_path):
    put(tmp_path, [], schema=7)
    assert "schema 7" in paper_tables.main_results(find([tmp_path])).console()


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path, capsys):
    assert cli.main(["table", "2", "--runs", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a folder" in capsys.readouterr().err


# -- printed, and in a page --------------------------------------------------------------------------------------


def test_columns_are_aligned_and_markdown_has_as_many_cells_in_every_line(tmp_path, capsys):
    put(tmp_path / "a", some_point_rows())
    assert cli.main(["table", "1", "--runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Table 1: main results"
    rule = next(line for line in shown if line.startswith("──"))
    body = shown[shown.index(rule) + 1 :][: len(paper.MAIN)]
    assert {len(line) for line in body} == {len(rule)}
    assert "Wilson 95 % interval" in " ".join(shown)
    assert cli.main(["table", "1", "--markdown", "--runs", str(tmp_path)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == len(paper.MAIN) + 2 and len({line.count("|") for line in lines}) == 1


def test_without_a_number_all_four_tables_are_printed(tmp_path, capsys):
    assert cli.main(["table", "--runs", str(tmp_path)]) == 0
    assert re.findall(r"^Table (\d):", capsys.readouterr().out, re.MULTILINE) == ["1", "2", "3", "4"]


def test_a_page_is_written_between_its_markers_and_stays_when_written_again(tmp_path, capsys):
    put(tmp_path / "a", some_point_rows())
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table 4 -->\nold\n<!-- end -->\nbetween\n<!-- table 1 -->\n<!-- end -->\nafter\n")
    assert cli.main(["table", "--write", str(page), "--runs", str(tmp_path)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- table 4 -->\n\n| Method") and text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text and "\nbetween\n" in text
    assert paper_tables.filled(text, [tmp_path]) == text


@pytest.mark.parametrize(
    "page",
    [
        "nothing",
        "<!-- table 1 -->\n",
        "<!-- table 1 -->\n<!-- table 2 -->\n<!-- end -->",
        "<!-- table 9 -->\n<!-- end -->",
    ],
)
def test_a_page_without_whole_places_is_left_as_it_is(tmp_path, page):
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(sgm.SGMError, match="<!-- end -->"):
        paper_tables.write(path, [tmp_path])
    assert path.read_text() == page


def test_the_reproduction_page_agrees_with_the_results_of_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = Path("docs/reproduction.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- table (\d) -->", page)) == ["1", "2", "3", "4"]
    message = "docs/reproduction.md is not of results/: run sgm table --write docs/reproduction.md"
    assert paper_tables.filled(page, [Path("results")]) == page, message


def test_every_file_that_the_reproduction_page_links_to_exists():
    page = ROOT / "docs" / "reproduction.md"
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


# -- one set of numbers ------------------------------------------------------------------------------------------


def test_the_rows_of_two_tables_of_the_paper_agree():
    for row in paper.MAIN:
        if row.benchmark == "doom":
            assert paper.LEVELS[row.method, row.cleanup_steps or 0][-1].value == row.success.value
    assert paper.ABLATION["two-way"][1].value == paper.main_row("safety", "two-way").success.value


def test_what_reports_quote_has_the_spread_of_table_1():
    assert paper.doom_overall("sptm+sgm", 114_000).text() == "60.7 ± 4.0 %"
    assert paper.doom_overall("sptm+sgm", 54_000).text() == "55.3 %"
    assert paper.doom_overall("ours", 54_000) is None
    assert paper.final("point", "sorb") == ((400_000, 0.28),) and paper.final("doom", "sptm") == ()
    assert paper.ablation("consptm") == (None, paper.Quoted(68.2, 4.1))
