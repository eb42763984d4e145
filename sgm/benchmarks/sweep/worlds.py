"""Worlds of the sweep: networks, environments and tasks come from the world's benchmark, memories are built here."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

import sgm
from sgm.benchmarks import load
from sgm.benchmarks.base import Benchmark, Piece, Row
from sgm.benchmarks.checks import COUNT, NUMBER
from sgm.benchmarks.ground_truth import share_over
from sgm.benchmarks.results import read_object, write_json, writing
from sgm.benchmarks.seeds import Purpose
from sgm.navigation import agents, verify

from .settings import DENSE, WIDER, SweepSettings

PLANS = 20  # goals over which the median planning time is taken
DRIFT = 0.1  # of the odometry in safety, as a share of the path; it has no drift, and `verify` advises this value
DENSEST = 0.9  # largest number of nodes of a sparse memory, as a share of the observations


class World:
    """Adapter between the sweep and a benchmark, for one piece of the sweep.

    Attributes:
        benchmark: name of the benchmark.
        outer: piece of the sweep.
        inner: piece of the benchmark; all sizes share its folder, and so its networks.
    """

    benchmark: ClassVar[str]

    def __init__(self, piece: Piece, size: int | None = None) -> None:
        """Prepare the piece of the benchmark, with `size` observations or as many as the piece says."""
        self.outer, self.size = piece, int(piece.numbers["size"]) if size is None else size
        numbers = {**self.numbers(), "seed": piece.numbers["seed"]}
        out = piece.out / "networks" / piece.numbers["world"]
        how: dict[str, Any] = {"command": piece.command, "progress": piece.progress}
        self.inner = Piece(self.declared(), self.settings(piece.settings), numbers, out, **how)

    def declared(self) -> Benchmark:
        """Declaration of the benchmark."""
        return load(self.benchmark)

    def numbers(self) -> dict[str, int | str]:
        """Axes of the benchmark besides the seed, with their values."""
        return {}

    def settings(self, asked: SweepSettings) -> Any:
        """Settings of the benchmark."""
        raise NotImplementedError

    def build(self, method: str) -> sgm.SparseGraphicalMemory:
        """Build the memory of a method, and store its building time."""
        begin = time.perf_counter()
        if method in DENSE:
            memory, known = self.all_observations(method)
        else:
            memory, known = self.sparse(method), 0.0
        seconds = known + time.perf_counter() - begin
        write_json(self.outer.folder / method / "build.json", {"seconds": seconds, "nodes": len(memory)})
        return memory

    def all_observations(self, method: str) -> tuple[sgm.SparseGraphicalMemory, float]:
        """Memory of a dense method, and the seconds that the shared dense memory had taken before."""
        known = self.outer.folder / "dense" / "built.sgm"
        if method == "dense" or not known.exists():
            return self.successors(self.dense(), method), 0.0
        seconds = read_build(known.parent).get("seconds", 0.0)
        return self.successors(self.outer.load(known), method), seconds

    def dense(self) -> sgm.SparseGraphicalMemory:
        """Build the memory of all observations."""
        raise NotImplementedError

    def successors(self, memory: sgm.SparseGraphicalMemory, method: str) -> sgm.SparseGraphicalMemory:
        """Give a dense memory the successors of a dense method."""
        return memory

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """Build the memory of a merging criterion."""
        raise NotImplementedError

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """Make the agent with this name."""
        raise NotImplementedError

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """Share of edges that no controller can follow."""
        raise NotImplementedError

    def agents(self) -> Sequence[str]:
        """Names of the agents to evaluate."""
        return ("plain",)

    def nodes(self) -> int:
        """Approximate number of nodes of a sparse memory."""
        return min(self.outer.settings.nodes, round(DENSEST * self.size))

    def facts(self, memory: sgm.SparseGraphicalMemory) -> Row:
        """Fields of a row about a memory: ground truth and planning time."""
        return {"false_edges": self.false_edges(memory), "bytes": memory.nbytes, "plan_seconds": plan_seconds(memory)}


def merging(method: str) -> dict[str, Any]:
    """Merging arguments of `sgm.choose_threshold` for a method."""
    special: dict[str, dict[str, Any]] = {
        "both": {"tau_p": "auto"},
        "consolidated": {"consolidate": True},
        "verified": {"consolidate": True},
    }
    if method in special:
        return {"criterion": "two-way", **special[method]}
    return {"criterion": method}


def plan_seconds(memory: sgm.SparseGraphicalMemory) -> float:
    """Median time of a search for the shortest paths from all nodes to one node, s."""
    prices = memory.prices()
    goals = np.random.default_rng(0).choice(len(memory), min(PLANS, len(memory)), replace=False)
    found = []
    for goal in goals.tolist():
        begin = time.perf_counter()
        dijkstra(prices, indices=goal, return_predecessors=True)
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


class PointWorld(World):
    """PointEnv. "both" and "consolidated" use the paper's thresholds, the others keep as many nodes of a sample."""

    benchmark = "point"
    false = 15.0  # steps of the true path above which an edge is false: beyond the range of the benchmark's controllers

    def settings(self, asked: SweepSettings) -> Any:
        """The paper's settings with a buffer of this size."""
        from sgm.benchmarks.point.settings import PointSettings

        return PointSettings(
            buffer_size=self.size, episodes=asked.episodes, iterations=asked.iterations, agents=asked.robots
        )

    def dense(self) -> sgm.SparseGraphicalMemory:
        """Build SoRB's memory, after its k-nearest filter."""
        from sgm.benchmarks.point import benchmark as point

        memory = point.build_sorb(self.inner)
        memory.filter(point.K)
        return memory

    def successors(self, memory: sgm.SparseGraphicalMemory, method: str) -> sgm.SparseGraphicalMemory:
        """Keep more successors, or those of the authors' code."""
        from sgm.benchmarks.point import benchmark as point

        if method == "wider":
            memory.filter(WIDER)
        elif method == "released":
            point.drop_for_itself(memory)
        return memory

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """Build SGM's memory, after its k-nearest filter."""
        if method == "both":
            return self.paper()
        if method == "consolidated":
            return self.paper(consolidated=True)
        if method == "uniform":
            return self.choose(method, read_build(self.outer.folder / "both").get("nodes") or len(self.paper())).memory
        from sgm.benchmarks.point import benchmark as point

        observations, cells = self.inner.buffer
        how = {"criterion": method, "tau_p": None, **self.threshold(method), "max_dist": point.MAX_DIST, "k": point.K}
        memory = sgm.SparseGraphicalMemory(self.inner.networks[0], **how)
        memory.extend(observations, attributes={"position": cells}, progress=self.outer.progress)
        return memory

    def paper(self, consolidated: bool = False) -> sgm.SparseGraphicalMemory:
        """Build a memory with the paper's thresholds."""
        from sgm.benchmarks.point import benchmark as point

        memory = point.build_sgm(self.inner)
        if consolidated:
            observations, cells = self.inner.buffer
            memory = memory.consolidated(observations, min_support="auto", attributes={"position": cells})
        memory.filter(point.K)
        return memory

    def choose(self, method: str, nodes: int) -> sgm.ThresholdChoice:
        """Choose the threshold of another criterion that gives about `nodes` nodes."""
        from sgm.benchmarks.point import benchmark as point

        observations, cells = self.inner.buffer
        choice = sgm.choose_threshold(
            self.inner.networks[0],
            observations,
            nodes,
            criterion=method,
            max_dist=point.MAX_DIST,
            k=point.K,
            seed=self.outer.seed_for(Purpose.THRESHOLD),
            progress=self.outer.progress,
        )
        choice.memory.attributes["position"] = cells[choice.stream]
        return choice

    def threshold(self, method: str) -> dict[str, Any]:
        """Threshold of a criterion for all sizes: it keeps as many nodes of a sample as the paper's thresholds."""
        path = self.inner.folder / f"{method}.json"
        if (found := read_object(path, {"tau_a": NUMBER, "tau_p": NUMBER})) is None:
            sample = PointWorld(self.outer, self.outer.settings.sample)
            choice = sample.choose(method, len(sample.paper()))
            found = {choice.name: choice.value}
            write_json(path, found)
        return found

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """Make SoRB's or SGM's agent."""
        make = agents.sorb if method in DENSE else agents.sgm
        return make(memory, self.inner.networks[1], clean=clean)

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """Share of edges whose true path through the maze is too long."""
        edges, places = memory.edges(), memory.attributes["position"]
        return share_over(self.inner.env.maze.distance(places[edges.source], places[edges.target]), self.false)


