"""From a recorded dataset to an agent: a Minari dataset of PointMaze, recorded here, so that nothing is downloaded.

The dataset has a ball that is pushed through a maze, here at random, with each push held for 10 steps. A distance and a
controller are learned from the dataset only; the environment is used only for the evaluation.

    pip install 'sparse-graphical-memory[examples,minari]'
    python examples/minari_maze.py

This takes about two minutes on one core. It also prints the commands that do the same and write a report.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import gymnasium
import gymnasium_robotics
import numpy as np

import sgm
from sgm.controllers import cloned
from sgm.distances import regression

DATASET, MAZE = "pointmaze/medium-pushes-v0", "PointMaze_Medium-v3"


def record(steps: int, episode_steps: int = 200, seed: int = 0) -> None:
    """Push the ball at random, and record a Minari dataset, unless it exists already."""
    import minari
    from minari.data_collector import EpisodeBuffer

    if DATASET in minari.list_local_datasets():
        return
    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make(MAZE, max_episode_steps=episode_steps)
    env.action_space.seed(seed)
    episodes = []
    for number in range(steps // episode_steps):
        seen, actions, rewards = [env.reset(seed=seed + number)[0]], [], []
        while len(actions) < episode_steps:
            push = env.action_space.sample() if len(actions) % 10 == 0 else actions[-1]
            observation, reward, *_ = env.step(push)
            seen.append(observation)
            actions.append(push)
            rewards.append(float(reward))
        ends = [False] * (episode_steps - 1)
        observations = {key: np.stack([each[key] for each in seen]) for key in seen[0]}
        how = {"terminations": [*ends, False], "truncations": [*ends, True]}
        episodes.append(EpisodeBuffer(number, observations=observations, actions=actions, rewards=rewards, **how))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns about a missing author, e-mail and link to the code
        minari.create_dataset_from_buffers(DATASET, episodes, env=env, algorithm_name="random pushes of 10 steps")
    env.close()


def main(
    folder: Path = Path("runs/minari"), steps: int = 30_000, iterations: int = 2_500, tasks: int = 100, seed: int = 0
) -> dict[str, sgm.Evaluation]:
    """Record, learn, build and evaluate; `iterations` is for each of the two networks."""
    begin = time.monotonic()
    os.environ["MINARI_DATASETS_PATH"] = str(folder.resolve())
    folder.mkdir(parents=True, exist_ok=True)
    record(steps, seed=seed)
    data = sgm.data.from_minari(DATASET)
    print(data)

    distance = regression.train(data, iterations=iterations, seed=seed)
    controller = cloned.train(data, iterations=iterations, seed=seed)
    print(f"{time.monotonic() - begin:.0f} s: distance (noise {distance.noise:.1f} steps) and controller trained")

    choice = sgm.choose(data, distance, controller, seed=seed)
    print(choice)
    # The ball has inertia: a waypoint counts as reached within half of MaxDist.
    agent = sgm.Navigator(choice.memory, controller, router="ranked", arrival="distance", cutoff=choice.max_dist / 2)

    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make_vec(MAZE, 20, vectorization_mode="sync")
    results = {}
    for name, who in (("controller alone", controller), ("agent", agent)):
        results[name] = result = sgm.evaluate(who, env, tasks, seed=seed)
        low, high = result.ci95
        print(f"{name}: {result.rate:.0%} of {tasks} tasks [{low:.0%}, {high:.0%}]")
    print(f"{time.monotonic() - begin:.0f} s in total. The same as commands, with a report:")
    print(f"  export MINARI_DATASETS_PATH={folder.resolve()}")
    print(f"  sgm fit minari:{DATASET} --out agent && sgm evaluate agent --env {MAZE}")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/minari"), help="folder for the dataset")
    parser.add_argument("--steps", type=int, default=30_000, help="recorded steps")
    parser.add_argument("--iterations", type=int, default=2_500, help="updates of each network")
    parser.add_argument("--tasks", type=int, default=100, help="episodes to evaluate")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
