"""What a benchmark declares, and what its functions are given.

A benchmark is run in pieces, for example one for each seed. Its functions make what a piece needs: the environment, the
networks, the buffer of observations, the tasks, memories and agents. `engine.py` calls them in order, keeps what is
finished, resumes, and writes the results and the report.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.distributed.backends import BACKENDS
from sgm.errors import MemoryWarning

from . import page, tables
from .checks import Shape
from .options import check_values, count, option, seed, steps
from .results import piece_name
from .runs import RunFolder
from .seeds import Purpose, seed_for
from .shown import Shown

Row = dict[str, Any]
WORKERS = "workers that clean up, each with its share of the robots; 1: this process alone. Results depend on how many"


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that every benchmark has. A benchmark adds its own; all of them decide its result."""

    seeds: tuple[int, ...] = seed((0,), "seeds to run")
    methods: tuple[str, ...] = option((), "methods to run", fewest=1, metavar="NAME")
    cleanup_steps: int = steps(50_000)
    checkpoints: tuple[int, ...] = steps(())
    workers: int = count(1, WORKERS)
    backend: str = option("multiprocessing", "where several workers run", choices=BACKENDS)

    def __post_init__(self) -> None:
        """Check the values."""
        check_values(self)

    @property
    def schedule(self) -> list[int]:
        """Cleanup steps at which success is evaluated, the last one included."""
        return sorted({step for step in self.checkpoints if step < self.cleanup_steps} | {self.cleanup_steps} - {0})


@dataclasses.dataclass(frozen=True)
class Draws:
    """Tasks that the environment draws itself when it is reset.

    Attributes:
        seed: of the reset.
        options: of the reset; a list of them is used in turn, see `sgm.evaluate`.
        episodes: how many; None: one for each sub-environment.
    """

    seed: int
    options: Any = dataclasses.field(default_factory=dict)
    episodes: int | None = None


@dataclasses.dataclass(frozen=True)
class Method:
    """One way to solve the tasks.

    Attributes:
        label: what help, console, tables and figures call it.
        title: what a table of several benchmarks calls it; empty: its label.
        build: makes its memory for a piece; None: it has none.
        filter: k of a k-nearest filter that is a phase of its own; None: there is no such phase.
        cleaned: its memory is cleaned up.
        policy: name of the cleanup policy of its memory; empty: what the rows or the settings of a run say.
        goals: where cleanup sends its agents, "random" or "active".
        learned: it uses the piece's networks.
        extras: what it needs beyond the benchmark's extras.
    """

    label: str
    title: str = ""
    build: Callable[[Piece], sgm.SparseGraphicalMemory] | None = None
    filter: int | None = None
    cleaned: bool = True
    policy: str = ""
    goals: str = "random"
    learned: bool = True
    extras: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def stages(self, schedule: Sequence[int]) -> list[tuple[str, int]]:
        """Phase and cleanup steps of each stage."""
        filtered = [("filtered", 0)] if self.filter is not None else []
        cleaned = [("cleaned", steps) for steps in schedule if self.cleaned and self.build]
        return [("initial", 0), *filtered, *cleaned]


def plain_report(run: RunFolder) -> list[page.Section]:
    """The sections that every benchmark can have: how it was run, success, failures."""
    return page.standard(run, page.Section("Results", [tables.main_table(run.rows)]))


def _nothing(*_: Any) -> Any:
    return None


def _chosen_agents(piece: Piece) -> Sequence[str]:
    found: Sequence[str] = piece.settings.agents
    return found


