"""Numbers that pages quote are those of results/; tests/test_docs.py has the tables of the benchmarks' own pages."""

from __future__ import annotations

import json
import math
import re

import pytest

from tests.test_docs import ROOT

RESULTS = ROOT / "results"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(name: str, header: str) -> list[list[str]]:
    """The rows below a header of a page, as cells without marks."""
    lines = page(name).split(header, 1)[1].splitlines()[2:]
    rows = [line for line in lines[: lines.index("")] if line.startswith("|")]
    return [[re.sub(r"[*`]", "", cell).strip() for cell in row.strip("|").split(" | ")] for row in rows]


def sections(folder: str) -> dict[str, list[dict]]:
    """What a program of speed/ measured, by heading."""
    return json.loads((RESULTS / folder / "bench.json").read_text())["sections"]


def rows(folder: str) -> list[dict]:
    """All rows that a program of speed/ measured."""
    return [row for part in sections(folder).values() for row in part]


def is_printed(value: float, text: str) -> bool:
    """Whether a page may print a value so: rounded to the digits that it shows; zeros at the end may be rounded too."""
    number = text.replace(",", "")
    decimals = len(number.partition(".")[2])
    step = 10.0**-decimals if decimals or not number.endswith("0") else 10.0 ** (len(number) - len(number.rstrip("0")))
    return abs(float(number) - value) <= step / 2 + 1e-9


def test_tables_about_verification():
    found = {
        (row["environment"], row["own motion"]): row
        for name in ("doom", "safety")
        for row in rows(f"verification/{name}")
    }
    names = {"ViZDoom, maze": ("doom:maze", "dead reckoning"), "SafetyGym, layout": ("safety:rooms", "odometry")}

    def measured(label: str) -> dict:
        (prefix, (world, motion)) = next((each, pair) for each, pair in names.items() if label.startswith(each))
        return found[world + label[len(prefix) + 1], "fitted motion" if "fitted" in label else motion]

    cues = ["AUC distance", "AUC surroundings", "AUC heading", "AUC place", "AUC together"]
    shares = ["true, %", "estimated, %", "removed, %", "true ones kept, %", "false after, %"]
    for header, columns in (("| | the distance | surroundings", cues), ("| | true edges | estimated", shares)):
        printed = table("docs/verification.md", header)
        assert len(printed) == len(found) == 6
        for label, *cells in printed:
            values = [measured(label)[column] for column in columns]
            assert all(is_printed(value, cell.removesuffix(" %")) for value, cell in zip(values, cells, strict=True)), (
                label
            )


def test_the_table_about_learned_distances():
    found: dict[str, list[dict]] = {}
    for row in rows("distances"):
        found.setdefault(row["distance"], []).append(row)
    printed = table("docs/own-distance.md", "| | false at 90 % recall, % |")
    columns = ["false_at_90_recall", "rank_correlation", "noise_steps", "training_seconds", "table_ns_a_pair"]
    assert len(printed) == len(found) == 5
    for label, *cells in printed:
        measured = found[label.replace(', head="iqe"', ", iqe")]
        for column, cell in zip(columns, cells, strict=True):
            seeds = cell.split(", ")
            assert len(seeds) == len(measured)
            assert all(is_printed(row[column], text) for row, text in zip(measured, seeds, strict=True)), (
                label,
                column,
            )


def test_speed_ups_and_times_on_the_page_about_speed_were_measured():
    text = page("docs/speed.md")
    ratios = [
        row["ratio"] for name in ("memory", "d3pg", "navigation", "planning") for row in rows(name) if "ratio" in row
    ]
    printed = re.findall(r"(\d[\d.,]*) ×(?! \d)", text)
    assert len(printed) >= 20
    assert [each for each in printed if not any(is_printed(ratio, each) for ratio in ratios)] == []
    for label, *cells in table("docs/speed.md", "| operation | baseline, ms | mean, ms | speed-up |"):
        cells[-1] = cells[-1].removesuffix(" ×")
        columns = ("baseline_ms", "mean_ms", "ratio")
        measured = [[row[column] for column in columns] for row in rows("planning") if "ratio" in row]
        assert any(all(map(is_printed, values, cells)) for values in measured), label
    measured = json.loads((RESULTS / "scale" / "rows.json").read_text())
    times = [row[name] for row in measured for name in ("microseconds", "microseconds_mean") if name in row]
    printed = re.findall(r"(\d[\d,]*) µs", text)
    assert len(printed) >= 8
    assert [each for each in printed if not any(is_printed(time, each) for time in times)] == []


