"""The paper's third benchmark, whole: explore, train, build, evaluate, clean up, evaluate, report.

Every finished piece is on disk before the next one begins, and each has seeds of its own, so a run that was interrupted
goes on to the same result, and runs of some layouts, seeds, methods and policies make up one of all.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import State, claim, read_array, read_arrays, read_choice, read_quality, write_json, writing
from sgm.navigation import Cleaner, Evaluation, MemorySight, OdometryNavigator, evaluate_tasks

from .ground_truth import FALSE, edge_lengths, true_part
from .learn import HELD_OUT, Networks, networks
from .settings import FREE, METHODS, POLICIES, SCHEMA, SafetySettings

if TYPE_CHECKING:
    from sgm.envs.safety.env import Rollouts, SafetyRoomsVectorEnv, Tasks

# One way of building and one agent for every method; the paper's MaxSteps and k, and its equations as they are printed.
# Over neighbours only, node counts jump with τ_a so much that for some networks no order has a threshold for 900.
BUILD: dict[str, Any] = {"max_dist": 9.0, "k": 6, "scope": "memory"}
AGENT: dict[str, Any] = {"max_steps": 25, "radius": 0.3, "ahead": 3}
AGENTS: dict[str, dict[str, Any]] = {
    "plain": {},  # forgets what failed
    "persistent": {"penalty": 50.0, "tries": 8},  # avoids it for the rest of the episode
}
CLEANUP_EPISODE = 300


@dataclasses.dataclass
class Buffer:
    """What a seed's memories are built from."""

    frames: NDArray[np.uint8]  # (n, 64, 64, 3)
    odometry: NDArray[np.float32]  # (n, 6)


class SafetyRun:
    """A run in a folder."""

    def __init__(
        self, settings: SafetySettings, out: Path, *, command: str = "", resume: bool = True, progress: bool = True
    ) -> None:
        """Begin in `out`, or go on there if it holds an unfinished run of the same settings.

        `command` is what the results say made them.
        """
        self.command, self.settings, self.out, self.progress = command, settings, out, progress
        chosen = [f"layout{layout}/seed{seed}" for layout in settings.layouts for seed in settings.seeds]
        patterns = [f"{folder}/{end}" for folder in chosen for end in ("networks/*", "*.*", "*/*.*", "*/*/*.*")]
        claim(
            out, settings, resume=resume, free=FREE, left_overs=patterns, states=self._states(),
            constants={"agent": self.agent},
        )  # fmt: skip

    def run(self) -> Path:
        """Do everything; the path of the report."""
        from . import report as safety_report

        for layout in self.settings.layouts:
            for seed in self.settings.seeds:
                piece = SafetyPiece(self, layout, seed)
                try:
                    piece.run()
                finally:
                    piece.close()
        rows = self.write_results()
        print("\n" + safety_report.console_table(rows))
        path = safety_report.write_report(self.out)
        print(f"\nreport: {path}")
        return path

    @property
    def agent(self) -> dict[str, Any]:
        """What all methods share."""
        return {**BUILD, **AGENT, "agents": AGENTS, "cleanup_episode": CLEANUP_EPISODE}

    def write_results(self) -> list[dict[str, Any]]:
        """Gather the rows of all finished pieces of the folder, also those of other commands, into results.json."""
        quality, choices = {}, {}
        for folder in sorted(self.out.glob("layout*/seed*")):
            name = f"{folder.parent.name}/{folder.name}"
            quality[name] = read_quality(folder / "networks")
            for method in METHODS:
                if choice := read_choice(folder / method):
                    choices[f"{name}/{method}"] = {**choice, "tried": len(choice["tried"])}
        rows = [row for state in self._states() for row in state.rows()]
        found = {
            name: sorted({row[key] for row in rows}, key=known.index if known else None)
            for name, key, known in (
                ("layouts", "layout", ()), ("seeds", "seed", ()), ("methods", "method", METHODS),
                ("policies", "policy", tuple(POLICIES)),
            )
        }  # fmt: skip
        content = {
            "schema": SCHEMA,
            "benchmark": "safety",
            **provenance(self.command),
            "settings": {**dataclasses.asdict(self.settings), **found},
            "agent": self.agent,
            "quality": quality,
            "thresholds": choices,
            "rows": rows,
        }
        write_json(self.out / "results.json", content)
        return rows

    def _states(self) -> list[State]:
        """Of all pieces of the folder, also those of other commands."""
        folders = sorted(self.out.glob("layout*/seed*"))
        return [_state(folder, method, policy) for folder in folders for method in METHODS for policy in POLICIES]

    def folder(self, layout: int, seed: int) -> Path:
        """Where a piece is."""
        return self.out / f"layout{layout}" / f"seed{seed}"

    def say(self, text: str) -> None:
        """Tell the user what happens."""
        print(text, flush=True)


