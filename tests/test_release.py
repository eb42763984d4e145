"""What a release consists of: wheel and source distribution, and the files that people and services read."""

from __future__ import annotations

import email
import json
import math
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import sgm
from tests.inspector.browser import Page, chromium, copied
from tests.once import once

ROOT = Path(__file__).parents[1]
MEGABYTES = 2**20


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of the package as it is here."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install hatchling")

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)

    return once(tmp_path_factory, "dist", build)


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    return next(dist.glob("*.tar.gz"))


def test_the_version_is_the_same_everywhere_and_has_its_place_in_the_changelog(wheel, sdist):
    version = sgm.__version__
    assert str(Version(version)) == version
    assert f"-{version}-" in wheel.name and sdist.name.endswith(f"-{version}.tar.gz")
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"sgm", f"sparse_graphical_memory-{sgm.__version__}.dist-info"}
    own = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sgm").rglob("*") if path.is_file()}
    own = {name for name in own if "__pycache__" not in name}
    assert {name for name in names if name.startswith("sgm/")} == own
    assert {"sgm/py.typed", "sgm/inspector/static/app.js", "sgm/weights/doom-distance.safetensors"} <= own
    assert wheel.stat().st_size < 9 * MEGABYTES


def test_the_source_distribution_has_what_is_needed_to_test_and_to_build_the_site(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        *("pyproject.toml", "Makefile", "constraints.txt", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"),
        *("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "sgm/__init__.py", "tests/conftest.py"),
        *("docs/conf.py", "docs/tutorials/first-memory.ipynb", "examples/ten_lines.py", "inspector/package.json"),
    }
    assert needed - names == set()
    pages = [path for path in (ROOT / "docs").rglob("*.*") if path.suffix in (".md", ".ipynb")]
    linked = {(path, link) for path in pages for link in re.findall(r"\]\(([^)#:]+)", path.read_text(encoding="utf-8"))}
    files = {(path.parent / link).resolve() for path, link in linked}
    shown = {file.relative_to(ROOT).as_posix() for file in files if file.is_file() and file.is_relative_to(ROOT)}
    assert len(shown) > 60 and {name for name in shown - names if "/generated/" not in name} == set()
    unwanted = re.compile(r"node_modules|__pycache__|\.venv|docs/reference/generated|^runs/")
    assert [name for name in names if unwanted.search(name)] == []
    assert sdist.stat().st_size < 14 * MEGABYTES


def test_the_metadata_say_what_the_package_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"sparse_graphical_memory-{sgm.__version__}.dist-info/METADATA").decode()
    found = email.message_from_string(text)
    requirements = [Requirement(line) for line in found.get_all("Requires-Dist")]
    assert {one.name for one in requirements if one.marker is None} == {"numpy", "scipy", "gymnasium", "tqdm"}
    assert found["Requires-Python"] == ">=3.10" and found["License-Expression"] == "MIT"
    assert {"learn", "viz", "inspect", "docs", "test", "all"} <= set(found.get_all("Provides-Extra"))


def test_twine_finds_nothing_wrong(dist):
    pytest.importorskip("twine")
    files = [str(path) for path in sorted(dist.iterdir())]
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


def test_a_wheel_in_a_clean_environment_runs_the_demo_and_opens_the_page(wheel, tmp_path):
    python = clean_python(tmp_path / "clean", ("inspect", "viz"))
    wanted = f"{wheel}[inspect,viz]"
    install = [python, "-m", "pip", "install", "-qq", "--no-index", "--disable-pip-version-check", wanted]
    subprocess.run(install, check=True, timeout=300)

    said = subprocess.run([python, "-I", "-m", "sgm", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert said.stdout.strip() == f"sgm {sgm.__version__}", said.stderr
    demo = [python, "-I", "-m", "sgm", "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(demo, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0 and (tmp_path / "demo" / "plan.png").exists(), done.stderr

    command = [python, "-I", "-m", "sgm", "inspect", str(copied("point", tmp_path)), "--no-browser", "--port", "0"]
    with ThreadPoolExecutor(1) as thread:  # Playwright takes one browser a thread, and other tests may have theirs here
        thread.submit(check_page, command, tmp_path).result()


def check_page(command: list[str], folder: Path) -> None:
    """Start the inspector and look at a plan on its page."""
    with chromium() as browser, subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = next(found.group() for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
            page = Page(browser.new_page(), address).open("from=0&to=40")
            assert page.text("#waypoints").startswith("0 →")
            assert not page.faults
            page.tab.close()
        finally:
            server.terminate()


def clean_python(folder: Path, extras: tuple[str, ...]) -> str:
    """The Python of a new environment that has what sgm with these extras needs, and nothing else; no download."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    for name in needed(extras):
        files = metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (packages / top).exists():  # namespaces that two packages share
                (packages / top).symlink_to(metadata.distribution(name).locate_file(top))
    return python


def needed(extras: tuple[str, ...]) -> set[str]:
    """Names of the packages that sgm with these extras needs, and those that these need."""
    tomllib = pytest.importorskip("tomllib", reason="pyproject.toml is read with tomllib, which Python 3.10 has not")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = [text for extra in extras for text in declared["optional-dependencies"][extra]]
    waiting = [Requirement(text) for text in declared["dependencies"] + optional]
    found: set[str] = set()
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name in found:
            continue
        found.add(name)
        more = [Requirement(text) for text in metadata.requires(name) or []]
        waiting += [one for one in more if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def read_yaml(path: Path):
    return pytest.importorskip("yaml").safe_load(path.read_text(encoding="utf-8"))


def test_the_citation_names_paper_and_software():
    found = read_yaml(ROOT / "CITATION.cff")
    assert found["cff-version"] == "1.2.0" and found["version"] == sgm.__version__ and found["license"] == "MIT"
    paper = found["preferred-citation"]
    assert paper["type"] == "conference-paper" and paper["year"] == 2020 and "Graphical" in paper["title"]
    names = [author["family-names"] for author in paper["authors"]]
    assert names == ["Emmons", "Jain", "Laskin", "Kurutach", "Abbeel", "Pathak"]


def test_the_workflow_calls_the_targets_of_the_makefile_and_nothing_else():
    jobs = read_yaml(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    ran = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = [found[1] for line in ran if (found := re.fullmatch(r"make (\w+)( \w+=\S+)*", line))]
    assert sorted(ran) == sorted(["bash .ci/run", *(line for line in ran if line.startswith("make "))])
    assert sorted(targets) == ["core", "dist", "docs"] and len(ran) == 4
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in [*targets, "test"])
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_workflow_has_every_python_and_system_and_publishes_without_a_password():
    jobs = read_yaml(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    matrix = jobs["core"]["strategy"]["matrix"]
    assert matrix["python"] == ["3.10", "3.11", "3.12", "3.13", "3.14"]
    assert [system.split("-")[0] for system in matrix["system"]] == ["ubuntu", "macos", "windows"]
    publish = jobs["publish"]
    assert publish["permissions"] == {"id-token": "write"} and set(publish["needs"]) == {"core", "full", "docs", "dist"}
    assert "secrets" not in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_asks_for_something(path):
    form = read_yaml(path)
    assert {"name", "description", "body"} <= form.keys()
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    # What GitHub accepts; a form that breaks one of these rules is not shown.
    assert form.keys() <= {"name", "description", "title", "labels", "assignees", "projects", "type", "body"}
    assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    assert all(re.fullmatch(r"[\w-]+", part["id"]) for part in fields)
    known = {"label", "description", "placeholder", "value", "render", "options", "multiple", "default"}
    assert all(part["attributes"].keys() <= known for part in fields)
    assert all(part["type"] == "textarea" for part in fields if "render" in part["attributes"])
    assert len({part["id"] for part in fields}) == len(fields) > 0
    assert all(part["attributes"]["label"] for part in fields)


def test_pre_commit_runs_what_make_lint_runs():
    hooks = [hook for repo in read_yaml(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    entries = " ".join(hook["entry"] for hook in hooks)
    assert all(f".venv/bin/{tool}" in entries for tool in ("ruff check", "ruff format", "mypy"))


def test_the_cards_of_the_weights_say_what_the_files_and_results_say():
    page = (ROOT / "docs" / "reference" / "weights.md").read_text(encoding="utf-8")
    sizes = []
    for path in sorted((ROOT / "sgm" / "weights").glob("*.safetensors")):
        assert f"`{path.stem}`" in page
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
        parameters = sum(math.prod(shape) for shape in shapes)
        assert f"{parameters:,}" in page, path.name
        assert json.loads(header["__metadata__"]["made"])["command"].split(" --")[0] in page
        sizes.append(len(data))
    assert f"{sum(sizes) / 1e6:.1f} MB in all" in page
    doom = json.loads((ROOT / "results" / "doom" / "results.json").read_text())["quality"]
    safety = json.loads((ROOT / "results" / "safety" / "results.json").read_text())["quality"]["layout0/seed0"]
    for quality in (doom, safety):
        assert f"AUC {quality['distance']['auc']:.3f}" in page
        for share in quality["distance"]["precision"].values():
            assert f"{100 * share['false']:.1f} %" in page
    accuracy = doom["controller"]["accuracy"]
    assert f"{100 * accuracy['1']:.0f} % of the cases one step ahead, {100 * accuracy['3']:.0f} % at three" in page
    assert f"{100 * accuracy['8']:.0f} % at eight" in page