def _no_facts(*_: Any) -> Row:
    return {}


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """A declaration that `engine.Run` turns into results and a report.

    Attributes:
        name: as in `sgm run NAME`.
        label: what tables call it.
        title: what is compared, for `sgm run --help`.
        description: a paragraph for `sgm run NAME --help`.
        settings: a dataclass of options, a subclass of `Settings`.
        quick: the settings of `--quick`.
        methods: by name, in the order of the tables.
        environment: what results call the environment of a piece; begins with the name of the benchmark and a colon.
        env: makes the vector environment of the evaluation, without autoreset.
        tasks: makes what is evaluated: `Draws`, or starts and goals for `env.reset`.
        agent: (piece, method, memory or None, name of the agent or None, whether it cleans) to an agent.
        report: gives the sections of the page about a run folder.
        console: gives the tables of these rows that are printed at the end.
        distance: the distance and the features (or None) that memories of a piece are built and loaded with.
        explore: makes the random exploration that networks, and perhaps memories, of a piece are made from.
        learn: makes or loads the networks of a piece.
        buffer: makes what memories of a piece are built from.
        world: makes the map, maze or rooms of a piece.
        cleanup_env: makes the vector environment of cleanup; None: that of the evaluation, without its step limit.
        cleanup_reset: gives the options of resets in cleanup.
        cleanup_episode: gives the steps of a cleanup episode.
        unbroken: the robots of cleanup go on from stage to stage, so that success after so many steps does not depend
            on the stages before. It needs a `cleanup_env` of its own, and what was interrupted cleans up once more.
        axes: what tells pieces apart, in rows and folders, and the setting with its values; the last one is "seed".
        shared: names of files and folders that the pieces of a run share.
        fields: what only rows of this benchmark have, by ground truth or in a breakdown, and its shape.
        policies: cleanup policies by name, if `settings.policies` chooses some of them.
        agents: names of agents, if `settings.agents` chooses some of them.
        evaluated: gives the names of the agents that are evaluated in a piece, if there are several.
        declined: (piece, method) to why the method is left out of the piece; empty: it is not.
        agent_settings: what all methods share; part of the results.
        facts: (piece, memory or None) to what a row says of a memory by ground truth.
        breakdown: (piece, evaluation) to what else a row says of an evaluation.
        summary: (run folder, folders of pieces) to what else `results.json` says.
        record: (piece, method, memory file, last row): keeps what figures need after every stage.
        shown: what there is to see of memories and episodes: places, images, walls.
        figure_data: keeps what figures need of a finished piece.
        has_figure_data: whether that is there.
        check: raises what is wrong with settings, before any work is done.
        robots: the setting that says how many robots clean up at once; several workers share them.
        may_differ: settings that may differ between runs in one folder, beyond pieces, methods and policies.
        added: settings that runs of earlier versions did not have, and what these did.
        paper_command: makes what the tables of the paper have of it.
        extras: for each extra of the package, the modules of it that a run needs.
    """

    name: str
    label: str
    title: str
    description: str
    settings: type[Settings]
    quick: Mapping[str, Any]
    methods: Mapping[str, Method]
    environment: Callable[[Piece], str]
    env: Callable[[Piece], Any]
    tasks: Callable[[Piece], Any]
    agent: Callable[[Piece, str, Any, str | None, bool], Any]
    report: Callable[[RunFolder], Sequence[page.Section]] = plain_report
    console: Callable[[Sequence[Row]], Sequence[tables.Table]] = lambda rows: [tables.main_table(rows)]
    distance: Callable[[Piece], tuple[Any, Any]] = lambda piece: (piece.networks, None)
    explore: Callable[[Piece], Any] = _nothing
    learn: Callable[[Piece], Any] = _nothing
    buffer: Callable[[Piece], Any] = _nothing
    world: Callable[[Piece], Any] = _nothing
    cleanup_env: Callable[[Piece], Any] | None = None
    cleanup_reset: Callable[[Piece], Mapping[str, Any]] = _no_facts
    cleanup_episode: Callable[[Piece], int] = lambda _: 600
    unbroken: bool = False
    axes: Mapping[str, str] = dataclasses.field(default_factory=lambda: {"seed": "seeds"})
    shared: Sequence[str] = ()
    fields: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    policies: Mapping[str, sgm.CleanupPolicy] = dataclasses.field(default_factory=dict)
    agents: Sequence[str] = ()
    evaluated: Callable[[Piece], Sequence[str]] = _chosen_agents
    declined: Callable[[Piece, str], str] = lambda *_: ""
    agent_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    facts: Callable[[Piece, Any], Row] = _no_facts
    breakdown: Callable[[Piece, Any], Row] = _no_facts
    summary: Callable[[Path, Sequence[Path]], Row] = _no_facts
    record: Callable[[Piece, str, Path, Row], None] = _nothing
    shown: Shown = dataclasses.field(default_factory=Shown)
    figure_data: Callable[[Piece], None] = _nothing
    has_figure_data: Callable[[Piece], bool] = lambda _: True
    check: Callable[[Any], None] = _nothing
    robots: str = ""
    may_differ: Sequence[str] = ()
    added: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    paper_command: str = ""
    extras: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=lambda: {"viz": ("matplotlib",)})

    def __post_init__(self) -> None:
        """See that robots which go on from stage to stage are left alone in between."""
        if self.unbroken and self.cleanup_env is None:
            raise ValueError(f"benchmark {self.name!r} is unbroken: it needs a cleanup_env")

    @property
    def held(self) -> list[str]:
        """What its runs write into their folders beyond what all runs do, with "*" for a number."""
        return [f"{next(iter(self.axes))}*", *self.shared]

    @property
    def free_settings(self) -> set[str]:
        """Settings in which runs in one folder may differ: which pieces, methods and policies are run, and others."""
        policies = {"policies"} if self.policies else set()
        return {*self.axes.values(), "methods", "backend", *policies, *self.may_differ}

    @property
    def earlier(self) -> dict[str, Any]:
        """What runs of earlier versions did that settings can say now."""
        return {"workers": 1, **self.added}

    def found(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Settings that say which pieces, methods and policies there are rows of."""
        axes = {field: sorted({row[axis] for row in rows}) for axis, field in self.axes.items()}
        named = {"methods": ("method", self.methods), "policies": ("policy", self.policies)}
        kept = {field: {row.get(key) for row in rows} for field, (key, _) in named.items()}
        chosen = {
            field: [name for name in known if name in kept[field]] for field, (_, known) in named.items() if known
        }
        return {**axes, **chosen}


class Piece:
    """One piece of a run: for example a seed. What its benchmark makes for it is made when it is first asked for.

    Attributes:
        benchmark: the declaration.
        settings: of the run.
        numbers: what tells it from other pieces, numbers or names, for example {"seed": 0}.
        out: the folder of the run.
        folder: the folder of the piece.
        command: what results say made them.
        progress: show progress bars.
        random: a generator for random actions, anew at the beginning of each stage.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        settings: Any,
        numbers: Mapping[str, int | str],
        out: Path,
        *,
        command: str = "",
        progress: bool = True,
    ) -> None:
        """Describe a piece; nothing is made or written yet."""
        self.benchmark, self.settings, self.out = benchmark, settings, out
        self.numbers: dict[str, Any] = dict(numbers)
        self.command, self.progress = command, progress
        self.folder = piece_folder(out, numbers)
        self.name = ", ".join(f"{axis} {number}" for axis, number in numbers.items())
        self.random = np.random.default_rng(self.seed_for(Purpose.CONTROLLER))

    def seed_for(self, purpose: Purpose) -> int:
        """A seed for one purpose of this piece."""
        return seed_for(tuple(self.numbers.values()), purpose)

    def say(self, text: str) -> None:
        """Tell the user what happens."""
        print(f"{self.name}: {text}", flush=True)

    @cached_property
    def world(self) -> Any:
        """The map, maze or rooms."""
        return self.benchmark.world(self)

    @cached_property
    def env(self) -> Any:
        """The vector environment of the evaluation."""
        return self.benchmark.env(self)

    @cached_property
    def cleanup_env(self) -> Any:
        """The vector environment of cleanup."""
        make = self.benchmark.cleanup_env
        return self.env if make is None else make(self)

    @cached_property
    def rollouts(self) -> Any:
        """Random exploration."""
        return self.benchmark.explore(self)

    @cached_property
    def networks(self) -> Any:
        """What was learned."""
        return self.benchmark.learn(self)

    @cached_property
    def buffer(self) -> Any:
        """What memories are built from."""
        return self.benchmark.buffer(self)

    @cached_property
    def tasks(self) -> Any:
        """What is evaluated, the same for all methods and phases."""
        return self.benchmark.tasks(self)

    def build(self, method: str) -> sgm.SparseGraphicalMemory:
        """The memory of a method before any cleanup; says what its figures warn of."""
        build = self.benchmark.methods[method].build
        if build is None:
            raise sgm.InputError(f"method {method!r} has no memory: build another one")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemoryWarning)
            memory = build(self)
        self.benchmark.shown.decorate(self, memory)
        for warning in memory.stats().warnings:
            self.say(f"warning: {method}: {warning}")
        return memory

    def load(self, path: Path, policy: str | None = None) -> sgm.SparseGraphicalMemory:
        """A memory of this piece from its file, with a cleanup policy in the place of the stored one."""
        chosen = None if policy is None else self.benchmark.policies[policy]
        return sgm.SparseGraphicalMemory.load(path, *self.benchmark.distance(self), policy=chosen)

    def make_agent(self, method: str, memory: Any, *, name: str | None = None, clean: bool = False) -> Any:
        """The agent of a method; `name` is one of the benchmark's agents, if it has several."""
        return self.benchmark.agent(self, method, memory, name, clean)

    def close(self) -> None:
        """Stop the simulators."""
        for name in ("env", "cleanup_env"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()


def piece_folder(out: Path, numbers: Mapping[str, int | str]) -> Path:
    """The folder of a piece in that of its run."""
    return out.joinpath(*(piece_name(axis, value) for axis, value in numbers.items()))
