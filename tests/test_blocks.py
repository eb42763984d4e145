"""Every code block of README and the site: programs run, excerpts run in a small world, commands and options exist."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import re
import shlex
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tests.test_docs import ROOT, pages

DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(<!-- (?P<mark>\w+) -->\n)?```(?P<language>[\w{}]*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
RUN_ELSEWHERE = ("test", "environment")  # complete programs, which tests/test_docs.py runs

# Excerpts of longer programs, page by page: what they use is there before, and budgets and devices are made small. The
# excerpts of a page run one after the other, as they are read.
TRAIN = {".train(data": ".train(data, iterations=5"}
HERE = 'workers=2, backend="in-process"'
ROBOTS = {"50_000": "60", '"PointMaze_Large-v3", num_envs=10': '"sgm/PointMaze-v0", num_envs=4'}
MODEL = 'SAC("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, ...).learn(...)'
EXCERPTS: dict[str, list[dict[str, str]]] = {
    "howto/gpu.md": [{**TRAIN, 'device="cuda"': 'device="cpu"'}, {'"cuda"': '"cpu"'}],
    "howto/many-workers.md": [
        ROBOTS,
        {**ROBOTS, "workers=4": HERE, 'workers=64, backend="ray"': HERE},
    ],
    "howto/minari.md": [{'"D4RL/pointmaze/large-v2", download=True': "dataset"}],
    "howto/ogbench-data.md": [{}, {**TRAIN, "data[::50]": "data[:20_000:50]"}],
    "howto/own-controller.md": [{}],
    "howto/thresholds.md": [{}],
    "own-distance.md": [
        *({}, {}, {}, {"approximate=True)": "approximate=True); memory.extend(observations)"}),
        *({**TRAIN, "distance.ckpt": "small.ckpt"}, {}),
    ],
    "own-environment.md": [
        {"40_000": "400"},
        TRAIN,
        {},
        {"nodes=300": "nodes=40", "episodes=100": "episodes=2", "20_000": "60", "data[::5]": "data[::2]"},
        {"250": "5"},
    ],
    "safety.md": [{"layout_seed=0)": "layout_seed=0, size=24)", "num_envs=64": "num_envs=6, size=24, workers=1"}],
    "sb3.md": [{MODEL: "small_model()"}],
    "verification.md": [{}, {}],
    "workers.md": [
        {
            **{"50_000": "60", "1_000_000": "60", "workers=8": HERE, 'workers=64, backend="ray"': HERE},
            '"PointMaze_Medium-v3", 10, vectorization_mode="sync"': '"sgm/PointMaze-v0", 4',
            'load("agent")': 'load("agent", memory_distance=distance, controller=controller)',
        }
    ],
}
NEEDS = {
    "howto/minari.md": ["minari"],
    "howto/ogbench-data.md": ["ogbench"],
    "own-distance.md": ["usearch"],
    "sb3.md": ["stable_baselines3"],
    "safety.md": ["mujoco", "OpenGL"],
}


def blocks(path: Path, language: str = "python") -> list[tuple[str, str]]:
    """Mark and text of every code block of a page in a language; "" is what is typed into a terminal."""
    found = FENCE.finditer(path.read_text(encoding="utf-8"))
    return [(each["mark"] or "", each["code"]) for each in found if each["language"] == language]


LONGEST = 96  # characters of code that the site shows on a laptop without scrolling, and a code host in README


def test_no_line_of_code_is_wider_than_the_page():
    found = [
        (path.name, line)
        for path in pages()
        for language in ("python", "")
        for _, code in blocks(path, language)
        for line in code.splitlines()
    ]
    for path in sorted(DOCS.rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        found += [(path.name, line) for text in code for line in text.splitlines()]
    assert [(name, line) for name, line in found if len(line) > LONGEST] == []


def excerpts(path: Path) -> list[str]:
    return [code for mark, code in blocks(path) if mark not in RUN_ELSEWHERE]


def test_every_block_of_python_is_run_by_a_test():
    found = {path.relative_to(DOCS).as_posix(): len(excerpts(path)) for path in pages()[1:]}
    assert {name: number for name, number in found.items() if number} == {
        name: len(EXCERPTS[name]) for name in EXCERPTS
    }
    assert excerpts(ROOT / "README.md") == []


class Straight:
    """Steps between two places of sgm/PointMaze-v0 in a straight line, as a trained distance tells them."""

    noise, far = 0.5, 20.0

    def embed(self, observations):
        return 10 * np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


class Blind:
    """A distance between rows of a table of looks."""

    def __init__(self, looks):
        self.looks = looks

    def embed(self, observations):
        return self.looks[np.asarray(observations).ravel().astype(int)]

    def __call__(self, starts, goals):
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


class Tasks(gymnasium.Wrapper):
    """An environment with numbered tasks."""

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options={"difficulty": (options or {}).get("task_id", 1) / 10})


def controller(observations, targets):
    return np.clip(10 * (np.asarray(targets) - np.asarray(observations)), -1, 1)


def plane_world() -> dict:
    """What most excerpts use: experience of a point robot, a distance, a controller, a memory, an agent."""
    import sgm
    import sgm.envs

    env = gymnasium.make_vec("sgm/PointMaze-v0", num_envs=4, max_episode_steps=20)
    data = sgm.collect(env, 600, hold=5, episode_steps=50, seed=0, progress=False)
    memory = sgm.SparseGraphicalMemory(Straight(), tau_a=0.5, tau_p=None, max_dist=3.0, k=8, keep_observations=True)
    memory.extend(data[::3])
    agent = sgm.Navigator(memory, controller, arrival="distance", cutoff=1.0, max_steps=20)
    agent.save("agent")
    node = np.arange(3)
    return {
        **{"gym": gymnasium, "gymnasium": gymnasium, "sgm": sgm, "np": np, "__name__": "__main__"},
        **{"env": env, "data": data, "held_out": data, "distance": Straight(), "controller": controller},
        **{"memory": memory, "agent": agent, "actions": data.actions, "episodes": data.episodes},
        **{"observations": data.observations, "achieved_goals": None, "observation": data.observations[0]},
    } | {"starts": data.observations[:3], "goals": data.observations[-3:], "nodes": node, "waypoints": node}


def prepare(name: str, world: dict) -> None:
    """What the excerpts of single pages use beyond that."""
    import sgm

    if name == "howto/minari.md":
        import minari
        from minari.data_collector import EpisodeBuffer

        walk = np.arange(8, dtype=np.float32)[:, None]
        buffer = EpisodeBuffer(
            observations=walk,
            actions=list(walk[1:]),
            rewards=[0.0] * 7,
            terminations=[False] * 7,
            truncations=[False] * 6 + [True],
        )
        space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
        world["dataset"] = minari.create_dataset_from_buffers(
            "walk/small-v0", [buffer], observation_space=space, action_space=space
        )
    elif name == "howto/ogbench-data.md":
        Path("data").mkdir()
        rows = {"observations": np.zeros((6, 29)), "actions": np.zeros((6, 8)), "terminals": np.eye(6)[5]}
        np.savez("data/antmaze-large-navigate-v0.npz", **{key: value.astype(np.float32) for key, value in rows.items()})
    elif name == "own-distance.md":
        edges = world["memory"].edges()
        world |= {"Protocol": object, "u": edges.source[:2], "v": edges.target[:2], "reached": [True, True]}
        world |= {"goal_nodes": world["nodes"], "waypoints": np.zeros(len(world["observations"]), int)}
    elif name == "own-environment.md":
        world["achieved_goals"] = world["observations"]
        world["env"] = Tasks(gymnasium.make("sgm/PointMaze-v0", max_episode_steps=20))
    elif name == "sb3.md":
        from tests.learning.test_sb3 import Corridor, make

        world["small_model"] = lambda: make("SAC")
        world["data"] = sgm.collect(Corridor(), 100, seed=0, progress=False)
    elif name == "verification.md":
        random = np.random.default_rng(0)
        data = sgm.Experience(np.arange(600)[:, None], np.repeat(np.arange(12), 50), random.normal(size=(600, 2)))
        distance = Blind(random.normal(size=(600, 6)).astype(np.float32))
        memory = sgm.SparseGraphicalMemory(distance, tau_a=0.8, tau_p=None, max_dist=2.0, k=5, policy="belief")
        memory.extend(data)
        motion = lambda actions: np.insert(np.cumsum(actions, axis=0), 0, 0, axis=0)  # noqa: E731
        world |= {"data": data, "distance": distance, "memory": memory, "motion": motion}


@pytest.mark.parametrize("name", EXCERPTS)
def test_the_excerpts_of_a_page_run(name, tmp_path, monkeypatch):
    for package in ["torch", *NEEDS.get(name, [])]:
        pytest.importorskip(package)
    if name == "safety.md":
        from tests.envs.safety.test_env import NO_IMAGES

        if NO_IMAGES:
            pytest.skip(NO_IMAGES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks of five steps of training make poor memories
        world = plane_world()
        prepare(name, world)
        for code, smaller in zip(excerpts(DOCS / name), EXCERPTS[name], strict=True):
            run(code, smaller, world)


def run(code: str, smaller: dict[str, str], world: dict) -> None:
    """Run an excerpt with smaller budgets; methods that stand alone become those of a class."""
    for budget, less in smaller.items():
        assert budget in code, f"{budget} is not in the page any more"
        code = code.replace(budget, less)
    if code.startswith("    def "):
        code = "class Part:\n" + code
    ast.parse(code)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, "excerpt", "exec"), world)


def commands() -> list:
    """Every line of README, the site and its notebooks that is typed into a terminal, once."""
    found: dict[str, str] = {}
    for path in [*pages(), ROOT / "CONTRIBUTING.md"]:
        text = path.read_text(encoding="utf-8")
        lines = [line for _, code in blocks(path, "") for line in code.replace("\\\n", " ").splitlines()]
        lines += re.findall(
            r"(?<!`)`((?:sgm|make|python|pip) [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        )
        for line in lines:
            for part in re.split(r"\s+#|&&", line.split("  #")[0])[: 2 if "&&" in line else 1]:
                found.setdefault(" ".join(part.split()), path.name)
    for path in sorted(DOCS.rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"])
            for line in re.findall(r"(?:^!|`)((?:sgm|make|python|pip) [^`\n]+)", text, re.MULTILINE):
                found.setdefault(" ".join(line.split()), path.name)
    return [pytest.param(line, id=f"{where}: {line}") for line, where in found.items() if line]


@pytest.mark.parametrize("line", commands())
def test_a_command_of_a_page_exists_and_takes_its_options(line, capsys):
    program, *given = shlex.split(re.sub(r"…|\.\.\.", "", re.sub(r"\bN\b", "2", line)))
    if program == "sgm":
        parse(given, capsys)
    elif program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert given[0] in targets
    elif program == "pip":
        extras(given)
    elif program == "python":
        if given[0] == "-m":
            assert importlib.util.find_spec(given[1]) is not None
        elif given[0].startswith("examples/"):
            assert (ROOT / given[0]).exists()
    else:
        assert program in ("ray", "cp", "apt-get", "pre-commit"), f"what does {program} do?"


def parse(given: list[str], capsys) -> None:
    """Let the parser of sgm read a command line; arguments may be missing, since text names commands without them."""
    from sgm import cli

    with contextlib.suppress(SystemExit):
        cli._parser(given).parse_args(given)
    said = capsys.readouterr().err
    assert not said or re.search(r"arguments are required|expected (one|at least one) argument", said), said


def extras(given: list[str]) -> None:
    """The extras that a line asks for are declared."""
    tomllib = pytest.importorskip("tomllib")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for word in given:
        if found := re.search(r"\[(.*)\]", word):
            assert set(found[1].split(",")) - declared.keys() == set()
