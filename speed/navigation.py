"""Speed of the agent, against a NetworkX agent with one episode at a time, the same weights and the same graph.

python -m speed.navigation --out results/navigation

Times are CPU times of one thread.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import sgm
from sgm.benchmarks.point.benchmark import TRAINING_ENVS
from sgm.controllers.d3pg import Actor, D3PGConfig, train
from sgm.distances.sorb import DistributionalDistance, GoalNetworks
from sgm.envs.point.env import PointMazeEnv, PointMazeVectorEnv
from sgm.memory.fast_waypoints import WaypointTest
from sgm.navigation import Navigator, TwoWay, WithinSteps
from sgm.navigation.cleanup import Cleaner
from sgm.navigation.rollout import Stream
from speed.reference_agent import ReferenceAgent, ReferenceNetworks
from speed.report import Report

CLAIMS = "Against the reference agent"
TABLE = "Time to take an action, single agent (paper: SoRB 0.550 s, SGM 0.077 s)"
BESIDE = "SGM's action beside SoRB's, one agent, compiled"
UNIFORM = {"uniform": True}
LONG = 20  # times as many actions as are timed, after which the times are taken again


def trained(iterations: int) -> GoalNetworks:
    """Train the networks of seed 0, as `sgm run point` does."""
    env = PointMazeVectorEnv(TRAINING_ENVS, max_episode_steps=20)
    return train(Stream(env), D3PGConfig(iterations=iterations), seed=0).networks


def buffer(number: int, seed: int) -> np.ndarray:
    """(n, 2) observations spread over the maze."""
    return PointMazeVectorEnv(number).reset(seed=seed, options=UNIFORM)[0]["observation"]


def memories(distance: DistributionalDistance, size: int) -> dict[str, sgm.SparseGraphicalMemory]:
    """Make the two memories of the paper: SGM, and SoRB's dense graph."""
    sparse = sgm.SparseGraphicalMemory(distance, tau_a=5.0, tau_p=0.05, max_dist=10.0, k=5, policy="first-failure")
    dense = sgm.SparseGraphicalMemory(distance, criterion="none", max_dist=6.0, k=5, policy="first-failure")
    for memory in (sparse, dense):
        memory.extend(buffer(size, seed=1))
    return {"sorb+sgm": sparse, "sorb": dense}


def reference_steps(agent: ReferenceAgent, env: PointMazeEnv, steps: int, seed: int) -> tuple[float, float]:
    """Clean up for `steps` steps; return seconds per step, and per call of `act` alone."""
    random = np.random.default_rng(seed)
    taken, acting, begin = 0, 0.0, time.process_time()
    while taken < steps:
        observation = env.reset(seed=int(random.integers(2**31)), options=UNIFORM)[0]["observation"]
        goal = agent.nodes[int(random.integers(len(agent.nodes)))].numpy()
        for step in range(600):
            start = time.process_time()
            action = agent.act(observation, goal, first=step == 0)
            acting += time.process_time() - start
            if agent.at_last or taken >= steps:
                break
            observation = env.step(action)[0]["observation"]
            taken += 1
    return (time.process_time() - begin) / taken, acting / taken


def our_single_steps(navigator: Navigator, env: PointMazeEnv, steps: int, seed: int) -> float:
    """Seconds per call of `Navigator.act`, with one robot and goals of the environment."""
    random = np.random.default_rng(seed)
    taken, acting = 0, 0.0
    while taken < steps:
        seen = env.reset(seed=int(random.integers(2**31)), options=UNIFORM)[0]
        navigator.reset(1)
        for _ in range(600):
            start = time.process_time()
            action = navigator.act(seen["observation"], seen["desired_goal"])
            acting += time.process_time() - start
            seen, _, terminated, _, _ = env.step(action)
            taken += 1
            if terminated or taken >= steps:
                break
    return acting / taken


def styles(method: str, over: str) -> dict:
    """Settings of agents as in the reference: SoRB too is attached to the nearest nodes and plans by distance."""
    if method == "sorb":
        return {"arrival": WithinSteps(None), "hopping": True, "max_steps": 18, "replan": False}
    return {"arrival": TwoWay(1.0, over), "max_steps": 30, "replan": False}


