"""The declaration of a benchmark (`Benchmark`), its methods and settings, and the pieces in which it is run.

A benchmark is run in pieces, for example one for each seed. Its functions make the environment, networks, buffer of
observations, tasks, memories and agents of a piece. `engine.py` calls them in order, stores finished stages, resumes
interrupted runs, and writes the results and the report.
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
WORKERS = "cleanup workers, which share the robots; 1: no extra process. Results depend on the number of workers"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings that all benchmarks share. A benchmark adds its own fields; results depend on all of them."""

    seeds: tuple[int, ...] = seed((0,), "seeds to run")
    methods: tuple[str, ...] = option((), "methods to run", fewest=1, metavar="NAME")
    cleanup_steps: int = steps(50_000)
    checkpoints: tuple[int, ...] = steps(())
    workers: int = count(1, WORKERS)
    backend: str = option("multiprocessing", "how several workers are started", choices=BACKENDS)

    def __post_init__(self) -> None:
        """Check the values."""
        check_values(self)

    @property
    def schedule(self) -> list[int]:
        """Numbers of cleanup steps after which success is evaluated, in ascending order."""
        return sorted({step for step in self.checkpoints if step < self.cleanup_steps} | {self.cleanup_steps} - {0})


@dataclasses.dataclass(frozen=True)
class Draws:
    """Tasks that the environment draws at reset.

    Attributes:
        seed: seed of the reset.
        options: options of the reset; the items of a list are used in turn, see `sgm.evaluate`.
        episodes: number of episodes; None: one for each sub-environment.
    """

    seed: int
    options: Any = dataclasses.field(default_factory=dict)
    episodes: int | None = None


@dataclasses.dataclass(frozen=True)
class Method:
    """A method that a benchmark compares: which memory it builds, and how that memory is cleaned up.

    Attributes:
        label: display name in help, console, tables and figures.
        title: display name in tables of several benchmarks; empty: the label.
        build: builds its memory for a piece; None: the method has no memory.
        filter: k of a k-nearest filter that is evaluated as a separate phase; None: no such phase.
        cleaned: whether its memory is cleaned up.
        policy: name of its cleanup policy; empty: the policy of the rows, or of the settings of the run.
        goals: how cleanup chooses goals, "random" or "active".
        learned: whether it uses the networks of the piece.
        extras: optional dependencies that it needs beyond those of the benchmark.
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
        """(phase, cleanup steps) of each stage that is evaluated."""
        filtered = [("filtered", 0)] if self.filter is not None else []
        cleaned = [("cleaned", steps) for steps in schedule if self.cleaned and self.build]
        return [("initial", 0), *filtered, *cleaned]


def plain_report(run: RunFolder) -> list[page.Section]:
    """Report sections that suit any benchmark: settings, success, failures."""
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
        label: display name in tables.
        title: one line on what is compared, for `sgm run --help`.
        description: a paragraph for `sgm run NAME --help`.
        settings: dataclass of options, a subclass of `Settings`.
        quick: settings of `--quick`.
        methods: methods by name, in the order of the tables.
        environment: piece to the name of its environment in results, which begins with "NAME:".
        env: makes the vector environment of the evaluation, without autoreset.
        tasks: makes the evaluation tasks: `Draws`, or starts and goals for `env.reset`.
        agent: (piece, method, memory or None, agent name or None, whether it cleans up) to an agent.
        report: run folder to the sections of its report page.
        console: rows to the tables printed at the end of a run.
        distance: the distance and the features (or None) with which memories of a piece are built and loaded.
        explore: collects the random exploration of a piece, the training data of its networks.
        learn: trains or loads the networks of a piece.
        buffer: makes the observations from which memories of a piece are built.
        world: makes the map, maze or rooms of a piece.
        cleanup_env: makes the vector environment of cleanup; None: the evaluation environment without its step limit.
        cleanup_reset: piece to the reset options of cleanup.
        cleanup_episode: piece to the number of steps of a cleanup episode.
        unbroken: the robots of cleanup continue from stage to stage, so that success after a number of steps does not
            depend on earlier stages. It needs its own `cleanup_env`; an interrupted cleanup is repeated from its start.
        axes: axes that identify a piece in rows and folders, each with the setting of its values; the last is "seed".
        shared: names of files and folders that the pieces of a run share.
        fields: fields that only rows of this benchmark have (ground truth, breakdown), with their shapes.
        policies: cleanup policies by name, from which `settings.policies` chooses.
        agents: names of agents, from which `settings.agents` chooses.
        evaluated: piece to the names of the agents evaluated in it, if there are several.
        declined: (piece, method) to the reason why the method is left out of the piece; empty: it is run.
        agent_settings: agent settings that all methods share; part of the results.
        facts: (piece, memory or None) to fields of a row that need ground truth about the memory.
        breakdown: (piece, evaluation) to further fields of a row, for example success by level.
        summary: (run folder, folders of pieces) to further entries of `results.json`.
        record: (piece, method, memory file, last row): stores data for figures after every stage.
        shown: node positions, images, walls and episodes for the inspector.
        figure_data: stores data for the figures of a finished piece.
        has_figure_data: whether the data of `figure_data` is stored.
        check: raises an error for invalid settings, before any work is done.
        robots: name of the setting with the number of cleanup robots, which several workers share.
        may_differ: settings that may differ between runs in one folder, beyond pieces, methods and policies.
        added: settings that earlier versions did not have, with the values that these versions used.
        paper_command: the command that makes the results for the paper's tables.
        extras: extras of the package, each with the modules that a run needs.
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
        """Check that an unbroken cleanup has its own environment, so that evaluations do not disturb its robots."""
        if self.unbroken and self.cleanup_env is None:
            raise ValueError(f"benchmark {self.name!r} is unbroken: give it a cleanup_env")

    @property
    def held(self) -> list[str]:
        """Names of files and folders that only runs of this benchmark write, with "*" for a number."""
        return [f"{next(iter(self.axes))}*", *self.shared]

    @property
    def free_settings(self) -> set[str]:
        """Settings that may differ between runs in one folder: pieces, methods, policies and `may_differ`."""
        policies = {"policies"} if self.policies else set()
        return {*self.axes.values(), "methods", "backend", *policies, *self.may_differ}

    @property
    def earlier(self) -> dict[str, Any]:
        """Values of settings that runs of earlier versions used without storing them."""
        return {"workers": 1, **self.added}

    def found(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Settings that list the pieces, methods and policies of these rows."""
        axes = {field: sorted({row[axis] for row in rows}) for axis, field in self.axes.items()}
        named = {"methods": ("method", self.methods), "policies": ("policy", self.policies)}
        kept = {field: {row.get(key) for row in rows} for field, (key, _) in named.items()}
        chosen = {
            field: [name for name in known if name in kept[field]] for field, (_, known) in named.items() if known
        }
        return {**axes, **chosen}


