"""Steps that cleanup needs with active goals and with the paper's random goals, in worlds with known false edges.

python -m speed.goals --out results/goals
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from scipy.sparse.csgraph import connected_components

import sgm
from sgm.navigation import ActiveGoals, Cleaner, Navigator
from sgm.navigation.goals import Survey
from speed.report import Report

ROBOTS = 20
MAX_STEPS = 9
CHECKS = 40  # number of checks in a run
HOLD_CHECKS = (5, 10, 20, 40)  # checks at which plans are checked too
GOALS = ("random", "active")
FOUND = "Steps until so much of the false edges is found, weighted by the plans that used them before cleanup"
SPEED = "Cleanup steps per second of processor time"
HOLD = "Share of plans between random places that run over true edges only"


class World(NamedTuple):
    """Places, and the connections between them.

    Attributes:
        steps: (V, V) float64 distances.
        is_open: (V, V) bool, whether a robot can really go from one place to the other.
    """

    steps: np.ndarray
    is_open: np.ndarray


class GraphWorld(VectorEnv):
    """Robots that go from place to place. An action is the number of a place + 1, or 0 to stay: (n, 1).

    A robot reaches a place after as many steps towards it as the distance, if the connection is open; until then it
    stays where it was. Observations are numbers of places, (n, 1) float32. `reset` takes the options `starts`, places
    to choose from, and `reset_mask`.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 (Gymnasium's name and type)

    def __init__(self, robots: int, world: World, slip: float = 0.1) -> None:
        """Make `robots` robots, whose steps fail with probability `slip`."""
        self.num_envs, self.world, self.slip = robots, world, slip
        place = spaces.Box(0, len(world.steps), (1,), np.float32)
        self.single_observation_space = spaces.Dict({"observation": place})
        self.single_action_space = place
        self.observation_space = batch_space(self.single_observation_space, robots)
        self.action_space = batch_space(place, robots)
        self.at, self.towards, self.gone = np.zeros((3, robots), np.int64)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Put robots at random places."""
        if seed is not None:
            self.random = np.random.default_rng(seed)
        options = options or {}
        mask = options.get("reset_mask", np.ones(self.num_envs, np.bool_))
        self.at[mask] = self.random.choice(options.get("starts", len(self.world.steps)), int(mask.sum()))
        self.gone[mask] = 0
        return self._seen(), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Take one step."""
        towards = np.asarray(actions)[:, 0].astype(np.int64) - 1
        self.gone[towards != self.towards] = 0
        self.gone += self.random.random(self.num_envs) >= self.slip
        self.towards = towards
        ways = self.at, towards
        arrived = (towards >= 0) & self.world.is_open[ways] & (self.gone >= self.world.steps[ways])
        self.at[arrived], self.gone[arrived] = towards[arrived], 0
        ended = np.zeros((2, self.num_envs), np.bool_)
        return self._seen(), np.zeros(self.num_envs), ended[0], ended[1], {}

    def _seen(self) -> dict[str, np.ndarray]:
        return {"observation": self.at[:, None].astype(np.float32)}


def go(observations: Any, goals: Any) -> np.ndarray:
    """Controller of a `GraphWorld`."""
    return np.asarray(goals) + 1


def scattered(places: int, random: np.random.Generator) -> World:
    """Make a square in which a random tenth of the connections is closed."""
    points = random.uniform(0, places**0.5, (places, 2))
    steps = np.linalg.norm(points[:, None] - points, axis=-1)
    return World(steps, random.random((places, places)) >= 0.1)


def shortcuts(places: int, random: np.random.Generator) -> World:
    """Make a square in which one in twenty places has a false short distance to a distant place."""
    points = random.uniform(0, places**0.5, (places, 2))
    steps = np.linalg.norm(points[:, None] - points, axis=-1)
    ends = tuple(random.choice(places, (2, places // 20), replace=False))
    is_open = np.ones((places, places), np.bool_)
    is_open[ends] = False
    steps[ends] = 0.5
    return World(steps, is_open)


def rooms(places: int, random: np.random.Generator) -> World:
    """Make rooms with doors between them; the distance ignores the walls."""
    side = places**0.5
    points = random.uniform(0, side, (places, 2))
    steps = np.linalg.norm(points[:, None] - points, axis=-1)
    number = max(2, round(side / 8))
    is_open = np.ones((places, places), np.bool_)
    for axis, wall in itertools.product((0, 1), np.arange(1, number) * side / number):
        doors = (np.arange(number) + random.uniform(0.25, 0.75, number)) * side / number
        across, along = points[:, axis] - wall, points[:, 1 - axis]
        share = np.abs(across[:, None]) / (np.abs(across[:, None]) + np.abs(across))
        crossing = along[:, None] + share * (along - along[:, None])
        through_door = (np.abs(crossing[..., None] - doors) < 1.25).any(axis=-1)
        is_open &= (np.sign(across[:, None]) == np.sign(across)) | through_door
    return World(steps, is_open)


WORLDS = {"scattered": scattered, "shortcuts": shortcuts, "rooms": rooms}


def build(world: World) -> sgm.SparseGraphicalMemory:
    """Build a memory of all places."""
    distance = sgm.TableDistance(world.steps)
    memory = sgm.SparseGraphicalMemory(
        distance, criterion="none", tau_p=None, max_dist=3.0, k=6, policy="first-failure"
    )
    memory.extend(np.arange(len(world.steps)))
    return memory


def navigator(memory: sgm.SparseGraphicalMemory) -> Navigator:
    """Make the agent that cleans up the memory."""
    return Navigator(memory, go, max_steps=MAX_STEPS, cutoff=0.25, clean=True)


def mainland(memory: sgm.SparseGraphicalMemory, world: World) -> np.ndarray:
    """Places of the largest strongly connected component of the true edges of the memory."""
    graph = memory.to_scipy().tocoo()
    graph.data = np.where(world.is_open[graph.coords], 1.0, 0.0)
    graph.eliminate_zeros()
    part = connected_components(graph.tocsr(), connection="strong")[1]
    return np.flatnonzero(part == np.bincount(part).argmax())


class Tasks:
    """Plans between random places that can reach each other."""

    def __init__(self, places: np.ndarray, random: np.random.Generator) -> None:
        """Draw 40 goals, each with 25 starts."""
        self.goals, self.starts = random.choice(places, 40), random.choice(places, 25)

    def plans(self, memory: sgm.SparseGraphicalMemory) -> list[np.ndarray]:
        """Nodes of each plan; empty if the memory has no path."""
        found = []
        for goal, start in itertools.product(self.goals, self.starts):
            try:
                found.append(memory.plan_nodes(start, goal).nodes)
            except sgm.NoPath:
                found.append(np.empty(0, np.int64))
        return found

    def hold(self, memory: sgm.SparseGraphicalMemory, world: World) -> float:
        """Share of the plans that work."""
        return float(np.mean([len(p) > 0 and world.is_open[p[:-1], p[1:]].all() for p in self.plans(memory)]))

    def uses(self, memory: sgm.SparseGraphicalMemory) -> np.ndarray:
        """(V, V) number of plans that use each edge."""
        number = np.zeros((len(memory), len(memory)))
        for plan in self.plans(memory):
            number[plan[:-1], plan[1:]] += 1
        return number


class Run(NamedTuple):
    """Result of a cleanup.

    Attributes:
        steps: (CHECKS + 1,) steps at each check.
        found: (CHECKS + 1,) share of the false edges found by then, weighted by use.
        hold: share of the plans that work, by steps.
        seconds: CPU time of the cleanup, s.
    """

    steps: np.ndarray
    found: np.ndarray
    hold: dict[int, float]
    seconds: float

    def steps_to(self, share: float) -> float:
        """Steps until this share was found, interpolated between checks; all steps if it never was."""
        late = int(np.argmax(np.append(self.found, 1.0) >= share))
        return float(np.interp(share, self.found[: late + 1], self.steps[: late + 1]))


def run(name: str, places: int, seed: int, goals: str, steps: int) -> Run:
    """Clean up the memory of a world."""
    random = np.random.default_rng(seed)
    world = WORLDS[name](places, random)
    memory = build(world)
    land = mainland(memory, world)
    tasks = Tasks(land, random)
    weight = tasks.uses(memory) * ~world.is_open
    env = GraphWorld(ROBOTS, world)
    cleaner = Cleaner(navigator(memory), env, seed=seed, options={"starts": land}, goals=goals)
    taken, found, hold, seconds = [0], [0.0], {0: tasks.hold(memory, world)}, 0.0
    for check in range(1, CHECKS + 1):
        begin = time.process_time()
        cleaner.run(steps // CHECKS)
        seconds += time.process_time() - begin
        removed = memory.removed()
        taken.append(cleaner.steps)
        found.append(float(weight[removed.source, removed.target].sum() / weight.sum()))
        if check in HOLD_CHECKS:
            hold[cleaner.steps] = tasks.hold(memory, world)
    return Run(np.array(taken), np.array(found), hold, seconds)


def compare(report: Report, name: str, places: int, seeds: int, steps: int) -> None:
    """Compare random and active goals in the same worlds."""
    by_goals = {goals: [run(name, places, seed, goals, steps) for seed in range(seeds)] for goals in GOALS}
    for share in (0.5, 0.75):
        needed = {goals: np.array([one.steps_to(share) for one in runs]) for goals, runs in by_goals.items()}
        means = {goals: float(number.mean()) for goals, number in needed.items()}
        ratios = needed["random"] / needed["active"]
        spread = {"ratio": means["random"] / means["active"], "least": float(ratios.min()), "most": float(ratios.max())}
        in_time = {f"{goals}_in_time": f"{(number < steps).sum()} of {seeds}" for goals, number in needed.items()}
        report.add(FOUND, world=name, found=f"{share:.0%}", **means, **spread, **in_time)
    for check in by_goals["random"][0].hold:
        shares = {goals: float(np.mean([one.hold[check] for one in runs])) for goals, runs in by_goals.items()}
        report.add(HOLD, world=name, steps=check, **shares)
    speed = {goals: seeds * steps / sum(one.seconds for one in runs) for goals, runs in by_goals.items()}
    report.add(SPEED, world=name, **speed)


def bench_choice(report: Report, places: int) -> None:
    """Measure the time of a survey and of choosing a goal."""
    memory = build(scattered(places, np.random.default_rng(0)))
    random, robot, times = np.random.default_rng(1), navigator(memory), []
    for _ in range(5):
        begin = time.process_time()
        survey = Survey(robot, random, ActiveGoals().candidates)
        middle = time.process_time()
        for start in random.integers(places, size=100):
            survey.best_goal(int(start))
        times.append((middle - begin, (time.process_time() - middle) / 100))
    once, each = (float(part) for part in np.median(times, axis=0))
    size = {"nodes": places, "edges": len(memory.edges().source)}
    report.add("Processor time to choose goals", **size, survey_seconds=once, goal_seconds=each)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--seeds", type=int, default=5, help="worlds of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="small worlds, few steps, to test that it runs")
    options = parser.parse_args()
    report = Report("speed.goals")
    places, steps, seeds = (150, 800, 2) if options.quick else (600, 12_000, options.seeds)
    for name in WORLDS:
        compare(report, name, places, seeds, steps)
    bench_choice(report, 200 if options.quick else 3000)
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
