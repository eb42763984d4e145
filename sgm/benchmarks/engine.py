"""Run a benchmark: pieces × methods × policies × stages × agents, then write the results and the report.

A piece is, for example, a seed; a chain is a method with a cleanup policy; a stage is an evaluation before or after
some cleanup. Every finished stage is on disk before the next one begins, and each stage has its own random numbers (an
unbroken cleanup has one stream for the chain), so an interrupted run resumes and gives the same result. Runs of
different pieces, methods and policies in one folder are combined.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.distributed import Crew
from sgm.errors import MissingExtra
from sgm.navigation import Cleaner, Evaluation, Recorder, run_episodes

from . import page, tables
from .base import Benchmark, Draws, Piece, Row, piece_folder
from .checks import COUNT
from .provenance import provenance
from .results import StateFile, claim_folder, find_pieces, write_json
from .runs import SCHEMA
from .seeds import Purpose
from .shown import keep_episodes
from .threads import one_thread
from .workers import worker_env


class Run:
    """A run of a benchmark in a folder, which may hold an interrupted run."""

    def __init__(
        self,
        benchmark: Benchmark,
        settings: Any,
        out: Path,
        *,
        command: str = "",
        resume: bool = True,
        progress: bool = True,
    ) -> None:
        """Check the settings and the installation, then claim the folder.

        Args:
            benchmark: the declaration.
            settings: settings of the run, an instance of `benchmark.settings`.
            out: folder of the run.
            command: the command line that the results record.
            resume: resume the run in the folder; otherwise remove its files and start over.
            progress: whether to show progress bars.
        """
        self.benchmark, self.settings, self.out = benchmark, settings, out
        self.command, self.progress = command, progress
        require_extras(benchmark, settings.methods)
        benchmark.check(settings)
        constants = {"agent": dict(benchmark.agent_settings)} if benchmark.agent_settings else {}
        kept = {**dataclasses.asdict(settings), **constants}
        kept = {name: value for name, value in kept.items() if name not in benchmark.free_settings}
        claim_folder(out, kept, self._states(), benchmark.held, resume=resume, defaults=benchmark.earlier)

    def run(self) -> Path:
        """Run all stages that are not finished; return the path of the report."""
        axes = self.benchmark.axes
        for values in itertools.product(*(getattr(self.settings, field) for field in axes.values())):
            numbers = dict(zip(axes, values, strict=True))
            how: dict[str, Any] = {"command": self.command, "progress": self.progress}
            with contextlib.closing(Piece(self.benchmark, self.settings, numbers, self.out, **how)) as piece:
                self._run_piece(piece)
        rows = self.write_results()
        print("\n" + tables.console(self.benchmark.console(rows)))
        path = page.write_report(self.benchmark, self.out, dataclasses.asdict(self.settings))
        print(f"\nreport: {path}")
        return path

    def write_results(self) -> list[Row]:
        """Write results.json from all finished stages in the folder, including those of earlier commands."""
        rows = [row for state in self._states() for row in state.rows()]
        folders = [piece_folder(self.out, numbers) for numbers in find_pieces(self.out, self.benchmark.axes)]
        content = {
            "schema": SCHEMA,
            "benchmark": self.benchmark.name,
            **provenance(self.command),
            "settings": {**dataclasses.asdict(self.settings), **self.benchmark.found(rows)},
            "agent": dict(self.benchmark.agent_settings),
            **self.benchmark.summary(self.out, folders),
            "rows": rows,
        }
        write_json(self.out / "results.json", content)
        return rows

    # -- state files ---------------------------------------------------------------------------------------------

    def _chain(self, numbers: Mapping[str, int | str], method: str, policy: str | None) -> StateFile:
        """State file of a method with a policy in a piece."""
        facts = {**numbers, "method": method, **({} if policy is None else {"policy": policy})}
        folder = piece_folder(self.out, numbers).joinpath(method, *([] if policy is None else [policy]))
        needed = ("agent",) if self.benchmark.agents else ()
        shapes = {**dict.fromkeys(numbers, COUNT), **self.benchmark.fields}
        return StateFile(folder, facts, self.benchmark.methods[method].build is not None, needed, shapes)

    def _states(self) -> list[StateFile]:
        """State files of all pieces in the folder, including those of earlier commands."""
        pieces = find_pieces(self.out, self.benchmark.axes)
        chains = list(itertools.product(self.benchmark.methods, self.benchmark.policies or [None]))
        return [self._chain(numbers, *chain) for numbers in pieces for chain in chains]

    # -- one piece -----------------------------------------------------------------------------------------------

    def _run_piece(self, piece: Piece) -> None:
        policies = self.settings.policies if self.benchmark.policies else [None]
        chains = itertools.product(self.settings.methods, policies)
        left = [chain for chain in chains if not self._is_finished(piece, *chain)]
        for method in dict.fromkeys(method for method, _ in left):
            if why := self.benchmark.declined(piece, method):
                piece.say(f"{method} is left out: {why}")
                left = [chain for chain in left if chain[0] != method]
        methods = [self.benchmark.methods[method] for method, _ in left]
        drawn = self.benchmark.has_figure_data(piece) and not any(method.build for method in methods)
        if not left and drawn:
            return
        piece.folder.mkdir(parents=True, exist_ok=True)
        if not drawn or any(method.learned for method in methods):
            _ = piece.networks
        # Training is over: leave the other cores to the simulators. Results do not depend on the number of threads.
        with one_thread():
            for method, policy in left:
                self._run_chain(piece, method, policy)
                self.write_results()
            if not drawn:
                self.benchmark.figure_data(piece)

    def _is_finished(self, piece: Piece, method: str, policy: str | None) -> bool:
        chain = self._chain(piece.numbers, method, policy)
        state, stages = chain.read(), self.benchmark.methods[method].stages(self.settings.schedule)
        return state is not None and all(_is_done(state, stage) for stage in stages) and chain.has_memory(state)

    def _run_chain(self, piece: Piece, method: str, policy: str | None) -> None:
        """Evaluate the stages of a method that are not finished."""
        chain, spec = self._chain(piece.numbers, method, policy), self.benchmark.methods[method]
        chain.folder.mkdir(parents=True, exist_ok=True)
        state = chain.read()
        memory: Any = None
        again = self.benchmark.unbroken  # robots cannot be stored: the cleanup of the chain is repeated
        if again and state is not None:
            chain.memory_file(state)  # StoreError if it is missing, since nothing would make it again
        if spec.build is not None:
            if state is None or again:
                memory = self._built(piece, method, policy)
            else:
                memory = piece.load(chain.memory_file(state), policy)
        done = 0 if again or state is None else state["done"]
        with contextlib.closing(_Cleaning(piece, method, memory, done)) as cleaning:
            self._run_stages(piece, chain, method, memory, cleaning, state)

    def _run_stages(
        self, piece: Piece, chain: StateFile, method: str, memory: Any, cleaning: _Cleaning, state: Any
    ) -> None:
        """Run the stages of a method that are not finished; `state` holds the finished ones."""
        spec, again = self.benchmark.methods[method], self.benchmark.unbroken
        stages = spec.stages(self.settings.schedule)
        if memory is not None:
            self.benchmark.shown.write_floor(piece, chain.folder)
        for phase, steps in stages:
            known = state is not None and _is_done(state, (phase, steps))
            if known and not again:
                continue
            numbers = [list(self.benchmark.methods).index(method), *([steps] if steps else [])]
            piece.random = np.random.default_rng([piece.seed_for(Purpose.CONTROLLER), *numbers])
            seconds = None
            if phase == "filtered":
                memory.filter(spec.filter)
            elif phase == "cleaned":
                seconds = cleaning.until(steps)
            if known:
                continue
            about = {**chain.facts, "phase": phase, "cleanup_steps": steps, "cleanup_seconds": seconds}
            recorders = [] if memory is None else self._recorders(piece, about)
            rows = [*(state["rows"] if state else []), *self._rows(piece, memory, about, recorders)]
            keep_episodes(chain.folder, [*recorders, *cleaning.recorders])
            if memory is not None and (phase, steps) == stages[-1]:
                self.benchmark.shown.write_guarantee(piece, method, memory, chain.folder)
            state = chain.save_stage(memory, rows, steps, last=(phase, steps) == stages[-1])
            if memory is not None:
                self.benchmark.record(piece, method, chain.memory_file(state), rows[-1])

    def _built(self, piece: Piece, method: str, policy: str | None) -> sgm.SparseGraphicalMemory:
        """Memory of a method before any cleanup, shared by all policies."""
        if policy is None:
            return piece.build(method)
        path = piece.folder / method / "built.sgm"
        if not path.exists():
            self.benchmark.shown.write_floor(piece, path.parent)
            piece.build(method).save(path)
        return piece.load(path, policy)

    def _agents(self, piece: Piece) -> Sequence[str | None]:
        """Names of the agents to evaluate; a single agent may have the name None."""
        return self.benchmark.evaluated(piece) if self.benchmark.agents else [None]

    def _recorders(self, piece: Piece, about: Mapping[str, Any]) -> list[Recorder]:
        """Recorders of a stage, one for each agent."""
        steps = about["cleanup_steps"]
        text = f"after {steps:,} cleanup steps" if steps else f"before cleanup, {about['phase']}"
        return self.benchmark.shown.recorders(piece, piece.env, self._agents(piece), text)

    def _rows(self, piece: Piece, memory: Any, about: Mapping[str, Any], recorders: Sequence[Recorder]) -> list[Row]:
        """Evaluate every agent on a stage; one row each."""
        graph = {
            "nodes": None if memory is None else len(memory),
            "edges": None if memory is None else len(memory.edges().source),
            "largest_part": None if memory is None else memory.largest_part(),
            **self.benchmark.facts(piece, memory),
        }
        rows = []
        for name, recorder in itertools.zip_longest(self._agents(piece), recorders):
            agent = piece.make_agent(about["method"], memory, name=name)
            result = rollout(agent, piece.env, piece.tasks, recorder=recorder, progress=self.progress)
            rows.append(
                {
                    "environment": self.benchmark.environment(piece),
                    **about,
                    **({} if name is None else {"agent": name}),
                    **result.asdict(),
                    **self.benchmark.breakdown(piece, result),
                    **graph,
                }
            )
            piece.say(_summary(rows[-1]))
        return rows


def _is_done(state: Mapping[str, Any], stage: tuple[str, int]) -> bool:
    """Whether a state has the results of a stage."""
    phase, steps = stage
    return steps <= state["done"] if phase == "cleaned" else any(row["phase"] == phase for row in state["rows"])


def _summary(row: Row) -> str:
    """One-line summary of a row."""
    who = ", ".join(row[name] for name in ("method", "policy", "agent", "phase") if name in row)
    after = f" after {row['cleanup_steps']:,} cleanup steps" if row["cleanup_steps"] else ""
    low, high = row["ci95"]
    parts = [f"{who}{after}: {row['success_rate']:.1%} of {row['episodes']} [{low:.1%}, {high:.1%}]"]
    parts += [f"{name} {each['successes'] / each['episodes']:.0%}" for name, each in row.get("levels", {}).items()]
    if row["nodes"] is not None:
        parts += [f"{row['nodes']:,} nodes", f"{row['edges']:,} edges"]
    if row.get("false_edges") is not None:
        parts += [f"{row['false_edges']:.1%} false"]
    return ", ".join(parts)


# -- episodes ----------------------------------------------------------------------------------------------------


def rollout(
    agent: Any, env: Any, tasks: Any, *, traces: int = 0, recorder: Recorder | None = None, progress: bool = False
) -> Evaluation:
    """Run one episode for each task and record the first `traces` of them; a cleaning agent cleans up meanwhile."""
    how: dict[str, Any] = {"traces": traces, "recorder": recorder, "progress": progress}
    if isinstance(tasks, Draws):
        return run_episodes(agent, env, tasks.episodes, seed=tasks.seed, options=tasks.options, **how)
    return run_episodes(agent, env, tasks=tasks, **how)


class _Cleaning:
    """Cleanup of one memory, from stage to stage."""

    def __init__(self, piece: Piece, method: str, memory: Any, done: int) -> None:
        """Continue with a memory after `done` cleanup steps."""
        self.piece, self.method, self.memory, self.done = piece, method, memory, done
        self.cleaner: Cleaner | None = None
        self.crew: Crew | None = None  # replaces the cleaner if there are several workers
        self.recorders: list[Recorder] = []

    def until(self, steps: int) -> float:
        """Clean up to `steps` steps in all; return the seconds. Robots start again unless the benchmark is unbroken."""
        piece, benchmark = self.piece, self.piece.benchmark
        if piece.settings.workers > 1:
            return self._until_by_crew(steps)
        env = piece.cleanup_env
        limit, env.max_episode_steps = getattr(env, "max_episode_steps", None), None
        try:
            if self.cleaner is None or not benchmark.unbroken:
                about = f"after {self.done:,} steps" if self.done else ""
                self.recorders = [benchmark.shown.cleanup_recorder(piece, env, about)]
                self.cleaner = Cleaner(
                    piece.make_agent(self.method, self.memory, clean=True),
                    env,
                    seed=[piece.seed_for(Purpose.CLEANUP), self.done],
                    options=benchmark.cleanup_reset(piece),
                    goals=benchmark.methods[self.method].goals,
                    episode_steps=benchmark.cleanup_episode(piece),
                    recorder=self.recorders[0],
                )
            seconds = self.cleaner.run(steps - self.done, piece.progress).seconds
        finally:
            env.max_episode_steps = limit
        self.done = steps
        return seconds

    def _until_by_crew(self, steps: int) -> float:
        """`until` with several workers, whose episodes are not recorded."""
        piece, benchmark = self.piece, self.piece.benchmark
        seed = [piece.seed_for(Purpose.CLEANUP), self.done]
        if self.crew is None:
            self.crew = Crew(
                piece.make_agent(self.method, self.memory, clean=True),
                worker_env(piece),
                workers=piece.settings.workers,
                backend=piece.settings.backend,
                seed=seed,
                options=benchmark.cleanup_reset(piece),
                goals=benchmark.methods[self.method].goals,
                episode_steps=benchmark.cleanup_episode(piece),
            )
        elif not benchmark.unbroken:
            self.crew.begin(seed)
        seconds = self.crew.run(steps - self.done, piece.progress).seconds
        self.done = steps
        return seconds

    def close(self) -> None:
        """Stop the workers, if there are any."""
        if self.crew is not None:
            self.crew.close()


# -- optional dependencies ---------------------------------------------------------------------------------------


def require_extras(benchmark: Benchmark, methods: tuple[str, ...]) -> None:
    """Raise MissingExtra if a module that these methods of a benchmark need is not installed."""
    needed = [(f"sgm run {benchmark.name}", benchmark.extras)]
    needed += [(f"method {method}", benchmark.methods[method].extras) for method in methods]
    for what, extras in needed:
        for extra, modules in extras.items():
            for module in modules:
                if importlib.util.find_spec(module) is None:
                    raise MissingExtra(what, extra, ModuleNotFoundError(name=module))
