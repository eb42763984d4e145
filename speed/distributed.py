"""Speed of cleanup with many workers: steps/s by backend and number of workers, and the capacity of one owner.

python -m speed.distributed --out results/distributed

Every measured row is stored in OUT/measured.json, and repeating the command measures the missing rows: no row starts
after `--minutes`, and the command lists the rows it left out.

Other programs disturb wall times. So the settings are measured in turn, several times, and medians are reported.
The report also has the CPU time of this process and all its children, simulators and Ray included, on which other
programs have little effect. Rows with more workers than cores are marked.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sgm
from sgm.benchmarks.base import Piece
from sgm.benchmarks.threads import one_thread
from sgm.benchmarks.workers import worker_env
from sgm.distributed import Crew
from sgm.distributed.messages import Batch
from sgm.distributed.owner import Owner
from sgm.distributed.pool import Pool
from sgm.errors import MemoryWarning
from sgm.navigation import Cleaner
from speed.report import Report

WEIGHTS = Path(__file__).parents[1] / "tests/data/golden/point.safetensors"
PLAIN = "no workers"
BAR = 1.6  # two workers against one, SafetyGym, on two cores
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class World(NamedTuple):
    """Agent and environment of a cleanup.

    Attributes:
        name: name of the benchmark.
        agent: function that makes an agent with a memory before cleanup.
        env: function that makes the environment of one worker.
        robots: number of robots of each worker.
        how: further arguments of `Cleaner`.
    """

    name: str
    agent: Callable[[], Any]
    env: Callable[[], Any]
    robots: int
    how: dict[str, Any]


class Measured(NamedTuple):
    """One measurement: environment steps, wall and CPU seconds, CPU seconds of the owner, batches and records."""

    steps: int
    wall: float
    cpu: float
    owner: float
    batches: int
    records: int


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--quick", action="store_true", help="few steps of PointEnv, to test that it runs")
    parser.add_argument("--steps", type=int, default=5_120, help="steps of each worker (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=2, help="number of measurements of each row (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="minutes after which no row starts (default: %(default)s)"
    )
    parser.add_argument(
        "--weights", type=Path, default=WEIGHTS, help="networks of PointEnv, of `sgm run point` (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of workers (default: 1 2 4 8)"
    )
    parser.add_argument("--worlds", nargs="*", default=["point", "safety"], choices=["point", "safety"])
    parser.add_argument("--no-ray", action="store_true", help="leave Ray out, even if it is installed")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.repeats, options.workers, options.worlds = 200, 1, [2], ["point"]
    ray = not (options.quick or options.no_ray) and importlib.util.find_spec("ray") is not None
    report = Report("speed.distributed")
    backends = ["multiprocessing", *(["ray"] if ray else [])]
    kept = Kept(None if options.out is None else options.out / "measured.json", options)
    with _cluster(ray), tempfile.TemporaryDirectory() as folder:
        for name in options.worlds:
            with WORLDS[name](Path(folder), options.weights) as world, one_thread():
                _cleanup(report, world, backends, options, kept)
        _capacity(report, Path(folder), backends, 30 if options.quick else 1_000)
    if options.out:
        report.write(options.out)
    if kept.missing:
        print(f"not measured in {options.minutes:g} minutes, repeat the command for: {', '.join(kept.missing)}")


class Kept:
    """Measurements of this command and of earlier ones with the same steps, stored in a file if one is given."""

    def __init__(self, path: Path | None, options: argparse.Namespace) -> None:
        self.path, self.end, self.missing = path, time.monotonic() + 60 * options.minutes, list[str]()
        self._steps = options.steps
        self.rows: dict[str, Measured] = {}
        if path is not None and path.exists():
            self.rows = {name: Measured(**row) for name, row in json.loads(path.read_text()).items()}

    def measured(self, world: World, backend: str, workers: int, repeat: int) -> Measured | None:
        """Return a row that was measured before, or measure and store it; None if there is no time left."""
        name = f"{world.name}, {backend}, {workers} workers, {self._steps} steps, {repeat}"
        if name not in self.rows:
            if time.monotonic() > self.end:
                self.missing.append(name)
                return None
            self.rows[name] = _measured(world, backend, workers, self._steps)
            print(f"  {name}: {self.rows[name]}", flush=True)
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                rows = {name: row._asdict() for name, row in self.rows.items()}
                self.path.write_text(json.dumps(rows, indent=2) + "\n")
        return self.rows[name]


# -- steps per second --------------------------------------------------------------------------------------------


def _cleanup(report: Report, world: World, backends: list[str], options: argparse.Namespace, kept: Kept) -> None:
    """Measure the rows of one world, in turn."""
    plans = [(PLAIN, 1), ("in-process", 1), *((backend, n) for backend in backends for n in options.workers)]
    found: dict[tuple[str, int], list[Measured]] = {plan: [] for plan in plans}
    for repeat in range(options.repeats):
        for plan in plans:
            if (one := kept.measured(world, *plan, repeat)) is not None:
                found[plan].append(one)
    found = {plan: runs for plan, runs in found.items() if runs}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for (backend, workers), runs in found.items():
        one = found.get((backend, 1), runs)
        rate, cpu = (_median(runs, name) for name in ("wall", "cpu"))
        ratio = rate / _median(one, "wall")
        row = {
            "backend": backend,
            "workers": workers,
            "more_than_cores": "yes" if workers > cores else "",
            "steps": runs[0].steps,
            "steps_per_second": rate,
            "of_one_worker": ratio,
            "steps_per_cpu_second": cpu,
            "cpu_of_one_worker": cpu / _median(one, "cpu"),
            "cores_used": float(np.median([run.cpu / run.wall for run in runs])),
        }
        bar = (world.name, backend, workers) == ("SafetyGym", "multiprocessing", 2)
        row["at_least"] = BAR if bar else ""
        row["holds"] = ("yes" if ratio >= BAR else "NO") if bar else ""
        report.add(f"{world.name}: cleanup, {world.robots} robots a worker", **row)
    _served(report, world, found)


def _median(runs: list[Measured], clock: str) -> float:
    return float(np.median([run.steps / getattr(run, clock) for run in runs]))


def _served(report: Report, world: World, found: dict[tuple[str, int], list[Measured]]) -> None:
    """Estimate how many workers one owner can serve, from CPU times of the owner and of a worker for a batch."""
    for (backend, workers), runs in found.items():
        if backend == PLAIN or workers != 2:
            continue
        owner = float(np.median([run.owner / run.batches for run in runs]))
        worker = float(np.median([(run.cpu - run.owner) / run.batches for run in runs]))
        report.add(
            "What one owner serves, from its CPU time and that of two workers",
            world=world.name,
            backend=backend,
            steps_per_batch=runs[0].steps / runs[0].batches,
            records_per_batch=runs[0].records / runs[0].batches,
            owner_ms_per_batch=1000 * owner,
            worker_ms_per_batch=1000 * worker,
            workers_served=int(worker / owner),
        )


def _measured(world: World, backend: str, workers: int, steps: int) -> Measured:
    """Measure cleanup of a new memory, after a warm-up."""
    agent, warm = world.agent(), 20 * world.robots
    agent.clean = True
    if backend == PLAIN:
        with contextlib.closing(world.env()) as env:
            if agent.look is not None:
                agent.look = env.look
            cleaner = Cleaner(agent, env, seed=2, **world.how)
            cleaner.run(warm)
            return _clocked(lambda: cleaner.run(steps), lambda: (0, 0))
    with Crew(agent, world.env, workers=workers, backend=backend, seed=2, **world.how) as crew:
        crew.run(warm * workers)
        counts = crew.owner.counts
        return _clocked(lambda: crew.run(steps * workers), lambda: (counts.batches, counts.records))


def _clocked(run: Callable[[], Any], counted: Callable[[], tuple[int, int]]) -> Measured:
    wall, cpu, own, before = time.perf_counter(), _cpu_of_all(), time.process_time(), counted()
    result = run()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    cpu = max(_cpu_of_all() - cpu, own)
    batches, records = (after - then for after, then in zip(counted(), before, strict=True))
    return Measured(result.steps, wall, cpu, own, batches, records)


def _cpu_of_all() -> float:
    """CPU seconds of this process and its running descendants; without /proc, only of this process."""
    if not Path("/proc/self/stat").exists():
        return time.process_time()
    used, parent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            number = int(path.parent.name)
            parent[number], used[number] = int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICK
    return sum(seconds for number, seconds in used.items() if _descends(number, parent))


def _descends(number: int, parent: dict[int, int]) -> bool:
    while number in parent:
        if number == os.getpid():
            return True
        number = parent[number]
    return False


# -- capacity of one owner ---------------------------------------------------------------------------------------


class _Echo:
    """A worker that returns the request."""

    num_envs = 1

    def answer(self, request: Any) -> Any:
        return request

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass


def _capacity(report: Report, folder: Path, backends: list[str], number: int) -> None:
    """Measure messages and records per second: applying them, and transporting them."""
    section = "What one owner takes in"
    for live in (False, True):
        for size in (1, 10, 100):
            memory = _plane(folder / f"{size}.sgm" if live else None)
            owner, edges, dice = Owner(memory), memory.edges(), np.random.default_rng(0)
            name = owner.enlist(0)
            batches = []
            for place in range(number):
                rows = dice.integers(len(edges.source), size=size)
                ends = edges.source[rows], edges.target[rows]
                batches.append(Batch(name, place + 1, *ends, dice.random(size) < 0.9))
            wall, cpu = time.perf_counter(), time.process_time()
            for batch in batches:
                owner.take(batch)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            memory.close()
            row = {"messages_per_second": number / wall, "records_per_second": number * size / wall}
            by_cpu = {"messages_per_cpu_second": number / cpu, "records_per_cpu_second": number * size / cpu}
            report.add(section, memory="live file" if live else "RAM", records_per_message=size, **row, **by_cpu)
    for backend in backends:
        _carrying(report, backend, number)


def _carrying(report: Report, backend: str, number: int) -> None:
    """Measure a request of 100 numbers, and an answer of the same size."""
    with contextlib.closing(Pool(lambda _: _Echo, 1, backend)) as pool:
        (member, _), *_ = pool.wait()
        wall, own, cpu = time.perf_counter(), time.process_time(), _cpu_of_all()
        for _ in range(number):
            pool.ask(member, np.arange(100), 0)
            pool.wait()
        wall, own, cpu = time.perf_counter() - wall, time.process_time() - own, _cpu_of_all() - cpu
    report.add(
        "What a message costs, both ways",
        backend=backend,
        messages_per_second=number / wall,
        owner_cpu_ms=1000 * own / number,
        cpu_ms=1000 * cpu / number,
    )


class _Plane:
    """Euclidean distance in a plane."""

    def embed(self, observations: Any) -> np.ndarray:
        return np.asarray(observations, np.float32)

    def __call__(self, starts: Any, goals: Any) -> np.ndarray:
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


def _plane(path: Path | None) -> sgm.SparseGraphicalMemory:
    """Make a memory of about 900 nodes."""
    how: dict[str, Any] = {"tau_a": 1.0, "tau_p": 0.8, "max_dist": 3.0, "k": 8, "policy": "belief"}
    if path is None:
        memory = sgm.SparseGraphicalMemory(_Plane(), **how)
    else:
        memory = sgm.SparseGraphicalMemory.open(path, _Plane(), **how)
    memory.extend(np.random.default_rng(0).uniform(0, 30, (2_000, 2)))
    return memory


# -- worlds ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _point(_folder: Path, weights: Path) -> Iterator[World]:
    from sgm.controllers.d3pg import Actor
    from sgm.distances.sorb import DistributionalDistance, GoalNetworks
    from sgm.navigation import agents
    from speed.navigation import UNIFORM, buffer

    networks, robots = GoalNetworks.load(weights), 50
    distance, seen = DistributionalDistance(networks, compiled=False), buffer(1_000, seed=1)

    def agent() -> Any:
        memory = sgm.SparseGraphicalMemory(distance, **_SGM)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MemoryWarning)  # after little training it is no good
            memory.extend(seen)
        return agents.sgm(memory, Actor(networks, compiled=False), clean=True)

    yield World("PointEnv", agent, functools.partial(_mazes, robots), robots, {"options": UNIFORM})


_SGM: dict[str, Any] = {"tau_a": 5.0, "tau_p": 0.05, "max_dist": 10.0, "k": 5, "policy": "first-failure"}


def _mazes(robots: int) -> Any:
    from sgm.envs.point.env import PointMazeVectorEnv

    return PointMazeVectorEnv(robots, autoreset_mode="Disabled", max_episode_steps=None)


@contextlib.contextmanager
def _safety(folder: Path, _weights: Path) -> Iterator[World]:
    from sgm.benchmarks.safety.benchmark import BENCHMARK, CLEANUP_EPISODE
    from sgm.benchmarks.safety.settings import SafetySettings

    robots = 64
    settings = SafetySettings(pretrained=True, rollouts=3, robots=robots, simulators=1)
    piece = Piece(BENCHMARK, settings, {"layout": 0, "seed": 0}, folder, progress=False)
    piece.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(piece):
        built = folder / "built.sgm"
        piece.build("both").save(built)
        env = worker_env(piece)
        how = {"options": {"goals": None}, "episode_steps": CLEANUP_EPISODE}
        yield World("SafetyGym", lambda: piece.make_agent("both", piece.load(built), clean=True), env, robots, how)


WORLDS: dict[str, Any] = {"point": _point, "safety": _safety}


@contextlib.contextmanager
def _cluster(wanted: bool) -> Iterator[None]:
    """Run a Ray cluster during the measurements, if wanted."""
    if not wanted:
        yield
        return
    import ray

    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