def one_agent(
    report: Report,
    method: str,
    memory: sgm.SparseGraphicalMemory,
    networks: GoalNetworks,
    slow: float,
    steps: int,
) -> dict[tuple[str, bool], float]:
    """Time per action of one agent: through torch, and compiled; over all nodes, and over neighbours.

    Also long after that, when what is found out once about a waypoint is known. Returns the times of compiled ones.
    """
    found: dict[tuple[str, bool], float] = {}
    for compiled, over in (
        (False, "all"),
        (True, "all"),
        *([] if method == "sorb" else [(False, "neighbours"), (True, "neighbours")]),
    ):
        memory._distance = DistributionalDistance(networks, compiled=compiled)
        memory._waypoint_test = WaypointTest(memory._nodes, memory._graph)
        single = Navigator(memory, Actor(networks, compiled=compiled), **styles(method, over))
        our_single_steps(single, PointMazeEnv(), min(steps, 100), seed=3)
        ours = our_single_steps(single, PointMazeEnv(), steps, seed=2)
        how = "compiled" if compiled else "torch"
        where = "" if method == "sorb" else f", waypoint test over {over}"
        claim = 10.0 if compiled and method != "sorb" else 0.0
        report.ratio(CLAIMS, f"{method}: time per action, one agent, {how}{where}", slow, ours, claim)
        row = {"method": method, "networks": how, "waypoint_test": "-" if method == "sorb" else over}
        row.update(nodes=len(memory), reference_s=slow, ours_s=ours, later_s="")
        if compiled:
            our_single_steps(single, PointMazeEnv(), LONG * steps, seed=4)
            later = our_single_steps(single, PointMazeEnv(), steps, seed=5)
            found[over, False], found[over, True] = ours, later
            row.update(later_s=later)
        report.add(TABLE, **row)
    memory._distance = DistributionalDistance(networks, compiled=False)
    return found


def beside_sorb(report: Report, times: dict[str, dict[tuple[str, bool], float]], steps: int) -> None:
    """Time per action of SGM's agent beside that of SoRB's."""
    for (over, later), ours in times["sorb+sgm"].items():
        when = f"after {LONG * steps:,} actions" if later else f"first {steps:,} actions"
        what = f"sorb+sgm: time per action, {when}, waypoint test over {over}"
        report.ratio(BESIDE, what, times["sorb"]["all", later], ours, 1.0)


def many_agents(
    report: Report,
    method: str,
    memory: sgm.SparseGraphicalMemory,
    networks: GoalNetworks,
    over: str,
    agents: int,
    slow: float,
    steps: int,
) -> None:
    """Cleanup steps of many agents at once, on a memory as it was built; compiled, as agents are by default."""
    memory.restore()
    memory._distance = DistributionalDistance(networks)
    memory._waypoint_test = WaypointTest(memory._nodes, memory._graph)
    cleaning = Navigator(memory, Actor(networks), clean=True, **styles(method, over))
    env = PointMazeVectorEnv(agents, autoreset_mode="Disabled")
    cleaner = Cleaner(cleaning, env, seed=2, options=UNIFORM)
    cleaner.run(agents * 5)
    start = time.process_time()
    taken = cleaner.run(steps).steps
    seconds = time.process_time() - start
    where = "" if method == "sorb" else f", waypoint test over {over}"
    claim = 60.0 if over == "neighbours" else 30.0 if method != "sorb" else 0.0
    report.ratio(CLAIMS, f"{method}: cleanup steps, {agents} agents at once{where}", slow, seconds / taken, claim)
    row = {"method": method, "waypoint_test": "-" if method == "sorb" else over}
    report.add("Cleanup steps per second", **row, reference=1 / slow, ours=taken / seconds)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, help="weights of `sgm run point` (default: train first)")
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--agents", type=int, default=500, help="agents that clean up at once (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few steps, to test that it runs")
    options = parser.parse_args()
    report = Report("speed.navigation")
    networks = GoalNetworks.load(options.weights) if options.weights else trained(500 if options.quick else 30_000)
    distance = DistributionalDistance(networks, compiled=False)
    size, slow_steps, fast_steps = (100, 30, 2000) if options.quick else (1000, 1500, 100_000)
    torch.set_num_threads(1)
    times = {}
    with torch.inference_mode():
        for method, memory in memories(distance, size).items():
            sorb = method == "sorb"
            limits = {"max_dist": memory.settings.max_dist, "max_steps": 18 if sorb else 30}
            plain = ReferenceNetworks(networks)
            agent = ReferenceAgent(plain, memory.to_networkx(), memory.embeddings, clean=True, sorb=sorb, **limits)
            slow, slow_act = reference_steps(agent, PointMazeEnv(), slow_steps, seed=2)
            times[method] = one_agent(report, method, memory, networks, slow_act, slow_steps)
            for over in ("all",) if sorb else ("all", "neighbours"):
                many_agents(report, method, memory, networks, over, options.agents, slow, fast_steps)
        beside_sorb(report, times, slow_steps)
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
