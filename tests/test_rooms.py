"""The rooms of the package: which may import which, and where environments are stepped. See also test_import.py."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sgm"
FILES = sorted(PACKAGE.rglob("*.py"))
ANYWHERE = {"errors", "progress"}
BELOW = {"memory", "data", "learning", "distances", "controllers", "navigation", "envs"}
# What of ours a room may import besides itself, `errors` and `progress`.
ROOMS = {
    "errors": set(),
    "progress": set(),
    "memory": set(),
    "envs": set(),
    "data": {"memory", "envs"},
    "learning": {"memory", "data"},
    "distances": {"memory", "data", "learning"},
    "controllers": {"memory", "data", "learning", "distances"},
    "navigation": {"memory", "data"},
    "inspector": BELOW,
    "distributed": BELOW,
    "benchmarks": BELOW | {"inspector", "distributed"},
    "fit": BELOW | {"benchmarks", "distributed"},  # of benchmarks only what is public, see FOR_FIT
    "cli": BELOW | {"benchmarks", "fit", "inspector", "distributed"},
    "__main__": {"cli"},
}
# `memory.view()` opens the page of the inspector, which the memory knows nothing else of: imported when it is called.
WHEN_CALLED = {("memory/memory.py", "sgm.inspector.notebook")}
# Modules of the benchmarks that `fit` may use: pages, figures, files, options, and what made a result.
FOR_FIT = {"checks", "map_plots", "options", "page", "plots", "provenance", "results", "seeds", "tables", "threads"}
# Modules of the memory that these may use: its public names, and the distance contract with its checks.
CONTRACTS = {"", "distance"}
THIRD_PARTY = {
    "errors": set(),
    "progress": {"tqdm"},
    "memory": {
        "numpy",
        "scipy",
        "networkx",
        "numba",
        "usearch",
    },  # networkx, usearch: inside one function each; numba: in one file
    "data": {"numpy", "gymnasium", "minari", "ogbench", "mujoco", "PIL", "imageio"},
    "navigation": {"numpy", "scipy", "gymnasium"},
    "envs": {"numpy", "scipy", "gymnasium", "mujoco", "ogbench", "vizdoom", "cv2", "matplotlib"},
}


def room_of(path: Path) -> str:
    """The room that a file belongs to: a folder of the package, or a file beside the folders."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Full names of the modules that a file imports, at any place but under TYPE_CHECKING."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ("sgm", *path.relative_to(PACKAGE).parent.parts)
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            if module == "sgm" or (node.level and not node.module):
                yield from ((f"{module}.{alias.name}", node) for alias in node.names)
            else:
                yield module, node


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_every_room_is_known():
    assert {room_of(path) for path in FILES} - {"__init__"} <= ROOMS.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_is_below_it(room):
    wrong = [
        f"{named(path)}:{node.lineno} imports {module}"
        for path in FILES
        if room_of(path) == room
        for module, node in imports(path)
        if module.startswith("sgm.") and module.split(".")[1] not in ROOMS[room] | ANYWHERE | {room, "__version__"}
        if not ((named(path), module) in WHEN_CALLED and node.col_offset)
    ]
    assert not wrong


@pytest.mark.parametrize("room", ["data", "learning", "distances", "controllers"])
def test_of_the_memory_others_use_contracts_only(room):
    wrong = [
        f"{named(path)}:{node.lineno} imports {module}"
        for path in FILES
        if room_of(path) == room
        for module, node in imports(path)
        if module.startswith("sgm.memory") and module.removeprefix("sgm.memory").removeprefix(".") not in CONTRACTS
    ]
    assert not wrong


@pytest.mark.parametrize("room", THIRD_PARTY)
def test_a_room_needs_no_other_libraries(room):
    allowed = THIRD_PARTY[room] | set(sys.stdlib_module_names) | {"sgm"}
    wrong = [
        f"{named(path)}:{node.lineno} imports {module}"
        for path in FILES
        if room_of(path) == room
        for module, node in imports(path)
        if module.split(".")[0] not in allowed
    ]
    assert not wrong


def test_benchmarks_know_nothing_of_each_other_but_for_the_sweep_over_them():
    names = {path.parent.name for path in PACKAGE.glob("benchmarks/*/__init__.py")}
    wrong = [
        f"{named(path)}:{node.lineno} imports {module}"
        for path in FILES
        if room_of(path) == "benchmarks" and (own := path.parent.name) in names - {"sweep"}
        for module, node in imports(path)
        if (parts := module.split("."))[:2] == ["sgm", "benchmarks"] and {*parts[2:3]} & (names - {own})
    ]
    assert not wrong


def test_of_the_benchmarks_fit_uses_what_is_public():
    used = {
        module.split(".")[2]
        for path in FILES
        if room_of(path) == "fit"
        for module, _ in imports(path)
        if module.startswith("sgm.benchmarks.")
    }
    assert "page" in used and used <= FOR_FIT


def test_environments_are_stepped_in_one_file():
    """Calls of `.step(…)` on something called env or environment, or held as one."""
    wrong = []
    for path in FILES:
        if room_of(path) == "envs" or named(path) == "navigation/rollout.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                target = ast.unparse(node.func.value).rsplit(".", 1)[-1].lstrip("_")
                if target in ("env", "envs", "environment", "environments", "venv"):
                    wrong.append(f"{named(path)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong
