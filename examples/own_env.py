"""Your own environment, from random experience to an agent: PointMaze_Large of Gymnasium-Robotics.

A ball with inertia is pushed through a maze. Observations are 4 numbers (position and velocity), goals 2 (position). A
distance and a controller are learned from random pushes only. The controller alone gets stuck at walls; the agent plans
on a memory and gives the controller one waypoint after the other.

    pip install 'sparse-graphical-memory[examples]'
    python examples/own_env.py

This takes about two minutes on one core, and prints how many of 100 tasks, drawn by the environment, each of them
solves.
"""

import argparse
import time

import gymnasium
import gymnasium_robotics

import sgm
from sgm.controllers import cloned
from sgm.distances import contrastive


def make_env(num_envs: int, steps: int):
    """Make PointMaze without changes: `info["success"]` is whether the goal is reached."""
    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make_vec("PointMaze_Large-v3", num_envs, max_episode_steps=steps, vectorization_mode="sync")


def main(
    seed: int = 0,
    steps: int = 40_000,
    iterations: int = 2_500,
    tasks: int = 100,
    cleanup_steps: int = 0,
    episode_steps: int = 800,
) -> dict[str, sgm.Evaluation]:
    """Learn from `steps` random steps, build a memory, and evaluate; `iterations` is for each of the two networks."""
    begin = time.monotonic()
    env = make_env(20, episode_steps)

    # 1. Experience. A push is held for 15 steps, so that the ball covers ground; episodes start all over the maze.
    data = sgm.collect(env, steps, hold=15, episode_steps=200, seed=seed)
    print(data)

    # 2. Distance and controller. A cell of the maze takes about 30 steps.
    distance = contrastive.train(data, reach=20, iterations=iterations, seed=seed)
    controller = cloned.train(data, reach=30, iterations=iterations, seed=seed)
    print(f"{time.monotonic() - begin:.0f} s: distance (noise {distance.noise:.1f} steps) and controller trained")

    # 3. The memory: observations whose distances to and from other nodes differ by at most tau_a become one node.
    memory = sgm.SparseGraphicalMemory(distance, tau_a=12.0, tau_p=None, max_dist=40.0, k=8)
    memory.extend(data[::5])
    print(memory)

    # 4. The agent. The ball has inertia: a waypoint counts as reached within 15 steps. A failed edge costs more later.
    agent = sgm.Navigator(memory, controller, arrival="distance", cutoff=15.0, router="ranked", max_steps=60)
    if cleanup_steps:
        print(sgm.cleanup(agent, env, cleanup_steps, seed=seed))
    results = {}
    for name, who in (("controller alone", controller), ("agent", agent)):
        results[name] = result = sgm.evaluate(who, env, tasks, seed=seed)
        low, high = result.ci95
        print(f"{name}: {result.rate:.0%} of {tasks} tasks [{low:.0%}, {high:.0%}]")
    print(f"{time.monotonic() - begin:.0f} s in total")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=40_000, help="random steps to learn from")
    parser.add_argument("--iterations", type=int, default=2_500, help="updates of each network")
    parser.add_argument("--tasks", type=int, default=100, help="episodes to evaluate")
    parser.add_argument("--cleanup-steps", type=int, default=0, help="environment steps of cleanup")
    parser.add_argument("--episode-steps", type=int, default=800, help="largest number of steps of a task")
    main(**vars(parser.parse_args()))
