"""The paper's first benchmark, whole: train, build, evaluate, filter, evaluate, clean up, evaluate, report.

Every finished piece is on disk before the next one begins, and each has seeds of its own, so a run that was interrupted
goes on to the same result.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.provenance import provenance
from sgm.benchmarks.results import State, claim, write_json
from sgm.envs.point.env import PointMazeVectorEnv
from sgm.navigation import Cleaner, Evaluation, Navigator, PolicyAgent, Trace, evaluate, run_episodes

MEMORY_METHODS = ("sorb+sgm", "sorb")
POLICY_METHODS = ("d3pg", "ddpg+her", "sac+her")
METHODS = (*MEMORY_METHODS, *POLICY_METHODS)
EPISODE_STEPS = 600
TRAINING_ENVS = 20  # they advance together, once every so many iterations
SCHEMA = 1
_UNIFORM = {"uniform": True}
# The paper's settings (appendix, PointEnv), and how each agent tells that it has reached a waypoint.
_SGM: dict[str, Any] = {"criterion": "two-way", "tau_a": 5.0, "tau_p": 0.05, "max_dist": 10.0, "k": 5}
_SORB: dict[str, Any] = {"criterion": "none", "max_dist": 6.0, "k": 5}
_AGENTS: dict[str, dict[str, Any]] = {
    "sorb+sgm": {"max_steps": 30, "cutoff": 1.0},
    # As in the authors' code: start and goal are attached to all nodes within MaxDist, and hops are counted.
    "sorb": {
        "max_steps": 18,
        "reached": "distance",
        "hopping": True,
        "candidates": "all",
        "within": None,
        "by": "hops",
    },
}


@dataclasses.dataclass(frozen=True)
class PointSettings:
    """What a run of the benchmark does; everything here decides its result."""

    seeds: tuple[int, ...] = (0,)  # each trains its own networks and builds its own memories
    methods: tuple[str, ...] = ("sorb+sgm", "sorb", "d3pg")
    maze: str = "FourRooms"  # a name or a text file, see sgm.envs.point.mazes
    maze_seed: int = 0  # which of the random mazes
    resize: int = 5  # inflate cells by this factor
    thin: bool = True  # walls one cell thick, the paper's setting
    difficulty: float = 0.95  # goal distance as a share of the largest
    episodes: int = 200  # evaluation episodes for each seed, method and phase
    cleanup_steps: int = 50_000  # environment steps of cleanup in all
    checkpoints: tuple[int, ...] = (5_000, 10_000, 20_000, 50_000)  # cleanup steps after which to evaluate
    buffer_size: int = 1_000  # observations the memories are built from
    criterion: str = "two-way"  # merging criterion of sorb+sgm
    policy: str = "first-failure"  # cleanup policy of both memories
    by: str = "distance"  # plan by distance or hops; sorb always counts hops
    agents: int = 50  # agents that clean at once
    iterations: int = 30_000  # training iterations of D3PG and steps of the baselines

    def __post_init__(self) -> None:
        """Check what no other part checks."""
        unknown = [method for method in self.methods if method not in METHODS]
        if unknown:
            raise sgm.InputError(f"no method is called {unknown[0]!r}: expected some of {', '.join(METHODS)}")
        for name in ("episodes", "buffer_size", "agents", "iterations"):
            if getattr(self, name) < 1:
                raise sgm.InputError(f"{name} is {getattr(self, name)}: expected 1 or more")
        if self.cleanup_steps < 0 or not self.seeds:
            raise sgm.InputError(
                f"cleanup_steps is {self.cleanup_steps} and seeds {self.seeds}: expected 0 or more steps and a seed"
            )

    @property
    def schedule(self) -> list[int]:
        """Cleanup steps at which success is evaluated, the last one included."""
        return sorted({step for step in self.checkpoints if step < self.cleanup_steps} | {self.cleanup_steps} - {0})

    @property
    def environment(self) -> str:
        """What results call the environment."""
        return f"point:{Path(self.maze).stem}-{'thin' if self.thin else 'thick'}"

    def maze_settings(self) -> dict[str, Any]:
        """What the environment is made with."""
        return {"maze": self.maze, "maze_seed": self.maze_seed, "resize": self.resize, "thin": self.thin}

    def env(self, number: int, steps: int | None = EPISODE_STEPS) -> PointMazeVectorEnv:
        """So many mazes, episodes of so many steps."""
        return PointMazeVectorEnv(number, autoreset_mode="Disabled", max_episode_steps=steps, **self.maze_settings())


QUICK = {
    "episodes": 20,
    "cleanup_steps": 1_000,
    "checkpoints": (500,),
    "buffer_size": 200,
    "iterations": 1_000,
    "agents": 20,
}


class PointRun:
    """A run in a folder."""

    def __init__(
        self, settings: PointSettings, out: Path, *, command: str = "", resume: bool = True, progress: bool = True
    ) -> None:
        """Begin in `out`, or go on there if it holds an unfinished run of the same settings.

        `command` is what the results say made them.
        """
        self.command = command
        self.settings = settings
        self.out = out
        self.progress = progress
        # What is wrong should be said now, not after minutes of training.
        settings.env(1).reset(seed=0, options={"difficulty": settings.difficulty})
        for method in MEMORY_METHODS:
            sgm.SparseGraphicalMemory(None, **self._memory_settings(method, size=1))
        claim(
            out, settings, resume=resume, free=("seeds", "methods"), states=self._states(),
            left_overs=("seed*/*.safetensors", "seed*/*/*.safetensors", "seed*/*/*.json", "seed*/*/*.sgm",
                        "seed*/*/*.new"),
        )  # fmt: skip

    def run(self) -> Path:
        """Do everything; the path of the report."""
        import torch

        torch.set_num_threads(1)  # sums, and so results, then do not depend on the machine
        for seed in self.settings.seeds:
            for method in self.settings.methods:
                if method in MEMORY_METHODS:
                    self._run_memory(seed, method)
                else:
                    self._run_policy(seed, method)
                self.write_results()
        from sgm.benchmarks import page as report
        from sgm.benchmarks import tables

        rows = self.write_results()
        print("\n" + tables.console_table(rows))
        path = report.write_report(self.out, self.settings.maze)
        print(f"\nreport: {path}")
        return path

    def write_results(self) -> list[dict[str, Any]]:
        """Gather the rows of all finished pieces into results.json."""
        rows = [row for state in self._states() for row in state.rows()]
        content = {
            "schema": SCHEMA,
            **provenance(self.command),
            "settings": dataclasses.asdict(self.settings),
            "rows": rows,
        }
        write_json(self.out / "results.json", content)
        return rows

    def _state(self, seed: int, method: str) -> State:
        facts = {"method": method, "seed": seed}
        return State(self.out / f"seed{seed}" / method, facts, method in MEMORY_METHODS)

    def _states(self) -> list[State]:
        return [self._state(seed, method) for seed in self.settings.seeds for method in self.settings.methods]

    def _say(self, seed: int, text: str) -> None:
        print(f"seed {seed}: {text}", flush=True)

    def _networks(self, seed: int) -> Any:
        """The networks of a seed, trained now or before."""
        from sgm.controllers.d3pg import D3PGConfig, train
        from sgm.distances.sorb import GoalNetworks

        folder = self.out / f"seed{seed}"
        weights, checkpoint = folder / "weights.safetensors", folder / "checkpoint.safetensors"
        if not weights.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._say(seed, f"training distance and controller, {self.settings.iterations:,} iterations")
            env = PointMazeVectorEnv(TRAINING_ENVS, max_episode_steps=20, **self.settings.maze_settings())
            config = D3PGConfig(iterations=self.settings.iterations)
            learner = train(env, config, seed=seed, progress=self.progress, checkpoint=checkpoint, resume=True)
            learner.save(weights)
            checkpoint.unlink(missing_ok=True)
        return GoalNetworks.load(weights)

    def _tools(self, seed: int) -> tuple[Any, Any]:
        from sgm.controllers.d3pg import Actor
        from sgm.distances.sorb import DistributionalDistance

        networks = self._networks(seed)
        return DistributionalDistance(networks), Actor(networks)

    def _evaluate(self, agent: Any, seed: int) -> Evaluation:
        """All methods and phases of a seed meet the same starts and goals."""
        env = self.settings.env(self.settings.episodes)
        options = {"difficulty": self.settings.difficulty}
        return evaluate(agent, env, seed=1_000_000 * (seed + 1), options=options, progress=self.progress)

    def _row(self, seed: int, method: str, phase: str, steps: int, result: Evaluation, memory: Any) -> dict[str, Any]:
        row = {
            "environment": self.settings.environment,
            "method": method,
            "seed": seed,
            "phase": phase,
            "cleanup_steps": steps,
            **result.asdict(),
            "nodes": None if memory is None else len(memory),
            "edges": None if memory is None else len(memory.edges().source),
            "largest_part": None if memory is None else memory.largest_part(),
        }
        low, high = result.ci95
        after = f" after {steps:,} cleanup steps" if phase == "cleaned" else ""
        size = "" if memory is None else f", {row['nodes']:,} nodes, {row['edges']:,} edges"
        self._say(
            seed, f"{method}, {phase}{after}: {result.rate:.1%} of {result.episodes} [{low:.1%}, {high:.1%}]{size}"
        )
        return row

    def _run_policy(self, seed: int, method: str) -> None:
        kept = self._state(seed, method)
        if kept.read() is not None:
            return
        folder = kept.folder
        folder.mkdir(parents=True, exist_ok=True)
        if method == "d3pg":
            _, policy = self._tools(seed)
        else:
            from .baselines import train_baseline

            self._say(seed, f"training {method}, {self.settings.iterations:,} steps")
            policy = train_baseline(
                method, self.settings.maze_settings(), steps=self.settings.iterations, seed=seed,
                progress=self.progress, folder=folder,
            )  # fmt: skip
        result = self._evaluate(PolicyAgent(policy), seed)
        kept.write({"rows": [self._row(seed, method, "initial", 0, result, None)]})

    def _run_memory(self, seed: int, method: str) -> None:
        """Build, evaluate, filter, evaluate, and clean up and evaluate by the schedule, from where it stands."""
        kept = self._state(seed, method)
        folder = kept.folder
        state = kept.read() or {"rows": [], "done": 0, "memory": None}
        if state["rows"] and state["done"] >= self.settings.cleanup_steps and (folder / "memory.sgm").exists():
            return
        distance, actor = self._tools(seed)
        folder.mkdir(parents=True, exist_ok=True)
        if state["memory"] is None:
            memory = self._build(seed, method, distance)
            rows = [self._memory_row(seed, method, "initial", 0, memory, actor)]
            memory.filter((_SGM if method == "sorb+sgm" else _SORB)["k"])
            rows.append(self._memory_row(seed, method, "filtered", 0, memory, actor))
            state = kept.keep(memory, rows, 0)
            self._record_episode(folder, seed, method, distance, actor, state)
        memory = sgm.SparseGraphicalMemory.load(kept.memory_file(state), distance)
        for target in self.settings.schedule:
            if target <= state["done"]:
                continue
            self._clean(seed, method, memory, actor, state["done"], target)
            row = self._memory_row(seed, method, "cleaned", target, memory, actor)
            state = kept.keep(memory, [*state["rows"], row], target)
            self._record_episode(folder, seed, method, distance, actor, state)
        kept.settle(state)

    def _build(self, seed: int, method: str, distance: Any) -> sgm.SparseGraphicalMemory:
        """The memory of a method over the seed's buffer, before any filter."""
        observations = buffer(self.settings, seed)
        size = None
        if method == "sorb+sgm" and self.settings.criterion == "uniform":
            # Matched in size to what two-way consistency keeps of the same buffer.
            twin = sgm.SparseGraphicalMemory(distance, **{**self._memory_settings(method, 1), **_SGM, "size": None})
            size = twin.extend(observations).added
        memory = sgm.SparseGraphicalMemory(distance, **self._memory_settings(method, size))
        memory.extend(observations, progress=self.progress)
        return memory

    def _memory_settings(self, method: str, size: int | None) -> dict[str, Any]:
        """The settings of a method's memory before any filter; `size` is for uniform subsampling."""
        chosen = {**_SGM, "criterion": self.settings.criterion} if method == "sorb+sgm" else _SORB
        uniform = chosen["criterion"] == "uniform"
        return {**chosen, "k": None, "policy": self.settings.policy, "size": size if uniform else None}

    def _navigator(self, method: str, memory: Any, actor: Any, clean: bool = False) -> Navigator:
        return Navigator(memory, actor, clean=clean, **{"by": self.settings.by, **_AGENTS[method]})

    def _memory_row(self, seed: int, method: str, phase: str, steps: int, memory: Any, actor: Any) -> dict[str, Any]:
        result = self._evaluate(self._navigator(method, memory, actor), seed)
        return self._row(seed, method, phase, steps, result, memory)

    def _clean(self, seed: int, method: str, memory: Any, actor: Any, done: int, target: int) -> None:
        """Clean up from `done` to `target` steps; the agents begin anew, so that a run can go on from here."""
        navigator = self._navigator(method, memory, actor, clean=True)
        env = self.settings.env(self.settings.agents, steps=None)
        cleaner = Cleaner(navigator, env, seed=[seed, done], options=_UNIFORM)
        cleaner.run(target - done, self.progress)

    def _record_episode(
        self, folder: Path, seed: int, method: str, distance: Any, actor: Any, state: dict[str, Any]
    ) -> None:
        """Look for an episode in which edges fail, the robot replans and arrives, and keep it for a figure."""
        if (folder / "episode.json").exists() or not state["rows"][-1]["successes"]:
            return
        for attempt in range(8):
            memory = sgm.SparseGraphicalMemory.load(folder / state["memory"], distance)
            navigator = self._navigator(method, memory, actor, clean=True)
            options = {"difficulty": self.settings.difficulty}
            env = self.settings.env(1)
            trace: Trace = run_episodes(
                navigator, env, seed=2_000_000 * (seed + 1) + attempt, options=options, traces=1
            ).traces[0]
            if trace.success and 1 <= len(trace.cuts) <= 4:
                write_json(folder / "episode.json", trace.asdict())
                return


def buffer(settings: PointSettings, seed: int) -> NDArray[np.float32]:
    """(n, 2) observations spread evenly over the maze, as the authors sample theirs."""
    env = settings.env(settings.buffer_size)
    return env.reset(seed=3_000_000 * (seed + 1), options=_UNIFORM)[0]["observation"]
