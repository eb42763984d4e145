"""The paper's second benchmark, whole: explore, train, build, evaluate, clean up, evaluate, report.

Every finished piece is on disk before the next one begins, and each has seeds of its own, so a run that was interrupted
goes on to the same result.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import State, claim, read_quality, write_json, writing
from sgm.navigation import Cleaner, Evaluation, TimeFilter, VisualNavigator, evaluate_tasks
from sgm.navigation.visual import FrameSight

from .settings import CLEANED, GRAPH_METHODS, METHODS, SCHEMA, DoomSettings

if TYPE_CHECKING:
    from sgm.envs.doom.env import Rollouts

FALSE = 200.0  # an edge over so many map units is false
# One agent and one way of building for every method; chosen on tasks of another seed than those of the table.
BUILD: dict[str, Any] = {"tau_a": 4.0, "tau_p": 0.5, "max_dist": 8.0, "k": 5}
WINDOW: dict[str, Any] = {"window": 2, "aggregate": "mean"}
AGENT: dict[str, Any] = {
    "max_steps": 8, "cutoff": 2.5, "ahead": 6, "penalty": 50.0, "look": 5, "confident": 2.0, "patience": 8
}  # fmt: skip
FILTER: dict[str, Any] = {"sharpness": 2.0, "leak": 0.1, "hops": 1}
TEMPERATURE = 0.3
CLEANUP_EPISODE = 200


class RandomAgent:
    """Uniformly random actions."""

    def __init__(self, actions: int, seed: int) -> None:
        """Draw from so many."""
        self.actions, self.random = actions, np.random.default_rng(seed)

    def reset(self, episodes: int | None = None, mask: Any = None) -> None:
        """Nothing is remembered."""

    def act_many(self, observations: Any, goals: Any, *, active: Any = None) -> NDArray[Any]:
        """One action each."""
        return self.random.integers(self.actions, size=len(observations))


class ControllerAgent:
    """The visual controller, sent straight to the goal."""

    def __init__(self, controller: Any) -> None:
        """Act with this controller."""
        self.controller = controller
        self.before: NDArray[Any] | None = None

    def reset(self, episodes: int | None = None, mask: Any = None) -> None:
        """Forget what was seen before, in all episodes or in those of the mask."""
        if mask is None or self.before is None:
            self.before, self.new = None, np.ones(episodes or 0, np.bool_)
        else:
            self.new[mask] = True

    def act_many(self, observations: Any, goals: Any, *, active: Any = None) -> NDArray[Any]:
        """The controller's actions."""
        before = np.array(observations)
        if self.before is not None:
            before[~self.new] = self.before[~self.new]
        self.before, self.new = np.array(observations), np.zeros(len(observations), np.bool_)
        return self.controller(before, observations, goals)


@dataclasses.dataclass
class Buffer:
    """What a seed's memories are built from, and the distances over it."""

    frames: NDArray[np.uint8]
    episodes: NDArray[np.int64]
    poses: NDArray[np.float32]
    embeddings: NDArray[np.float32]
    table: Any  # WindowDistance


