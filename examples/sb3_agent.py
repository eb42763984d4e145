"""A Stable-Baselines3 policy with a memory for distant goals: SAC with hindsight replay in a maze of four rooms.

A point moves through rooms with thin walls between them. SAC + HER is trained for a minute on goals up to 6 cells away,
and then evaluated on goals about 32 cells away along the shortest path. Its critics become the distance and its actor
the controller of an agent with a memory. Some distances of the critics lead through walls; cleanup tests the edges of
the memory, and removes those that fail.

    pip install 'sparse-graphical-memory[sb3]'
    python examples/sb3_agent.py

This takes about two minutes on one core, and prints how many of 100 tasks SAC alone and the agent solve, before and
after cleanup.
"""

import argparse
import time

from stable_baselines3 import SAC, HerReplayBuffer

import sgm
from sgm.envs.point.env import PointMazeEnv, PointMazeVectorEnv

MAZE = {"maze": "FourRooms", "resize": 3, "action_noise": 0.2}


class Replay(HerReplayBuffer):
    """Hindsight replay in which an episode ends when a relabelled goal is reached, as with a real goal.

    Stable-Baselines3 relabels goals and rewards, but not the end of episodes: the values of reached goals, and thus all
    distances, would be wrong by several steps.
    """

    def sample(self, batch_size, env=None):
        """Sample transitions; a reward of 0 means that the goal was reached."""
        samples = super().sample(batch_size, env)
        return samples._replace(dones=(samples.rewards == 0).to(samples.dones))


def train(steps: int, seed: int) -> SAC:
    """Train SAC + HER on near goals; the reward is −1 until the goal is reached. Small networks make memories fast."""
    model = SAC(
        "MultiInputPolicy",
        PointMazeEnv(**MAZE, prob_near=1.0, near=6.0, max_episode_steps=20),
        replay_buffer_class=Replay,
        policy_kwargs={"net_arch": [128, 128]},
        gamma=0.95,
        ent_coef=0.02,  # small: the values of SAC include the entropy, which is not part of a distance
        learning_rate=1e-3,
        batch_size=128,
        learning_starts=500,
        train_freq=4,
        gradient_steps=2,
        tau=0.02,
        seed=seed,
        device="cpu",
    )
    return model.learn(steps)


def main(
    seed: int = 0, steps: int = 6_000, observations: int = 4_000, cleanup_steps: int = 8_000, tasks: int = 100
) -> dict[str, sgm.Evaluation]:
    """Train SAC for `steps`, build a memory from random `observations`, clean it up, and evaluate on far goals."""
    begin = time.monotonic()
    model = train(steps, seed)
    print(f"{time.monotonic() - begin:.0f} s: SAC + HER trained for {steps:,} steps")

    # 1. Random experience from random starts: observations for the memory, and to measure the noise of the critics.
    env = PointMazeVectorEnv(20, **MAZE, reset_options={"uniform": True}, max_episode_steps=200)
    data = sgm.collect(env, observations, episode_steps=50, seed=seed)

    # 2. Values become steps, and the actor a controller.
    distance = sgm.distances.from_sb3(model, data=data)
    controller = sgm.controllers.from_sb3(model, data=data)
    print(f"distance: noise {distance.noise:.2f} steps, clipped at {distance.far:.0f} steps")

    # 3. The memory, and an agent that plans on it.
    memory = sgm.SparseGraphicalMemory(distance, tau_a=2.0, tau_p=None, max_dist=6.0, k=6)
    memory.extend(data)
    print(memory)
    agent = sgm.Navigator(memory, controller, arrival="distance", router="ranked")

    # 4. Goals at 80 % of the longest shortest path in the maze, the same for all.
    far, results = {"difficulty": 0.8}, {}
    for name, who in (("SAC alone", controller), ("with a memory", agent), ("after cleanup", agent)):
        if name == "after cleanup":
            print(sgm.cleanup(agent, env, cleanup_steps, seed=seed))
        results[name] = result = sgm.evaluate(who, env, tasks, seed=seed, options=far)
        low, high = result.ci95
        print(f"{name}: {result.rate:.0%} of {tasks} tasks [{low:.0%}, {high:.0%}]")
    print(f"{time.monotonic() - begin:.0f} s in total")
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=6_000, help="environment steps of SAC")
    parser.add_argument("--observations", type=int, default=4_000, help="random steps for the memory")
    parser.add_argument("--cleanup-steps", type=int, default=8_000, help="environment steps of cleanup")
    parser.add_argument("--tasks", type=int, default=100, help="episodes to evaluate")
    main(**vars(parser.parse_args()))