class Piece:
    """One piece of a run, for example a seed. Its environment, networks and so on are made on first use.

    Attributes:
        benchmark: the declaration.
        settings: settings of the run.
        numbers: numbers or names that identify the piece, for example {"seed": 0}.
        out: folder of the run.
        folder: folder of the piece.
        command: the command line that the results record.
        progress: whether to show progress bars.
        random: generator of random actions, seeded again at the beginning of each stage.
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
        """Describe a piece; nothing is computed or written yet."""
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
        """Print a message that begins with the name of the piece."""
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
        """Trained networks."""
        return self.benchmark.learn(self)

    @cached_property
    def buffer(self) -> Any:
        """Observations from which memories are built."""
        return self.benchmark.buffer(self)

    @cached_property
    def tasks(self) -> Any:
        """Evaluation tasks, the same for all methods and phases."""
        return self.benchmark.tasks(self)

    def build(self, method: str) -> sgm.SparseGraphicalMemory:
        """Build the memory of a method, before any cleanup, and print the warnings about it."""
        build = self.benchmark.methods[method].build
        if build is None:
            raise sgm.InputError(f"method {method!r} has no memory: give a method that builds one")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemoryWarning)
            memory = build(self)
        self.benchmark.shown.decorate(self, memory)
        for warning in memory.stats().warnings:
            self.say(f"warning: {method}: {warning}")
        return memory

    def load(self, path: Path, policy: str | None = None) -> sgm.SparseGraphicalMemory:
        """Load a memory of this piece; `policy` replaces its stored cleanup policy."""
        chosen = None if policy is None else self.benchmark.policies[policy]
        return sgm.SparseGraphicalMemory.load(path, *self.benchmark.distance(self), policy=chosen)

    def make_agent(self, method: str, memory: Any, *, name: str | None = None, clean: bool = False) -> Any:
        """Make the agent of a method; `name` is one of the benchmark's agents, if it has several."""
        return self.benchmark.agent(self, method, memory, name, clean)

    def close(self) -> None:
        """Stop the simulators."""
        for name in ("env", "cleanup_env"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()


def piece_folder(out: Path, numbers: Mapping[str, int | str]) -> Path:
    """Folder of a piece inside the folder of its run."""
    return out.joinpath(*(piece_name(axis, value) for axis, value in numbers.items()))
