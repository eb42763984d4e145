"""How fast D3PG trains and measures distances: each a ratio against a plain version of the same mathematics.

python -m speed.d3pg --out results/d3pg
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sgm.controllers.d3pg import D3PG, D3PGConfig, Replay, one_thread, train
from sgm.distances.sorb import DistributionalDistance, Layers
from sgm.envs.point.env import PointMazeVectorEnv
from speed.report import Report, seconds

CLAIMS = "On one thread, against a plain implementation"
TRAINING = "Training, with collection"


class SeparateCritic(nn.Module):
    """One critic as anyone would write it: observation and goal, then the action, then logits."""

    def __init__(self, inputs: int, hidden: int, actions: int, bins: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.joint = nn.Sequential(nn.Linear(hidden + actions, hidden), nn.ReLU(), nn.Linear(hidden, bins))

    def forward(self, pairs: Tensor, actions: Tensor) -> Tensor:
        """(n, inputs) and (n, actions) to (n, bins) logits."""
        return self.joint(torch.cat([self.encoder(pairs), actions], dim=1))


class SeparateD3PG:
    """The baseline: one module for each critic and each target, a Python loop over them, autograd, standard Adam."""

    def __init__(self, learner: D3PG) -> None:
        """Start from the same weights as `learner`."""
        networks, self.config = learner.networks, learner.config
        inputs, hidden = 2 * networks.observation_size, self.config.hidden
        actions = networks.actor.third.shape[2]
        self.iteration, self.columns = 0, learner.transitions
        self.actors = [_make_actor(inputs, hidden, actions) for _ in range(2)]
        self.critics = [
            [SeparateCritic(inputs, hidden, actions, self.config.bins) for _ in range(self.config.ensemble)]
            for _ in range(2)
        ]
        for actor, critics in zip(self.actors, self.critics, strict=True):
            copy_weights(networks.actor, 0, actor)
            for index, critic in enumerate(critics):
                copy_weights(networks.critics, index, critic)
        rate = self.config.learning_rate
        self.actor_optimizer = torch.optim.Adam(self.actors[0].parameters(), rate)
        self.critic_optimizer = torch.optim.Adam([p for c in self.critics[0] for p in c.parameters()], rate)
        self.bins = torch.arange(1.0, self.config.bins + 1)

    def update(self, batch: Tensor) -> tuple[float, float]:
        """One update with a (n, width) batch of transitions; the critics' and the actor's loss before it."""
        now, following = batch[:, self.columns.now][:, :-1], batch[:, self.columns.next][:, :-1]
        critic_loss = self._critic_loss(now, batch[:, self.columns.action], following, batch[:, -1])
        self._descend(self.critic_optimizer, critic_loss)
        actor_loss = self._actor_loss(now)
        self._descend(self.actor_optimizer, actor_loss)
        self.iteration += 1
        if self.iteration % self.config.target_period == 0:
            self._move_targets()
        return critic_loss.item(), actor_loss.item()

    def _critic_loss(self, now: Tensor, actions: Tensor, following: Tensor, reached: Tensor) -> Tensor:
        losses = []
        with torch.no_grad():
            next_actions = self.actors[1](following)
        for critic, target in zip(*self.critics, strict=True):
            with torch.no_grad():
                labels = self._labels(torch.softmax(target(following, next_actions), dim=1), reached)
            losses.append(nn.functional.cross_entropy(critic(now, actions), labels))
        return torch.stack(losses).mean()

    def _labels(self, following: Tensor, reached: Tensor) -> Tensor:
        shifted = torch.cat(
            [torch.zeros(len(following), 1), following[:, :-2], following[:, -2:].sum(1, keepdim=True)], dim=1
        )
        arrived = nn.functional.one_hot(torch.zeros(len(following), dtype=torch.long), following.shape[1])
        return torch.where(reached[:, None] > 0, arrived.float(), shifted)

    def _actor_loss(self, now: Tensor) -> Tensor:
        actions = self.actors[0](now)
        steps = [torch.softmax(critic(now, actions), dim=1) @ self.bins for critic in self.critics[0]]
        return torch.stack(steps).mean()

    def _descend(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        parameters = optimizer.param_groups[0]["params"]
        # Only what is optimised: backward() would also compute the critics' gradients for the actor's loss.
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()

    @torch.no_grad()
    def _move_targets(self) -> None:
        pairs = [self.actors, *zip(*self.critics, strict=True)]
        for network, target in pairs:
            for ours, theirs in zip(network.parameters(), target.parameters(), strict=True):
                theirs.lerp_(ours, self.config.target_rate)


def _make_actor(inputs: int, hidden: int, actions: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, actions),
        nn.Tanh(),
    )


@torch.no_grad()
def copy_weights(layers: Layers, index: int, module: nn.Module) -> None:
    """Give a module the weights of network `index` of a stack."""
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    for layer, part in zip(layers, linear, strict=True):
        part.weight.copy_(layer[index, :-1].T)
        part.bias.copy_(layer[index, -1])


def compare(plain: Callable[[], Any], ours: Callable[[], Any], turns: int) -> tuple[float, float]:
    """Median seconds of each, taken in turn, so that a busy moment of the machine hits both."""
    plain(), ours()
    times = np.array([(seconds(plain), seconds(ours)) for _ in range(turns)])
    first, second = np.median(times, axis=0)
    return float(first), float(second)


def bench_update(report: Report, turns: int) -> None:
    """An iteration of training: three critics in a loop against three critics stacked."""
    learner = D3PG(2, 2, D3PGConfig())
    config, plain = learner.config, SeparateD3PG(learner)
    replay, generator = some_experience(learner), torch.Generator().manual_seed(0)

    def sample() -> Tensor:
        rows = replay.sample(config.target_period * config.batch_size, generator)
        return rows.unflatten(0, (config.target_period, config.batch_size))

    def loop() -> None:
        for _ in range(0, 100, config.target_period):
            for batch in sample():
                plain.update(batch)

    def stacked() -> None:
        for _ in range(0, 100, config.target_period):
            learner.update(sample())

    first, second = compare(loop, stacked, turns)
    report.ratio(CLAIMS, "one iteration of training", first / 100, second / 100, 2)


def some_experience(learner: D3PG, count: int = 5_000) -> Replay:
    """Transitions of a point that moves at random; what they are does not change how long an update takes."""
    random = np.random.default_rng(0)
    observations, goals = random.random((2, count, 2))
    actions = random.uniform(-1, 1, (count, 2))
    reached = random.random(count) < 0.1
    replay = Replay(count, learner.transitions.width)
    replay.add(learner.transitions.pack(observations, goals, actions, observations + actions / 50, reached))
    return replay


def bench_training(report: Report, iterations: int) -> D3PG:
    """The whole of training: with collection, replay and progress, without imports."""
    env = PointMazeVectorEnv(20, max_episode_steps=20)
    took = -time.perf_counter()
    learner = train(env, D3PGConfig(iterations=iterations), progress=False)
    took += time.perf_counter()
    report.add(TRAINING, iterations=iterations, seconds=took, iterations_per_second=iterations / took)
    return learner


def bench_table(report: Report, distance: DistributionalDistance, count: int, turns: int) -> None:
    """A table of distances: every pair through the networks against tiles."""
    points = PointMazeVectorEnv(count).reset(seed=0, options={"uniform": True})[0]["observation"]
    rows, columns = np.divmod(np.arange(count**2), count)
    first, second = compare(
        lambda: distance.pairs(points[rows], points[columns]), lambda: distance(points, points), turns
    )
    report.ratio(CLAIMS, f"{count} × {count} distances, against pair by pair", first, second, 2)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument(
        "--weights", type=Path, help="trained networks for the table; default: those of a short training"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that it runs; the claims do not apply"
    )
    options = parser.parse_args()
    report = Report("speed.d3pg")
    small = options.quick
    with one_thread():
        learner = bench_training(report, 100 if small else 3000)
        bench_update(report, 2 if small else 11)
        distance = DistributionalDistance.load(options.weights) if options.weights else learner.distance()
        bench_table(report, distance, 100 if small else 1000, 1 if small else 5)
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
