"""The worlds of the sweep. Each lets its own benchmark make networks, environments and tasks, and builds memories."""

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

PLANS = 20  # goals that the time of a plan is the median of
DRIFT = 0.1  # of the odometry in safety, as a share of the way; it has none, and `verify` advises this
DENSEST = 0.9  # of the observations are nodes of a sparse memory, at most


class World:
    """What the sweep needs of a benchmark, for one piece of the sweep.

    Attributes:
        benchmark: its name.
        outer: the piece of the sweep.
        inner: a piece of the benchmark, whose folder, and so its networks, all sizes share.
    """

    benchmark: ClassVar[str]

    def __init__(self, piece: Piece, size: int | None = None) -> None:
        """Prepare the piece of the benchmark, for so many observations if not as many as the piece says."""
        self.outer, self.size = piece, int(piece.numbers["size"]) if size is None else size
        numbers = {**self.numbers(), "seed": piece.numbers["seed"]}
        out = piece.out / "networks" / piece.numbers["world"]
        how: dict[str, Any] = {"command": piece.command, "progress": piece.progress}
        self.inner = Piece(self.declared(), self.settings(piece.settings), numbers, out, **how)

    def declared(self) -> Benchmark:
        """The benchmark."""
        return load(self.benchmark)

    def numbers(self) -> dict[str, int | str]:
        """What the benchmark tells pieces apart by, besides the seed."""
        return {}

    def settings(self, asked: SweepSettings) -> Any:
        """The settings of the benchmark."""
        raise NotImplementedError

    def build(self, method: str) -> sgm.SparseGraphicalMemory:
        """The memory of a method; how long it took is kept beside it."""
        begin = time.perf_counter()
        if method in DENSE:
            memory, known = self.all_observations(method)
        else:
            memory, known = self.sparse(method), 0.0
        seconds = known + time.perf_counter() - begin
        write_json(self.outer.folder / method / "build.json", {"seconds": seconds, "nodes": len(memory)})
        return memory

    def all_observations(self, method: str) -> tuple[sgm.SparseGraphicalMemory, float]:
        """The memory of a dense method, and the seconds that what it was made from had taken before."""
        known = self.outer.folder / "dense" / "built.sgm"
        if method == "dense" or not known.exists():
            return self.successors(self.dense(), method), 0.0
        seconds = read_build(known.parent).get("seconds", 0.0)
        return self.successors(self.outer.load(known), method), seconds

    def dense(self) -> sgm.SparseGraphicalMemory:
        """The memory of all observations."""
        raise NotImplementedError

    def successors(self, memory: sgm.SparseGraphicalMemory, method: str) -> sgm.SparseGraphicalMemory:
        """The dense memory with the successors of a dense method."""
        return memory

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """The memory of a merging criterion."""
        raise NotImplementedError

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """The agent of this name over a memory."""
        raise NotImplementedError

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """The share of edges that no controller can go along."""
        raise NotImplementedError

    def agents(self) -> Sequence[str]:
        """Who is evaluated."""
        return ("plain",)

    def nodes(self) -> int:
        """How many nodes a sparse memory has, about."""
        return min(self.outer.settings.nodes, round(DENSEST * self.size))

    def facts(self, memory: sgm.SparseGraphicalMemory) -> Row:
        """What a row says of a memory."""
        return {"false_edges": self.false_edges(memory), "bytes": memory.nbytes, "plan_seconds": plan_seconds(memory)}


def merging(method: str) -> dict[str, Any]:
    """How `sgm.choose_threshold` merges for a method."""
    special: dict[str, dict[str, Any]] = {
        "both": {"tau_p": "auto"},
        "consolidated": {"consolidate": True},
        "verified": {"consolidate": True},
    }
    if method in special:
        return {"criterion": "two-way", **special[method]}
    return {"criterion": method}


def plan_seconds(memory: sgm.SparseGraphicalMemory) -> float:
    """Median time of a search for the ways from all nodes to one, s."""
    prices = memory.prices()
    goals = np.random.default_rng(0).choice(len(memory), min(PLANS, len(memory)), replace=False)
    found = []
    for goal in goals.tolist():
        begin = time.perf_counter()
        dijkstra(prices, indices=goal, return_predecessors=True)
        found.append(time.perf_counter() - begin)
    return float(np.median(found))


class PointWorld(World):
    """PointEnv. "both" and "consolidated" have the paper's thresholds, others keep as many nodes of a sample."""

    benchmark = "point"
    false = 15.0  # steps of the true way beyond which an edge is false: no controller of the benchmark goes so far

    def settings(self, asked: SweepSettings) -> Any:
        """The paper's, with a buffer of this size."""
        from sgm.benchmarks.point.settings import PointSettings

        return PointSettings(
            buffer_size=self.size, episodes=asked.episodes, iterations=asked.iterations, agents=asked.robots
        )

    def dense(self) -> sgm.SparseGraphicalMemory:
        """SoRB's, after its k-nearest filter."""
        from sgm.benchmarks.point import benchmark as point

        memory = point.build_sorb(self.inner)
        memory.filter(point.K)
        return memory

    def successors(self, memory: sgm.SparseGraphicalMemory, method: str) -> sgm.SparseGraphicalMemory:
        """More of them, or those of the authors' code."""
        from sgm.benchmarks.point import benchmark as point

        if method == "wider":
            memory.filter(WIDER)
        elif method == "released":
            point.drop_for_itself(memory)
        return memory

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """SGM's, after its k-nearest filter."""
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
        """With the paper's thresholds."""
        from sgm.benchmarks.point import benchmark as point

        memory = point.build_sgm(self.inner)
        if consolidated:
            observations, cells = self.inner.buffer
            memory = memory.consolidated(observations, min_support="auto", attributes={"position": cells})
        memory.filter(point.K)
        return memory

    def choose(self, method: str, nodes: int) -> sgm.ThresholdChoice:
        """About so many nodes by another criterion."""
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
        """Of a criterion, the same at every size: a sample becomes as many nodes as with the paper's thresholds."""
        path = self.inner.folder / f"{method}.json"
        if (found := read_object(path, {"tau_a": NUMBER, "tau_p": NUMBER})) is None:
            sample = PointWorld(self.outer, self.outer.settings.sample)
            choice = sample.choose(method, len(sample.paper()))
            found = {choice.name: choice.value}
            write_json(path, found)
        return found

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """SoRB's or SGM's."""
        make = agents.sorb if method in DENSE else agents.sgm
        return make(memory, self.inner.networks[1], clean=clean)

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """By the true way through the maze."""
        edges, places = memory.edges(), memory.attributes["position"]
        return share_over(self.inner.env.maze.distance(places[edges.source], places[edges.target]), self.false)