class SafetyWorld(World):
    """The rooms of SafetyGym."""

    benchmark = "safety"

    def declared(self) -> Benchmark:
        """The benchmark with a separate cleanup environment, whose robots stay in place during evaluations."""
        from sgm.benchmarks.safety import benchmark as safety

        robots = self.outer.settings.robots
        return dataclasses.replace(load(self.benchmark), cleanup_env=lambda piece: safety.make_env(piece, robots))

    def numbers(self) -> dict[str, int | str]:
        """Number of the layout."""
        return {"layout": self.outer.settings.layout}

    def settings(self, asked: SweepSettings) -> Any:
        """The benchmark's settings with a buffer of this size."""
        from sgm.benchmarks.safety.settings import SafetySettings

        return SafetySettings(
            layouts=(asked.layout,),
            candidates=self.size,
            nodes=self.nodes(),
            tasks=asked.episodes,
            agreeing=asked.agreeing,
            simulators=asked.simulators,
            pretrained=asked.pretrained,
            rollouts=asked.rollouts,
            rollout_steps=asked.rollout_steps,
        )

    def explored(self) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """(n, 64, 64, 3) frames and (n, 6) odometry of the seed's exploration, in the order of `order`."""
        folder = self.inner.folder
        frames, odometry = folder / "frames.npy", folder / "odometry.npy"
        if not odometry.exists():
            found = self.inner.rollouts
            flat = found.frames.reshape(-1, *found.frames.shape[2:])
            order = self.order(len(flat))
            for path, values in ((frames, flat), (odometry, found.odometry.reshape(len(flat), -1))):
                with writing(path) as file:
                    np.save(file, values[order])
        return np.load(frames, mmap_mode="r"), np.load(odometry)

    def embedded(self, distance: sgm.Distance) -> NDArray[np.float32]:
        """(n, e) embeddings of `explored`, shared by all sizes of a seed."""
        path = self.inner.folder / "embeddings.npy"
        if not path.exists():
            frames = self.explored()[0]
            found = np.concatenate([distance.embed(frames[low : low + 500]) for low in range(0, len(frames), 500)])
            with writing(path) as file:
                np.save(file, found)
        return np.asarray(np.load(path))

    def order(self, total: int) -> NDArray[np.int64]:
        """(n,) random order in which `explored` holds the observations of the exploration, different for each seed."""
        return np.random.default_rng(self.inner.seed_for(Purpose.BUFFER)).permutation(total)

    def observations(self) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Observations from which memories are built: the first ones of `explored`."""
        frames, odometry = self.explored()
        return frames[: self.size], odometry[: self.size]

    def dense(self) -> sgm.SparseGraphicalMemory:
        """Build ConSPTM's memory."""
        from sgm.benchmarks.safety import benchmark as safety

        frames, odometry = self.observations()
        memory = sgm.SparseGraphicalMemory(*safety.metric(self.inner), criterion="none", **safety.BUILD)
        memory.extend(frames, attributes={"pose": odometry[:, :3]}, progress=self.outer.progress)
        return memory

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """Build a memory with the threshold that gives about `self.nodes()` nodes."""
        from sgm.benchmarks.safety import benchmark as safety

        frames, odometry = self.observations()
        distance, features = safety.metric(self.inner)
        choice = sgm.choose_threshold(
            distance,
            frames,
            self.nodes(),
            features=features,
            **merging(method),
            seed=self.inner.seed_for(Purpose.THRESHOLD),
            progress=self.outer.progress,
            **safety.BUILD,
        )
        choice.memory.attributes["pose"] = odometry[choice.stream, :3]
        return self.verified(choice) if method == "verified" else choice.memory

    def verified(self, choice: sgm.ThresholdChoice) -> sgm.SparseGraphicalMemory:
        """Remove edges that contradict the odometry; longer edges replace them and join components."""
        odometry, seen = self.explored()[1], self.embedded(choice.memory.distance)
        order = self.order(len(seen))
        in_time = np.argsort(order)
        episodes = np.arange(len(seen)) // (self.outer.settings.rollout_steps + 1)
        edges, rows = choice.memory.edges(filtered=False), order[choice.stream]
        pairs = np.stack([rows[edges.source], rows[edges.target]], axis=1)
        reach = round(choice.memory.settings.max_dist)
        found = verify(pairs, odometry[in_time, :3], seen[in_time], episodes, reach=reach, drift=DRIFT)
        doubtful = found.posterior < 0.5
        memory = choice.memory.pruned(edges.source[doubtful], edges.target[doubtful])
        bridges = memory.bridge()
        self.outer.say(f"{found!r}, which are left out; {bridges} beyond the k nearest join components of the graph")
        return memory

    def agents(self) -> Sequence[str]:
        """Names of the agents in the settings."""
        found: tuple[str, ...] = self.outer.settings.agents
        return found

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """Make the benchmark's agent."""
        return self.inner.make_agent(method, memory, name=name, clean=clean)

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """Share of edges over 1.2 m, as in the benchmark."""
        from sgm.benchmarks.ground_truth import edge_lengths
        from sgm.benchmarks.safety.ground_truth import FALSE

        return share_over(edge_lengths(memory.edges(), memory.attributes["pose"]), FALSE)