def test_what_the_page_about_workers_says_of_two_workers():
    found = {name.split(":")[0]: part for name, part in sections("distributed").items() if "cleanup" in name}
    ratio = {name: next(row["of_one_worker"] for row in part if row["workers"] == 2) for name, part in found.items()}
    said = re.search(
        r"([\d.]+) times as many steps per second\s+as one in SafetyGym and ([\d.]+) times as many in PointEnv",
        page("docs/workers.md"),
    )
    assert said is not None
    assert is_printed(ratio["SafetyGym"], said[1]) and is_printed(ratio["PointEnv"], said[2])


def test_the_success_of_the_first_command():
    methods = json.loads((RESULTS / "fit" / "evaluation.json").read_text())["methods"]
    shown = {}
    for name, found in methods.items():
        low, high = (100 * share for share in found["ci95"])
        shown[name] = f"{100 * found['success_rate']:.1f}", f"[{low:.1f}–{high:.1f}]"
    text, readme = page("docs/commands.md"), page("README.md")
    for rate, interval in shown.values():
        assert f"{rate} %" in text and interval in text and f"{rate} %" in readme


def success(folder: str, **selected) -> float:
    """Success over all seeds of the selected rows, percent."""
    found = json.loads((RESULTS / folder / "results.json").read_text())["rows"]
    chosen = [row for row in found if all(row.get(name) == value for name, value in selected.items())]
    assert chosen
    return 100 * sum(row["successes"] for row in chosen) / sum(row["episodes"] for row in chosen)


DENSE = {"world": "point", "size": 10_000, "method": "dense", "policy": "first-failure", "cleanup_steps": 50_000}
SPARSE = {**DENSE, "method": "both"}
ROBOTS = {"world": "point", "size": 5_000, "method": "both", "policy": "first-failure", "cleanup_steps": 10_000}
SORB = {"method": "sorb", "cleanup_steps": 400_000}
QUOTED = [
    ("README.md", "SoRB\nreaches {} % after 50,000 steps", "sweep", DENSE),
    ("README.md", "and SGM {} %", "sweep", SPARSE),
    ("README.md", "give {} % [", "doom-verified", {"method": "verified"}),
    ("README.md", "and {} % [", "doom-sptm-verified", {"method": "verified"}),
    ("docs/explanation/method.md", "the dense one {} %", "sweep", DENSE),
    ("docs/explanation/benchmarks.md", "SoRB reaches {} % after cleanup", "point", SORB),
    ("docs/explanation/benchmarks.md", "with 10,000 it is at {} % after 50,000 steps", "sweep", DENSE),
    ("docs/howto/many-workers.md", "ten robots lead to {} % success", "sweep", ROBOTS),
    ("docs/howto/many-workers.md", "fifty robots to {} %", "sweep-robots", ROBOTS),
    (
        "docs/explanation/cleanup.ipynb",
        "to {} % between 200,000 and",
        "point",
        {**SORB, "seed": 0, "cleanup_steps": 300_000},
    ),
]


@pytest.mark.parametrize(("name", "sentence", "folder", "selected"), QUOTED)
def test_a_success_rate_in_a_sentence(name, sentence, folder, selected):
    text = " ".join(page(name).split())
    pattern = re.escape(" ".join(sentence.split())).replace(r"\{\}", r"(\d+\.\d)")
    found = re.findall(pattern, text)
    assert found, "the sentence has changed"
    assert all(is_printed(success(folder, **selected), each) for each in found)


def test_rounding_is_checked():
    assert is_printed(138.56, "139") and not is_printed(138.4, "139") and is_printed(5845.2, "6,000")
    assert is_printed(0.9230, ".923") and not is_printed(0.9236, ".923") and not is_printed(math.nan, "1")


def test_pages_name_no_result_that_is_not_there():
    named = {
        (path.name, each)
        for path in (ROOT / "docs").rglob("*.md")
        for each in re.findall(r"\bresults/([\w-]+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    assert [(name, each) for name, each in sorted(named) if not (RESULTS / each).exists()] == []
