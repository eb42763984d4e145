"""From a recorded dataset to an agent: a Minari dataset of PointMaze, made here, so that nothing is downloaded.

Somebody has recorded a ball that is pushed about in a maze (here: at random, each push held for 10 steps). A distance
and a controller are learned from the recording alone; the environment is used for the evaluation only.

    pip install 'sparse-graphical-memory[examples,minari]'
    python examples/minari_maze.py

takes about two minutes on one core. It also prints the command that does the same, with a page about it.
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
    """Push the ball about at random, and write what happens as a Minari dataset, unless there is one."""
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
        warnings.simplefilter("ignore")  # Minari would have author, e-mail and a link to the code
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
    # The ball rolls: a waypoint is passed within half of MaxDist, not met.
    agent = sgm.Navigator(choice.memory, controller, router="ranked", arrival="distance", cutoff=choice.max_dist / 2)

    gymnasium.register_envs(gymnasium_robotics)
    env = gymnasium.make_vec(MAZE, 20, vectorization_mode="sync")
    results = {}
    for name, who in (("controller alone", controller), ("agent", agent)):
        results[name] = result = sgm.evaluate(who, env, tasks, seed=seed)
        low, high = result.ci95
        print(f"{name}: {result.rate:.0%} of {tasks} tasks [{low:.0%}, {high:.0%}]")
    print(f"{time.monotonic() - begin:.0f} s in all. As commands, with a page:")
    print(f"  export MINARI_DATASETS_PATH={folder.resolve()}")
    print(f"  sgm fit minari:{DATASET} --out agent && sgm evaluate agent --env {MAZE}")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/minari"), help="where the dataset is written")
    parser.add_argument("--steps", type=int, default=30_000, help="recorded steps")
    parser.add_argument("--iterations", type=int, default=2_500, help="updates of each network")
    parser.add_argument("--tasks", type=int, default=100, help="episodes to evaluate")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