class GiantWorld(World):
    """OGBench's giant point maze from the stitch dataset."""

    benchmark = "ogbench"
    dataset = "pointmaze-giant-stitch-v0"

    def numbers(self) -> dict[str, int | str]:
        """Name of the dataset."""
        return {"dataset": self.dataset}

    def settings(self, asked: SweepSettings) -> Any:
        """The benchmark's settings with a buffer of this size."""
        from sgm.benchmarks.ogbench.settings import OGBenchSettings

        return OGBenchSettings(
            datasets=(self.dataset,),
            observations=self.size,
            nodes=self.nodes(),
            episodes=asked.episodes,
            agents=asked.robots,
        )

    def dense(self) -> sgm.SparseGraphicalMemory:
        """Build a memory of all observations of the buffer."""
        from sgm.benchmarks.ogbench import benchmark as ogbench

        return ogbench.build_memory(self.inner, self.inner.buffer, self.inner.settings.max_dist)

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """Build a memory with the threshold that gives about `self.nodes()` nodes."""
        settings = self.inner.settings
        return sgm.choose_threshold(
            self.inner.networks[0],
            self.inner.rollouts[self.inner.buffer],
            self.nodes(),
            **merging(method),
            max_dist=settings.max_dist,
            k=None,
            episode=None,
            keep_observations=True,
            seed=self.inner.seed_for(Purpose.THRESHOLD),
            progress=self.outer.progress,
        ).memory

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """Make SGM's agent, for the dense memory too, so that only the memory differs."""
        return self.inner.make_agent("sgm", memory, clean=clean)

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """Share of edges through walls."""
        found: float | None = self.inner.benchmark.facts(self.inner, memory)["false_edges"]
        return found


KINDS: dict[str, type[World]] = {"point": PointWorld, "safety": SafetyWorld, "giant": GiantWorld}


def read_build(folder: Path) -> Mapping[str, Any]:
    """Building time of a memory in seconds, and its number of nodes; empty if it was not built yet."""
    return read_object(folder / "build.json", {"seconds": NUMBER, "nodes": COUNT}) or {}