class SafetyWorld(World):
    """The rooms of SafetyGym."""

    benchmark = "safety"

    def declared(self) -> Benchmark:
        """The benchmark, but robots that clean up have rooms of their own, and stay where they are meanwhile."""
        from sgm.benchmarks.safety import benchmark as safety

        robots = self.outer.settings.robots
        return dataclasses.replace(load(self.benchmark), cleanup_env=lambda piece: safety.make_env(piece, robots))

    def numbers(self) -> dict[str, int | str]:
        """The rooms."""
        return {"layout": self.outer.settings.layout}

    def settings(self, asked: SweepSettings) -> Any:
        """The benchmark's, with a buffer of this size."""
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
        """(n, 64, 64, 3) frames and (n, 6) odometry of the seed's exploration, in the random order of `order`."""
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
        """(n, e) embeddings of `explored`, which all sizes of a seed share."""
        path = self.inner.folder / "embeddings.npy"
        if not path.exists():
            frames = self.explored()[0]
            found = np.concatenate([distance.embed(frames[low : low + 500]) for low in range(0, len(frames), 500)])
            with writing(path) as file:
                np.save(file, found)
        return np.asarray(np.load(path))

    def order(self, total: int) -> NDArray[np.int64]:
        """(n,) which observation of the exploration each one of `explored` is; of one size all seeds have their own."""
        return np.random.default_rng(self.inner.seed_for(Purpose.BUFFER)).permutation(total)

    def observations(self) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """What memories are built from: the first of what was explored."""
        frames, odometry = self.explored()
        return frames[: self.size], odometry[: self.size]

    def dense(self) -> sgm.SparseGraphicalMemory:
        """ConSPTM's."""
        from sgm.benchmarks.safety import benchmark as safety

        frames, odometry = self.observations()
        memory = sgm.SparseGraphicalMemory(*safety.metric(self.inner), criterion="none", **safety.BUILD)
        memory.extend(frames, attributes={"pose": odometry[:, :3]}, progress=self.outer.progress)
        return memory

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """With the threshold that gives the wanted number of nodes."""
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
        """A memory without the edges that own motion speaks against; longer ones take their places and join parts."""
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
        self.outer.say(f"{found!r}, which are left out; {bridges} beyond the k nearest join parts of the graph")
        return memory

    def agents(self) -> Sequence[str]:
        """Those that are asked for."""
        found: tuple[str, ...] = self.outer.settings.agents
        return found

    def agent(self, method: str, memory: Any, name: str, clean: bool) -> Any:
        """The benchmark's."""
        return self.inner.make_agent(method, memory, name=name, clean=clean)

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """Over 1.2 m, as in the benchmark."""
        from sgm.benchmarks.ground_truth import edge_lengths
        from sgm.benchmarks.safety.ground_truth import FALSE

        return share_over(edge_lengths(memory.edges(), memory.attributes["pose"]), FALSE)


class GiantWorld(World):
    """OGBench's giant point maze from the stitch dataset."""

    benchmark = "ogbench"
    dataset = "pointmaze-giant-stitch-v0"

    def numbers(self) -> dict[str, int | str]:
        """The dataset."""
        return {"dataset": self.dataset}

    def settings(self, asked: SweepSettings) -> Any:
        """The benchmark's, with a buffer of this size."""
        from sgm.benchmarks.ogbench.settings import OGBenchSettings

        return OGBenchSettings(
            datasets=(self.dataset,),
            observations=self.size,
            nodes=self.nodes(),
            episodes=asked.episodes,
            agents=asked.robots,
        )

    def dense(self) -> sgm.SparseGraphicalMemory:
        """All observations of the buffer."""
        from sgm.benchmarks.ogbench import benchmark as ogbench

        return ogbench.build_memory(self.inner, self.inner.buffer, self.inner.settings.max_dist)

    def sparse(self, method: str) -> sgm.SparseGraphicalMemory:
        """With the threshold that gives the wanted number of nodes."""
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
        """SGM's, for the dense memory too: what differs is the memory."""
        return self.inner.make_agent("sgm", memory, clean=clean)

    def false_edges(self, memory: sgm.SparseGraphicalMemory) -> float | None:
        """Through walls."""
        found: float | None = self.inner.benchmark.facts(self.inner, memory)["false_edges"]
        return found


KINDS: dict[str, type[World]] = {"point": PointWorld, "safety": SafetyWorld, "giant": GiantWorld}


def read_build(folder: Path) -> Mapping[str, Any]:
    """The seconds that building a memory took, and its nodes; nothing if it was not built yet."""
    return read_object(folder / "build.json", {"seconds": NUMBER, "nodes": COUNT}) or {}
