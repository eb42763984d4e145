"""What the documentation shows, works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pages() -> list[Path]:
    """README and the pages of the site that are written by hand."""
    written = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in path.parts]
    return [ROOT / "README.md", *written]


def examples() -> list:
    found = []
    for page in pages():
        blocks = re.findall(r"<!-- test -->\n```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        found += [pytest.param(block, id=f"{page.name}-{number}") for number, block in enumerate(blocks)]
    return found


@pytest.mark.parametrize("code", examples())
def test_the_example_runs(code, tmp_path):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_there_are_examples_in_readme_and_docs():
    ids = [example.id for example in examples()]
    assert any(name.startswith("README") for name in ids)
    assert any(name.startswith("own-distance") for name in ids)


def readme(mark: str, begin: str, end: str) -> str:
    """What stands between two texts behind a mark of README."""
    text = (ROOT / "README.md").read_text().split(f"<!-- {mark} -->\n{begin}", 1)[1]
    return text.split(end, 1)[0]


def test_readme_is_a_front_door():
    assert len((ROOT / "README.md").read_text()) < 9_000
    assert len(readme("environment", "```python\n", "```").strip().splitlines()) <= 15 + 1  # and a blank line


def test_the_program_for_your_own_environment_runs(tmp_path):
    pytest.importorskip("gymnasium_robotics")
    pytest.importorskip("torch")
    code = readme("environment", "```python\n", "```")
    small = {"40_000": "1_500", "10_000": "200", "nodes=300": "nodes=40", "episodes=100": "episodes=2"}
    assert all(budget in code for budget in small)
    for budget, smaller in small.items():
        code = code.replace(budget, smaller)
    code = code.replace(".train(data, seed=0)", ".train(data, seed=0, iterations=20)")
    code = code.replace("continuing_task=False)", "continuing_task=False, max_episode_steps=50)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Evaluation") == 2
    assert (tmp_path / "agent" / "agent.json").exists()


def test_the_numbers_in_readme_are_those_of_the_results():
    from sgm.benchmarks import paper_tables, tables
    from sgm.benchmarks.runs import find

    printed = paper_tables.TABLES[1](find([ROOT / "results"]))
    lines = [[tables.plain(cell) for cell in line] for table in printed.parts for line in table.lines]
    rows = [line.strip("| ").split(" | ") for line in readme("results", "", "\n\n").splitlines()[2:]]
    assert len(rows) == 6
    names = {"PointEnv": "point:FourRooms-thin", "ViZDoom": "doom:maze0", "SafetyGym": "safety:rooms0"}
    for benchmark, method, paper, ours, episodes, _ in rows:
        label = "ConSPTM + SGM, two-way" if method == "ConSPTM + SGM" else method
        found = [line for line in lines if line[:2] == [names[benchmark], label] and "persistent" not in line[2]]
        assert len(found) == 1
        assert found[0][5].replace(" %", "") == ours
        assert found[0][4] == episodes and found[0][7].replace(" %", "") == paper


def test_the_table_of_ogbench_is_that_of_the_results():
    from sgm.benchmarks import tables
    from sgm.benchmarks.ogbench.report import summary_table

    rows = json.loads((ROOT / "results" / "ogbench" / "results.json").read_text())["rows"]
    assert tables.markdown(summary_table(rows)) in (ROOT / "docs" / "ogbench.md").read_text()


def test_figures_are_small():
    large = [path for path in (ROOT / "results").rglob("*.png") if path.stat().st_size >= 200_000]
    assert large == []


def test_every_file_that_readme_shows_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_picture_on_the_first_screen_of_readme_has_a_text():
    text = (ROOT / "README.md").read_text().split("## ", 1)[0]
    shown = re.findall(r'<img [^>]*src="([^"]+)" alt="([^"]+)"', text)
    assert len(shown) == text.count("<img") == 1
    assert all((ROOT / source).exists() and len(alt) > 20 for source, alt in shown)


def links(path: Path) -> list[tuple[str, str]]:
    """Text and target of every link and image of a page, those in code left out."""
    text = re.sub(r"```.*?```|`[^`]*`(?!\])", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"(!?\[[^\]]*\])\(([^)\s]+)\)", text)


def headings(path: Path) -> set[str]:
    """Where links may lead on a page: its headings, as code hosts and MyST spell them."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


REPOSITORY = [ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "CODE_OF_CONDUCT", "SECURITY")]


@pytest.mark.parametrize("page", [*pages(), *REPOSITORY], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere_and_every_image_has_a_text(page):
    for text, target in links(page):
        assert not text.startswith("!") or len(text) > 8, f"{target} has no text"
        if re.match(r"\w+:", target):
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]{2,}(/[\w./~#?=&%-]*)?", target), target
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place) if place else page
        assert file.exists() or "generated" in place, target
        if anchor and file.suffix == ".md":
            assert anchor in headings(file), target


def successes(folders: list[str]) -> set[str]:
    """Every success rate with its interval in results, as pages print it: of one seed, and of all seeds together."""
    from sgm.navigation import wilson

    pooled: dict[tuple, list[int]] = {}
    for folder in folders:
        for path in sorted((ROOT / "results" / folder).rglob("*.json")):
            for row in json.loads(path.read_text()).get("rows", []):
                names = ("environment", "method", "phase", "cleanup_steps", "policy", "agent")
                key = (path, *(str(row.get(name)) for name in names))
                for group in (key, (*key, row.get("seed"))):
                    counts = pooled.setdefault(group, [0, 0])
                    counts[0] += row["successes"]
                    counts[1] += row["episodes"]
    found = set()
    for reached, episodes in pooled.values():
        low, high = wilson(reached, episodes)
        found.add(f"{100 * reached / episodes:.1f} % [{100 * low:.1f}–{100 * high:.1f}]")
    return found


@pytest.mark.parametrize(
    ("page", "folders", "least"),
    [
        ("point", ["point"], 35),
        ("doom", ["doom", "doom-sptm", "doom-verified", "doom-sptm-verified", "doom-ablation", "doom-third"], 20),
        ("safety", ["safety", "safety-long"], 80),
    ],
)
def test_the_success_rates_of_a_benchmarks_page_are_in_the_results(page, folders, least):
    printed = re.findall(r"\d+\.\d % \[[\d.]+–[\d.]+\]", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert len(printed) >= least
    assert set(printed) - successes(folders) == set()


def test_every_promise_about_the_file_names_a_test_that_exists():
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "file.md").read_text())
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 25
    assert [name for name in named if f"def {name}(" not in written] == []


def test_the_tables_on_sparsity_are_those_of_the_results():
    pytest.importorskip("matplotlib")
    from tests import sparsity

    text = sparsity.PAGE.read_text()
    assert text.count("<!-- table ") >= 3
    assert sparsity.filled(text) == text
