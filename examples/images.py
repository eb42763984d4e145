"""Goals that are images: MiniGrid FourRooms, from above.

Observations are small images of four rooms with the robot in them, and a goal is an image with the robot at another
position. The position of the robot is not given. Distance and controller are learned from random actions; the
controller works over two steps, and the memory plans the rest.

    pip install 'sparse-graphical-memory[examples]'
    python examples/images.py

This takes about three minutes on one core, and prints how many of 100 tasks the controller alone and the agent solve.
"""

import argparse
import time
from typing import ClassVar

import gymnasium
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import sgm
from sgm.controllers import cloned
from sgm.distances import contrastive

TILE = 2  # side of a cell, pixels


class FourRooms(gymnasium.Env):
    """MiniGrid's FourRooms with one layout, without the green square: reach the cell of the goal image."""

    images: ClassVar[dict[tuple[int, ...], np.ndarray]] = {}  # by layout, cell and direction

    def __init__(self, layout: int = 0, steps: int = 200) -> None:
        """Make the layout that MiniGrid draws from seed `layout`; episodes have `steps` steps."""
        self.layout = layout
        self.rooms = gymnasium.make("MiniGrid-FourRooms-v0").unwrapped
        self.rooms.reset(seed=layout)
        self.rooms.max_steps, self.steps = 10**9, steps
        cells = [(x, y) for x in range(self.rooms.width) for y in range(self.rooms.height)]
        for cell in cells:
            if getattr(self.rooms.grid.get(*cell), "type", "") == "goal":
                self.rooms.grid.set(*cell, None)
        self.free = [cell for cell in cells if self.rooms.grid.get(*cell) is None]
        image = gymnasium.spaces.Box(0, 255, (TILE * self.rooms.height, TILE * self.rooms.width, 3), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"observation": image, "desired_goal": image})
        self.action_space = gymnasium.spaces.Discrete(3)  # turn left, turn right, go ahead

    def reset(self, *, seed=None, options=None):
        """Make the goal image at a random position, and start at another one."""
        super().reset(seed=seed)
        self.goal_cell, self.goal = self._move(), self._image()
        self._move()
        self.left = self.steps
        return self._observation(), {"success": False}

    def step(self, action):
        """Take an action; the episode ends in the cell of the goal."""
        self.rooms.step(action)
        self.left -= 1
        success = tuple(self.rooms.agent_pos) == self.goal_cell
        return self._observation(), float(success), success, self.left == 0, {"success": success}

    def _move(self) -> tuple[int, int]:
        """Put the robot into a random free cell, with a random direction."""
        cell = self.free[self.np_random.integers(len(self.free))]
        self.rooms.agent_pos, self.rooms.agent_dir = cell, int(self.np_random.integers(4))
        return cell

    def _observation(self):
        return {"observation": self._image(), "desired_goal": self.goal}

    def _image(self) -> np.ndarray:
        """Return the image from above. Drawing is slow, and there are only a thousand images: they are cached."""
        pose = (self.layout, *self.rooms.agent_pos, self.rooms.agent_dir)
        if pose not in self.images:
            self.images[pose] = self.rooms.get_frame(highlight=False, tile_size=TILE)
        return self.images[pose]


def main(
    seed: int = 0, steps: int = 20_000, iterations: int = 4_000, tasks: int = 100, num_envs: int = 20
) -> dict[str, sgm.Evaluation]:
    """Learn from `steps` random steps, build a memory, and evaluate; `iterations` is for the controller."""
    begin = time.monotonic()
    env = SyncVectorEnv([FourRooms] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    data = sgm.collect(env, steps, episode_steps=100, seed=seed)
    print(data)

    # The camera is fixed and the images are tiny: a perceptron on pixels learns faster than a convolutional network.
    distance = contrastive.train(data, encoder="mlp", width=128, reach=4, iterations=iterations // 4, seed=seed)
    controller = cloned.train(
        data, encoder="mlp", width=128, reach=2, batch=128, learning_rate=2e-3, iterations=iterations, seed=seed
    )
    print(f"{time.monotonic() - begin:.0f} s: distance (noise {distance.noise:.1f} steps) and controller trained")

    memory = sgm.SparseGraphicalMemory(distance, tau_a=1.0, tau_p=None, max_dist=3.0, k=6, keep_observations=True)
    memory.extend(data[: len(data) // 2])
    print(memory)
    agent = sgm.Navigator(memory, controller, arrival="distance", cutoff=1.0, router="ranked", max_steps=8)
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
    parser.add_argument("--steps", type=int, default=20_000, help="random steps to learn from")
    parser.add_argument("--iterations", type=int, default=4_000, help="updates of the controller")
    parser.add_argument("--tasks", type=int, default=100, help="episodes to evaluate")
    main(**vars(parser.parse_args()))
