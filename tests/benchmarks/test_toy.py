"""A fourth benchmark, declared in a few lines: a grid world whose distance is a table learned from random walks."""

from __future__ import annotations

import dataclasses
import json
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import sgm
import sgm.navigation
from sgm.benchmarks import BENCHMARKS, base, engine, map_plots, page
from sgm.benchmarks.base import Benchmark, Draws, Method, Settings
from sgm.benchmarks.checks import COUNT, check_row
from sgm.benchmarks.options import MEMORY, TRAINING, option
from sgm.benchmarks.results import read_arrays, write_arrays
from sgm.benchmarks.runs import attribute
from sgm.benchmarks.seeds import Purpose
from sgm.cli import main

pytest.importorskip("matplotlib")

SIDE = 7
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


def step(cell, action):
    """The cell that an action leads to. A wall with a door in its middle divides the grid."""
    row, column = np.divmod(cell, SIDE) + MOVES[action]
    free = 0 <= row < SIDE and 0 <= column < SIDE and (column != SIDE // 2 or row == SIDE // 2)
    return row * SIDE + column if free else cell


class Grid(gymnasium.Env):
    """Go from one cell to another in 40 steps; observations and goals are numbers of cells."""

    cell = gymnasium.spaces.Box(0, SIDE * SIDE - 1, (1,), np.int64)
    observation_space = gymnasium.spaces.Dict(observation=cell, achieved_goal=cell, desired_goal=cell)
    action_space = gymnasium.spaces.Discrete(len(MOVES))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal = self.np_random.choice([0, 1, 7, 8, SIDE * SIDE - 1, SIDE * SIDE - 2], 2, replace=False)
        self.elapsed = 0
        return self.seen(), {}

    def step(self, action):
        self.at, self.elapsed = step(self.at, action), self.elapsed + 1
        return self.seen(), 0.0, bool(self.at == self.goal), self.elapsed >= 40, {}

    def seen(self):
        at, goal = np.array([self.at]), np.array([self.goal])
        return {"observation": at, "achieved_goal": at, "desired_goal": goal}


@dataclasses.dataclass(frozen=True)
class ToySettings(Settings):
    methods: tuple[str, ...] = option(("map", "lost"), "methods", MEMORY, choices=("map", "lost"), fewest=1)
    walks: int = option(400, "random walks to learn from", TRAINING, least=1)


def learn(piece):
    """The fewest steps between cells in random walks, and a mistake."""
    path = piece.folder / "table.npz"
    if not path.exists():
        piece.say("training")
        random, steps = np.random.default_rng(piece.seed_for(Purpose.TRAINING)), np.full((SIDE**2, SIDE**2), 30.0)
        for cell in random.integers(SIDE**2, size=piece.settings.walks):
            walk = [cell]
            for action in random.integers(len(MOVES), size=12):
                walk.append(step(walk[-1], action))
            for first, start in enumerate(walk):
                for later, end in enumerate(walk[first:]):
                    steps[start, end] = min(steps[start, end], later)
        left = np.arange(SIDE) * SIDE + SIDE // 2 - 1
        steps[left, left + 2] = steps[left + 2, left] = 1.0  # blind to the wall: a mistake that cleanup has to find
        write_arrays(path, {"steps": steps})
    return sgm.TableDistance(read_arrays(piece.folder, path.name, "steps")["steps"])


def build(piece):
    cells = np.array([cell for cell in range(SIDE**2) if cell % SIDE != SIDE // 2 or cell // SIDE == SIDE // 2])
    memory = sgm.SparseGraphicalMemory(piece.networks, tau_p=None, tau_a=1.0, max_dist=3.0, k=6)
    memory.extend(cells[:, None], attributes={"position": np.stack(np.divmod(cells, SIDE), axis=1)})
    return memory


def control(observations, targets):
    """Straight on, wall or not."""
    gaps = np.concatenate(np.divmod(targets, SIDE), axis=1) - np.concatenate(np.divmod(observations, SIDE), axis=1)
    return (MOVES[None] * gaps[:, None]).sum(axis=2).argmax(axis=1)


def make_agent(piece, method, memory, _name, clean):
    if memory is None:
        return sgm.navigation.PolicyAgent(control)
    return sgm.navigation.Navigator(memory, control, arrival="distance", cutoff=0.5, max_steps=6, clean=clean)


def report(run):
    files = run.files()
    memory = files.memory(files.first("map/memory.sgm"), "map/memory.sgm")
    where, stages = attribute(memory, "position", 2), map_plots.stages_of(memory)
    draw = partial(map_plots.memory_stages, draw_map=lambda axes: None, positions=where, stages=stages)
    return [page.Section("Figures", [page.Figures([page.Figure("map", "The memory.", draw)])]), *base.plain_report(run)]


TOY = Benchmark(
    name="toy",
    label="Grid",
    title="a map and no map",
    description="Learn a table, build a map, clean it up.",
    settings=ToySettings,
    quick={"walks": 50},
    methods={"map": Method("map", build=build), "lost": Method("no map", learned=False)},
    environment=lambda piece: "toy:grid",
    env=lambda piece: SyncVectorEnv([Grid] * 10),
    tasks=lambda piece: Draws(piece.seed_for(Purpose.TASKS)),
    learn=learn,
    agent=make_agent,
    report=report,
)


# -- what it gets for that -------------------------------------------------------------------------------------------


def run(out, *more):
    command = ["run", "toy", "--cleanup-steps", "600", "--checkpoints", "200", "--no-progress", "--out", str(out)]
    code = main([*command, *more])
    path = out / "results.json"
    return code, json.loads(path.read_text()) if path.exists() else None


@pytest.fixture(scope="module", autouse=True)
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BENCHMARKS, "toy", TOY)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("toy")
    code, results = run(out, "--seeds", "0", "1")
    assert code == 0
    return out, results


def timeless(results):
    clock = ("seconds_per_action", "cleanup_seconds")
    return [{name: value for name, value in row.items() if name not in clock} for row in results["rows"]]


def test_it_has_a_row_for_each_seed_method_and_stage(finished):
    stages = [("map", 0), ("map", 200), ("map", 600), ("lost", 0)]
    rows = finished[1]["rows"]
    expected = [(seed, *stage) for seed in (0, 1) for stage in stages]
    assert [(row["seed"], row["method"], row["cleanup_steps"]) for row in rows] == expected
    assert all(len(row["outcomes"]) == 10 for row in rows)
    assert finished[1]["benchmark"] == "toy" and finished[1]["settings"]["walks"] == 400


def test_cleanup_removes_the_edge_through_the_wall(finished):
    for seed in (0, 1):
        memory = sgm.SparseGraphicalMemory.load(finished[0] / f"seed{seed}" / "map" / "memory.sgm", None)
        sides = memory.attributes["position"][:, 1] - SIDE // 2
        removed, standing = memory.removed(), memory.edges()
        assert (sides[removed.source] * sides[removed.target] < 0).any()
        assert (sides[standing.source] * sides[standing.target] > 0).any()


def test_it_resumes_to_the_same_result(finished, tmp_path, monkeypatch, capsys):
    real, left = engine.rollout, [1, 1, 2, 99]
    calls = iter(())

    def fragile(*arguments, **options):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(engine, "rollout", fragile)
    codes = []
    for number in left:
        calls = iter(range(number))
        code, results = run(tmp_path, "--seeds", "0", "1")
        codes.append(code)
    assert codes == [130, 130, 130, 0]
    assert capsys.readouterr().out.count("training") == 2  # once for each seed
    assert timeless(results) == timeless(finished[1])


def test_it_has_tables_figures_and_a_report(finished, capsys):
    out, _ = finished
    assert run(out)[0] == 0
    assert "After cleanup" in capsys.readouterr().out
    html = (out / "report.html").read_text()
    assert "toy:grid" in html and html.count("<img") == 1 and "Not drawn" not in html
    assert (out / "figures" / "map.png").read_bytes().startswith(b"\x89PNG")


def test_its_settings_are_options(capsys):
    with pytest.raises(SystemExit):
        main(["run", "toy", "--help"])
    shown = capsys.readouterr().out
    assert "random walks to learn from (default: 400)" in shown and "--cleanup-steps" in shown


# -- cleanup that goes on ----------------------------------------------------------------------------------------------

SEPARATE = dataclasses.replace(TOY, cleanup_env=lambda piece: SyncVectorEnv([Grid] * 10))
UNBROKEN = dataclasses.replace(SEPARATE, unbroken=True)


def cleaned(benchmark, out, checkpoints, seeds=(0, 1, 2, 3)):
    """What the memory has been through after 600 steps, and the rows, by seed."""
    settings = ToySettings(methods=("map",), seeds=seeds, cleanup_steps=600, checkpoints=checkpoints)
    engine.Run(benchmark, settings, out, progress=False).run()
    memories = [sgm.SparseGraphicalMemory.load(out / f"seed{seed}" / "map" / "memory.sgm", None) for seed in seeds]
    rows = timeless(json.loads((out / "results.json").read_text()))
    tries = [[memory.evidence(u, v) for u, v in zip(*memory.edges()[:2], strict=True)] for memory in memories]
    return tries, [row for row in rows if row["cleanup_steps"] == 600], rows


def test_an_unbroken_cleanup_does_not_depend_on_where_it_was_looked_at(tmp_path):
    once, last, _ = cleaned(UNBROKEN, tmp_path / "once", ())
    often, same, _ = cleaned(UNBROKEN, tmp_path / "often", (50, 100, 150))
    assert once == often and last == same
    broken = cleaned(SEPARATE, tmp_path / "broken", (50, 100, 150))[0]
    assert broken != cleaned(SEPARATE, tmp_path / "unlooked", ())[0]


def test_an_unbroken_cleanup_needs_robots_of_its_own():
    with pytest.raises(ValueError, match="give it a cleanup_env"):
        dataclasses.replace(TOY, unbroken=True)


def test_an_unbroken_chain_whose_memory_is_gone_says_so(tmp_path):
    cleaned(UNBROKEN, tmp_path, (), seeds=(0,))
    (tmp_path / "seed0" / "map" / "memory.sgm").unlink()
    with pytest.raises(sgm.StoreError, match="memory.sgm"):
        cleaned(UNBROKEN, tmp_path, (), seeds=(0,))


def test_an_unbroken_cleanup_that_was_interrupted_ends_the_same(tmp_path, monkeypatch):
    expected = cleaned(UNBROKEN, tmp_path / "whole", (200, 400), seeds=(0,))
    real, calls = engine.rollout, iter(())

    def fragile(*arguments, **options):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(engine, "rollout", fragile)
    for number in (2, 1):
        calls = iter(range(number))
        with pytest.raises(KeyboardInterrupt):
            cleaned(UNBROKEN, tmp_path / "parts", (200, 400), seeds=(0,))
    calls = iter(range(9))
    assert cleaned(UNBROKEN, tmp_path / "parts", (200, 400), seeds=(0,)) == expected


# -- with an axis and a field of its own -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WorldSettings(ToySettings):
    methods: tuple[str, ...] = option(("map",), "methods", MEMORY, choices=("map", "lost"), fewest=1)
    worlds: tuple[int, ...] = option((0,), "which worlds", least=0, fewest=1)


WORLDS = dataclasses.replace(
    TOY,
    settings=WorldSettings,
    axes={"world": "worlds", "seed": "seeds"},
    shared=("atlas",),
    fields={"colour": COUNT},
    facts=lambda piece, memory: {"colour": piece.numbers["world"]},
    report=base.plain_report,
)


def run_worlds(out, resume=True, **settings):
    settings = WorldSettings(cleanup_steps=200, **settings)
    engine.Run(WORLDS, settings, out, resume=resume, progress=False).run()
    return json.loads((out / "results.json").read_text())["rows"]


def test_another_axis_and_another_field_are_in_the_rows(tmp_path):
    rows = run_worlds(tmp_path, worlds=(0, 3))
    assert [(row["world"], row["seed"], row["colour"]) for row in rows[::2]] == [(0, 0, 0), (3, 0, 3)]


def test_starting_over_removes_what_another_axis_and_shared_folders_hold(tmp_path, capsys):
    run_worlds(tmp_path, worlds=(0, 3))
    (tmp_path / "atlas").mkdir()
    for name in ("atlas/old.npz", "atlas/mine.txt", "worldly.json"):
        (tmp_path / name).write_text("old")
    assert capsys.readouterr().out.count("training") == 2
    rows = run_worlds(tmp_path, resume=False, walks=50)
    assert capsys.readouterr().out.count("training") == 1
    assert {row["world"] for row in rows} == {0}
    assert not (tmp_path / "atlas" / "old.npz").exists()
    assert (tmp_path / "atlas" / "mine.txt").exists() and (tmp_path / "worldly.json").exists()


@pytest.mark.parametrize("name", ["world0", "world7", "atlas"])
def test_links_in_the_place_of_another_axis_are_refused(tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    for resume in (True, False):
        with pytest.raises(sgm.StoreError, match=f"{name} leads out of the run folder"):
            run_worlds(tmp_path / "run", resume)


def test_a_field_that_a_benchmark_declares_is_checked_and_one_that_nobody_declares_is_not(tmp_path):
    rows = run_worlds(tmp_path)
    state = tmp_path / "world0" / "seed0" / "map" / "state.json"
    content = json.loads(state.read_text())
    check_row({**rows[0], "weather": []}, needed=["weather"])
    with pytest.raises(sgm.StoreError, match="weather None; accepted: a value"):
        check_row({**rows[0], "weather": None}, needed=["weather"])
    content["rows"][0]["colour"] = "blue"
    state.write_text(json.dumps(content))
    with pytest.raises(sgm.StoreError, match="colour 'blue'; accepted: a whole number"):
        run_worlds(tmp_path)