class SafetyPiece:
    """One layout and one seed of a run."""

    def __init__(self, run: SafetyRun, layout: int, seed: int) -> None:
        """Work in the piece's own folder."""
        from sgm.envs.safety.layouts import generate

        self.parent, self.settings, self.layout_seed, self.seed = run, run.settings, layout, seed
        self.layout = generate(layout)
        self.folder = run.folder(layout, seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = f"layout {layout}, seed {seed}"

    def run(self) -> None:
        """Do what is not done yet."""
        from . import figure_data as safety_evidence

        chains = [(method, policy) for method in self.settings.methods for policy in self.settings.policies]
        left = [chain for chain in chains if not self._finished(*chain)]
        if not left and safety_evidence.is_written(self.folder):
            return
        _ = self.networks
        # Training is over: from here on the simulators need the other cores, and threads that wait for work take them.
        with one_thread():
            for method, policy in left:
                self._run_chain(method, policy)
                self.parent.write_results()
            if not safety_evidence.is_written(self.folder):
                safety_evidence.write(self)

    def close(self) -> None:
        """Stop the simulators."""
        if "env" in self.__dict__:
            self.env.close()
            del self.env

    # -- what the methods share ----------------------------------------------------------------------------------

    @cached_property
    def env(self) -> SafetyRoomsVectorEnv:
        """The robots; what they see is drawn only when it is asked for."""
        from sgm.envs.safety.env import SafetyRoomsVectorEnv

        return SafetyRoomsVectorEnv(
            self.settings.robots, layout=self.layout, workers=self.settings.workers, pictures=False,
            max_episode_steps=self.settings.episode_steps,
        )  # fmt: skip

    def _seed(self, purpose: int) -> int:
        """A seed for one purpose of this piece: nothing that is random is used twice."""
        return int(np.random.SeedSequence([self.layout_seed, self.seed, purpose]).generate_state(1)[0])

    @cached_property
    def rollouts(self) -> Rollouts:
        """Random exploration."""
        from sgm.envs.safety.env import explore

        settings = self.settings
        self.parent.say(f"{self.name}: exploring, {settings.rollouts} × {settings.rollout_steps:,} random steps")
        return explore(
            self.env, settings.rollouts, settings.rollout_steps, self._seed(0), progress=self.parent.progress
        )  # fmt: skip

    def _held_out(self) -> Rollouts:
        from sgm.envs.safety.env import explore

        return explore(self.env, min(HELD_OUT, self.settings.rollouts), self.settings.rollout_steps, self._seed(1))

    @cached_property
    def networks(self) -> Networks:
        """What was learned."""
        return networks(
            self.settings, self.folder / "networks", self.seed, lambda: self.rollouts, self._held_out,
            lambda text: self.parent.say(f"{self.name}: {text}"), self.parent.command, self.parent.progress,
        )  # fmt: skip

    @cached_property
    def buffer(self) -> Buffer:
        """A random part of the exploration, in random order."""
        path = self.folder / "buffer.npz"
        if not path.exists():
            found = self.rollouts
            frames = found.frames.reshape(-1, *found.frames.shape[2:])
            chosen = np.random.default_rng(self._seed(2)).permutation(len(frames))[: self.settings.candidates]
            odometry = found.odometry.reshape(len(frames), -1)[chosen]
            with writing(path) as file:
                np.savez_compressed(file, frames=frames[chosen], odometry=odometry)
        stored = read_arrays(self.folder, path.name, "frames", "odometry")
        return Buffer(stored["frames"], stored["odometry"])

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks of this piece: all methods and phases meet the same starts and goals."""
        from sgm.envs.safety.env import Tasks

        return Tasks.draw(self.layout, self.settings.tasks, self._seed(3))

    @cached_property
    def task_pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """What is seen at the starts and at the goals."""
        return self.env.see(self.tasks.starts), self.env.see(self.tasks.goals)

    # -- memories ------------------------------------------------------------------------------------------------

    def memory(self, method: str, policy: str) -> tuple[sgm.SparseGraphicalMemory, NDArray[np.float32]]:
        """The memory of a method before any cleanup, and (V, 3) where its nodes were seen."""
        folder = self.folder / method
        if not (folder / "places.npy").exists():
            folder.mkdir(parents=True, exist_ok=True)
            memory, chosen = self._build(method)
            memory.save(folder / "built.sgm")
            with writing(folder / "places.npy") as file:
                np.save(file, self.buffer.odometry[chosen, :3])
        return self._load(folder / "built.sgm", policy), read_array(folder, "places.npy")

    def _load(self, path: Path, policy: str) -> sgm.SparseGraphicalMemory:
        found = self.networks
        return sgm.SparseGraphicalMemory.load(path, found.distance, found.features, policy=POLICIES[policy])

    def _build(self, method: str) -> tuple[sgm.SparseGraphicalMemory, NDArray[np.int64]]:
        """Build a method's memory; also which observations of the buffer its nodes are."""
        frames, found = self.buffer.frames, self.networks
        if method == "consptm":
            dense = sgm.SparseGraphicalMemory(found.distance, found.features, criterion="none", **BUILD)
            dense.extend(frames, progress=self.parent.progress)
            return dense, dense.nodes
        choice = sgm.choose_threshold(
            found.distance, frames, self.settings.nodes, features=found.features, seed=self._seed(4),
            criterion="two-way" if method == "both" else method, tau_p="auto" if method == "both" else None,
            progress=self.parent.progress, **BUILD,
        )  # fmt: skip
        write_json(self.folder / method / "choice.json", choice.asdict())
        return choice.memory, choice.stream

    def navigator(
        self, memory: sgm.SparseGraphicalMemory, places: NDArray[np.float32], agent: str = "plain", clean: bool = False
    ) -> OdometryNavigator:
        """An agent over a memory."""
        return OdometryNavigator(
            memory, self.networks.controller, places=places, look=self.env.look, sight=self._sight(memory),
            clean=clean, **AGENT, **AGENTS[agent],
        )  # fmt: skip

    def _sight(self, memory: sgm.SparseGraphicalMemory) -> MemorySight:
        """Without an end to distances: beyond it all nodes are equally far, and one of them is the nearest."""
        return MemorySight(memory, self.networks.distance.unlimited())

    # -- one method under one policy -----------------------------------------------------------------------------

    def _finished(self, method: str, policy: str) -> bool:
        state = _state(self.folder, method, policy).read()
        return state is not None and state["done"] >= self.settings.cleanup_steps

    def _run_chain(self, method: str, policy: str) -> None:
        """Evaluate, and clean up and evaluate by the schedule, from where it stands."""
        kept = _state(self.folder, method, policy)
        kept.folder.mkdir(parents=True, exist_ok=True)
        state = kept.read()
        memory, places = self.memory(method, policy)
        if state is None:
            state = self._keep(kept, memory, self._rows(method, policy, 0, memory, places, None), 0)
        else:
            memory = self._load(kept.memory_file(state), policy)
        for target in self.settings.schedule:
            if target <= state["done"]:
                continue
            cleaner = Cleaner(
                self.navigator(memory, places, clean=True), self.env, seed=[self._seed(5), state["done"]],
                options={"goals": None}, episode_steps=CLEANUP_EPISODE,
            )  # fmt: skip
            self.env.max_episode_steps = None
            report = cleaner.run(target - state["done"], self.parent.progress)
            self.env.max_episode_steps = self.settings.episode_steps
            rows = [*state["rows"], *self._rows(method, policy, target, memory, places, report.seconds)]
            state = self._keep(kept, memory, rows, target)

    def _keep(self, kept: State, memory: sgm.SparseGraphicalMemory, rows: list[Any], done: int) -> dict[str, Any]:
        return kept.keep(memory, rows, done, final=done >= self.settings.cleanup_steps)

    def _rows(
        self, method: str, policy: str, steps: int, memory: sgm.SparseGraphicalMemory, places: NDArray[np.float32],
        seconds: float | None,
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Evaluate every agent."""
        graph = self._graph(memory, places)
        rows = []
        for agent in self.settings.agents:
            result = evaluate_tasks(
                self.navigator(memory, places, agent), self.env, self.tasks, progress=self.parent.progress
            )
            rows.append(
                {
                    "environment": f"safety:rooms{self.layout_seed}",
                    "layout": self.layout_seed,
                    "method": method,
                    "policy": policy,
                    "agent": agent,
                    "seed": self.seed,
                    "phase": "cleaned" if steps else "initial",
                    "cleanup_steps": steps,
                    "cleanup_seconds": seconds,
                    **result.asdict(),
                    "outcomes": "".join("01"[int(won)] for won in result.successes),
                    **graph,
                }
            )
            self._say_row(method, policy, agent, steps, result, graph)
        return rows

    def _graph(self, memory: sgm.SparseGraphicalMemory, places: NDArray[np.float32]) -> dict[str, Any]:
        """What is wrong with a memory, by the true places."""
        lengths = edge_lengths(memory.edges(), places)
        starts, goals = self.task_pictures
        sight = self._sight(memory)
        at = places[sight.to_nodes(starts).argmin(axis=1), :2]
        to = places[[int(sight.from_nodes(goal).argmin()) for goal in goals], :2]
        return {
            "nodes": len(memory),
            "edges": len(lengths),
            "largest_part": memory.largest_part(),
            "true_part": true_part(memory.edges(), lengths, len(memory)),
            "false_edges": float((lengths > FALSE).mean()) if len(lengths) else None,
            "false_starts": float((np.hypot(*(at - self.tasks.starts[:, :2]).T) > FALSE).mean()),
            "false_goals": float((np.hypot(*(to - self.tasks.goals[:, :2]).T) > FALSE).mean()),
        }

    def _say_row(
        self, method: str, policy: str, agent: str, steps: int, result: Evaluation, graph: dict[str, Any]
    ) -> None:
        low, high = result.ci95
        after = f" after {steps:,} cleanup steps" if steps else ""
        self.parent.say(
            f"{self.name}: {method}, {policy}, {agent}{after}: {result.rate:.1%} of {result.episodes} "
            f"[{low:.1%}, {high:.1%}], {graph['nodes']:,} nodes, {graph['edges']:,} edges, "
            f"{graph['false_edges'] or 0:.1%} false, {graph['largest_part'] / graph['nodes']:.0%} connected"
        )


def _state(piece: Path, method: str, policy: str) -> State:
    return State(piece / method / policy, {"method": method, "policy": policy}, needed=("layout", "agent"))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Numbers are computed by one thread in here."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
