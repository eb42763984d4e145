"""Readable version of the D3PG updates: one module for each network, a loop over critics, autograd, standard Adam.

It is the oracle of the tests of d3pg.py and fast_gradients.py, and the baseline of their speed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sgm.distances.sorb import Layers

from .d3pg import D3PG


class Critic(nn.Module):
    """One critic: a layer for observation and goal, then layers that also take the action, to logits."""

    def __init__(self, inputs: int, hidden: int, actions: int, bins: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.joint = nn.Sequential(nn.Linear(hidden + actions, hidden), nn.ReLU(), nn.Linear(hidden, bins))

    def forward(self, pairs: Tensor, actions: Tensor) -> Tensor:
        """(n, inputs) and (n, actions) to (n, bins) logits."""
        return self.joint(torch.cat([self.encoder(pairs), actions], dim=1))


class ReferenceD3PG:
    """The baseline: one module for each critic and each target, a Python loop over them, autograd, standard Adam."""

    def __init__(self, learner: D3PG) -> None:
        """Copy the initial weights of `learner`."""
        networks, self.config = learner.networks, learner.config
        inputs, hidden = 2 * networks.observation_size, self.config.hidden
        actions = networks.actor.third.shape[2]
        self.iteration, self.columns = 0, learner.transitions
        self.actors = [_make_actor(inputs, hidden, actions) for _ in range(2)]
        self.critics = [
            [Critic(inputs, hidden, actions, self.config.bins) for _ in range(self.config.ensemble)] for _ in range(2)
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
        """Make one update with a (n, width) batch of transitions; return the losses of critics and actor before it."""
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
        # backward() would also compute the critics' gradients for the actor's loss, which are not needed.
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
    """Copy the weights of network `index` of a stack to a module."""
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    for layer, part in zip(layers, linear, strict=True):
        part.weight.copy_(layer[index, :-1].T)
        part.bias.copy_(layer[index, -1])