class DoomRun:
    """A run in a folder."""

    def __init__(
        self, settings: DoomSettings, out: Path, *, command: str = "", resume: bool = True, progress: bool = True
    ) -> None:
        """Begin in `out`, or go on there if it holds an unfinished run of the same settings.

        `command` is what the results say made them.
        """
        from sgm.envs.doom.env import Tasks

        self.command, self.settings, self.out, self.progress = command, settings, out, progress
        # What is wrong should be said now, not after an hour of training.
        self.map = settings.load_map()
        Tasks.draw(self.map, 1, 0)
        claim(
            out, settings, resume=resume, free=("seeds", "methods"), states=self._states(),
            left_overs=("networks/*.safetensors", "networks/*.json", "seed*/*.np[yz]", "seed*/*.json",
                        "seed*/*/*.json", "seed*/*/*.sgm", "networks/*.new", "seed*/*.new", "seed*/*/*.new"),
        )  # fmt: skip
        self.map.write(out / "map.wad")

    def run(self) -> Path:
        """Do everything; the path of the report."""
        from . import report as doom_report

        try:
            self.networks()
            for seed in self.settings.seeds:
                self._run_seed(seed)
        finally:
            self.close()
        rows = self.write_results()
        print("\n" + doom_report.console_table(rows))
        path = doom_report.write_report(self.out)
        print(f"\nreport: {path}")
        return path

    def close(self) -> None:
        """Stop the engines."""
        if "env" in self.__dict__:
            self.env.close()
            del self.env

    def write_results(self) -> list[dict[str, Any]]:
        """Gather the rows of all finished pieces into results.json."""
        rows = [row for state in self._states() for row in state.rows()]
        content = {
            "schema": SCHEMA,
            **provenance(self.command),
            "settings": dataclasses.asdict(self.settings),
            "agent": {**BUILD, **WINDOW, **AGENT, **FILTER, "temperature": TEMPERATURE},
            "quality": read_quality(self.out / "networks"),
            "rows": rows,
        }
        write_json(self.out / "results.json", content)
        return rows

    # -- networks ------------------------------------------------------------------------------------------------

    @cached_property
    def env(self) -> Any:
        """The engines."""
        from sgm.envs.doom.env import DoomMazeVectorEnv

        settings = self.settings
        return DoomMazeVectorEnv(
            settings.engines, doom_map=self.map, size=settings.size, max_episode_steps=settings.episode_steps
        )

    def networks(self) -> tuple[Any, Any]:
        """Distance and controller, trained now or before, or those that come with the package."""
        from . import learn as doom_networks

        return doom_networks.networks(
            self.settings, self.out / "networks", lambda: self.env, self._say, self.command, self.progress
        )

    # -- one seed ------------------------------------------------------------------------------------------------

    def _state(self, seed: int, method: str) -> State:
        facts = {"method": method, "seed": seed}
        return State(self.out / f"seed{seed}" / method, facts, method in GRAPH_METHODS)

    def _states(self) -> list[State]:
        return [self._state(seed, method) for seed in self.settings.seeds for method in self.settings.methods]

    def _say(self, text: str) -> None:
        print(text, flush=True)

    def _run_seed(self, seed: int) -> None:
        left = [method for method in self.settings.methods if not self._finished(seed, method)]
        shown = (self.out / f"seed{seed}" / "pictures.npz").exists()
        planned = [method for method in self.settings.methods if method in GRAPH_METHODS]
        if not left and (shown or not planned):
            return
        distance, controller = self.networks()
        again = not shown or any(method in left for method in planned)
        buffer = self._buffer(seed, distance) if planned and again else None
        for method in left:
            kept = self._state(seed, method)
            kept.folder.mkdir(parents=True, exist_ok=True)
            controller.random = np.random.default_rng([seed, METHODS.index(method)])
            if method not in GRAPH_METHODS:
                agent = RandomAgent(controller.actions, seed) if method == "random" else ControllerAgent(controller)
                row = self._row(seed, method, 0, self._evaluate(agent, seed), None, None)
                kept.write({"rows": [row], "done": 0})
            else:
                assert buffer is not None
                self._run_memory(seed, method, buffer, distance, controller)
            self.write_results()
        if buffer is not None:
            from . import figure_data as doom_evidence

            doom_evidence.write(self, seed, buffer, distance, controller)

    def _finished(self, seed: int, method: str) -> bool:
        state = self._state(seed, method).read()
        return state is not None and (method not in CLEANED or state["done"] >= self.settings.cleanup_steps)

    def _buffer(self, seed: int, distance: Any) -> Buffer:
        """Explore, embed and compare what a seed's memories are built from."""
        settings = self.settings
        self._say(f"seed {seed}: exploring, {settings.buffer_episodes} episodes of {settings.buffer_steps} steps")
        buffer = self.compare(self.explore_buffer(seed), distance)
        folder = self.out / f"seed{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        with writing(folder / "poses.npy") as file:
            np.save(file, buffer.poses)
        return buffer

    def explore_buffer(self, seed: int) -> Rollouts:
        """The random episodes that a seed's memories are built from."""
        from sgm.envs.doom.env import explore

        settings = self.settings
        return explore(self.env, settings.buffer_episodes, settings.buffer_steps, 3_000_000 * (seed + 1))

    def compare(self, rollouts: Rollouts, distance: Any) -> Buffer:
        """Embed and compare the frames of episodes."""
        from sgm.distances.window import WindowDistance, window_table

        count, length = rollouts.frames.shape[:2]
        frames = rollouts.frames.reshape(-1, *rollouts.frames.shape[2:])
        episodes = np.repeat(np.arange(count), length)
        embeddings = distance.embed(frames)
        table = WindowDistance(window_table(distance, embeddings, episodes, **WINDOW))
        return Buffer(frames, episodes, rollouts.poses.reshape(-1, 3), embeddings, table)

    def build(self, method: str, buffer: Buffer, size: int | None = None) -> sgm.SparseGraphicalMemory:
        """The memory of a method over a buffer, filtered."""
        ours = method.startswith("ours")
        criterion = {"sptm": "uniform", "dense": "none"}.get(method, "two-way")
        policy = sgm.Belief(max_steps=float(AGENT["max_steps"])) if ours else sgm.FirstFailure()
        memory = sgm.SparseGraphicalMemory(
            buffer.table, features=lambda frames: buffer.embeddings[np.asarray(frames)], criterion=criterion,
            policy=policy, size=size, **BUILD,
        )  # fmt: skip
        memory.extend(np.arange(len(buffer.frames)), episode=buffer.episodes if ours else None, progress=self.progress)
        if ours:
            remember_ways(memory, buffer.episodes)
        return memory

    def navigator(
        self, method: str, memory: sgm.SparseGraphicalMemory, buffer: Buffer, distance: Any, controller: Any,
        clean: bool = False,
    ) -> VisualNavigator:  # fmt: skip
        """The agent of a method; they differ in whom they blame only."""
        sight = FrameSight(memory, distance, buffer.frames, buffer.embeddings)
        blame = "doubtful" if method.startswith("ours") else "last"
        localiser = TimeFilter(memory, **FILTER)
        return VisualNavigator(memory, controller, sight=sight, localiser=localiser, blame=blame, clean=clean, **AGENT)

    def _run_memory(self, seed: int, method: str, buffer: Buffer, distance: Any, controller: Any) -> None:
        """Build, evaluate, and clean up and evaluate by the schedule, from where it stands."""
        kept = self._state(seed, method)
        state = kept.read()
        if state is None:
            memory = self.build(method, buffer, self._size(seed, buffer) if method == "sptm" else None)
            result = self._evaluate(self.navigator(method, memory, buffer, distance, controller), seed)
            state = kept.keep(memory, [self._row(seed, method, 0, result, memory, buffer)], 0)
        if method not in CLEANED:
            kept.settle(state)
            return
        memory = sgm.SparseGraphicalMemory.load(
            kept.memory_file(state), buffer.table, features=lambda frames: buffer.embeddings[np.asarray(frames)]
        )
        for target in self.settings.schedule:
            if target <= state["done"]:
                continue
            controller.random = np.random.default_rng([seed, METHODS.index(method), target])
            cleaning = self.navigator(method, memory, buffer, distance, controller, clean=True)
            self.env.max_episode_steps = None
            cleaner = Cleaner(
                cleaning, self.env, seed=[seed, state["done"]], options={"goals": None},
                goals="active" if method == "ours" else "random", episode_steps=CLEANUP_EPISODE,
            )  # fmt: skip
            cleaner.run(target - state["done"], self.progress)
            self.env.max_episode_steps = self.settings.episode_steps
            result = self._evaluate(self.navigator(method, memory, buffer, distance, controller), seed)
            rows = [*state["rows"], self._row(seed, method, target, result, memory, buffer)]
            state = kept.keep(memory, rows, target)
        kept.settle(state)

    def _size(self, seed: int, buffer: Buffer) -> int:
        """As many nodes as two-way consistency keeps of the same buffer."""
        rows = self._state(seed, "sptm+sgm").rows()
        return rows[0]["nodes"] if rows else len(self.build("sptm+sgm", buffer))

    def tasks(self, seed: int) -> Any:
        """The tasks of a seed: all methods and phases meet the same starts and goals."""
        from sgm.envs.doom.env import Tasks

        return Tasks.draw(self.map, self.settings.tasks, 5_000_000 * (seed + 1))

    def _evaluate(self, agent: Any, seed: int) -> Evaluation:
        return evaluate_tasks(agent, self.env, self.tasks(seed), progress=self.progress)

    def _row(
        self, seed: int, method: str, steps: int, result: Evaluation, memory: Any, buffer: Buffer | None
    ) -> dict[str, Any]:
        levels: dict[str, dict[str, Any]] = {}
        names = self.tasks(seed).levels
        for level in dict.fromkeys(names.tolist()):
            won, taken = result.successes[names == level], result.steps[names == level]
            levels[level] = {
                "episodes": len(won), "successes": int(won.sum()),
                "mean_steps": float(taken[won].mean()) if won.any() else None,
            }  # fmt: skip
        row = {
            "environment": self.settings.environment,
            "method": method,
            "seed": seed,
            "phase": "cleaned" if steps else "initial",
            "cleanup_steps": steps,
            **result.asdict(),
            "levels": levels,
            "lost_engines": result.reasons.get("simulator lost", 0),
            "nodes": None, "edges": None, "largest_part": None, "false_edges": None,
        }  # fmt: skip
        size = ""
        if memory is not None and buffer is not None:
            lengths = edge_lengths(memory.nodes, memory.edges(), buffer.poses)
            false = float((lengths > FALSE).mean()) if len(lengths) else None
            row |= {
                "nodes": len(memory),
                "edges": len(lengths),
                "largest_part": memory.largest_part(),
                "false_edges": false,
            }
            size = f", {len(memory):,} nodes, {len(lengths):,} edges"
        low, high = result.ci95
        after = f" after {steps:,} cleanup steps" if steps else ""
        shares = " / ".join(f"{100 * item['successes'] / item['episodes']:.0f}" for item in levels.values())
        self._say(
            f"seed {seed}: {method}{after}: {result.rate:.1%} of {result.episodes} [{low:.1%}, {high:.1%}], "
            f"by level {shares} %{size}"
        )
        return row


def remember_ways(memory: sgm.SparseGraphicalMemory, episodes: NDArray[np.int64]) -> None:
    """Count every step of the episodes a memory was built from as a success of the edge it went along."""
    node = memory.assignment
    went = (episodes[1:] == episodes[:-1]) & (node[1:] != node[:-1]) & (node[1:] >= 0) & (node[:-1] >= 0)
    memory.record_many(node[:-1][went], node[1:][went], np.ones(int(went.sum()), np.bool_))


def edge_lengths(nodes: NDArray[np.int64], edges: sgm.Edges, poses: NDArray[np.float32]) -> NDArray[np.float64]:
    """(E,) true lengths of edges, map units."""
    places = poses[nodes, :2].astype(np.float64)
    return np.hypot(*(places[edges.source] - places[edges.target]).T)
