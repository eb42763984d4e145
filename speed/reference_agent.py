"""Baseline agent: one episode at a time, NetworkX, three critics in a loop, in the pattern of the released code.

It follows the same plans on the same graph with the same weights as `sgm.navigation.Navigator`; only the computation
differs. At every step it reduces the whole ensemble table and evaluates the distances from the robot to every node; for
every plan it copies the graph and evaluates the distances to the goal node by node.
"""

from __future__ import annotations

import networkx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sgm.distances.sorb import GoalNetworks, Layers


class ReferenceNetworks(nn.Module):
    """An actor and separate critics with the weights of `GoalNetworks`."""

    def __init__(self, networks: GoalNetworks) -> None:
        super().__init__()
        self.actor = _linear_layers(networks.actor, 0)
        self.critics = nn.ModuleList(_linear_layers(networks.critics, i) for i in range(len(networks.critics.first)))
        self.bins = torch.arange(1.0, networks.bins + 1)

    def act(self, observations: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        """(n, o) and (n, o) to (n, a) actions."""
        first, second, third = self.actor
        hidden = torch.relu(second(torch.relu(first(torch.cat([observations, goals], dim=1)))))
        return torch.tanh(third(hidden))

    def steps(self, observations: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        """(n, o) and (n, o) to (3, n) expected steps, critic by critic."""
        actions = self.act(observations, goals)
        results = []
        for first, second, third in self.critics:
            hidden = torch.relu(first(torch.cat([observations, goals], dim=1)))
            hidden = torch.relu(second(torch.cat([hidden, actions], dim=1)))
            results.append(torch.softmax(third(hidden), dim=1) @ self.bins)
        return torch.stack(results)

    def table(self, observations: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
        """(n, o) and (m, o) to (3, n, m), observation by observation."""
        rows = [self.steps(observation.expand_as(goals), goals) for observation in observations]
        return torch.stack(rows, dim=1)


def _linear_layers(layers: Layers, member: int) -> nn.ModuleList:
    result = nn.ModuleList()
    for matrix in layers:
        linear = nn.Linear(matrix.shape[1] - 1, matrix.shape[2])
        linear.weight.data, linear.bias.data = matrix[member, :-1].T.contiguous(), matrix[member, -1].clone()
        result.append(linear)
    return result


class ReferenceAgent:
    """Follows waypoints; with `clean`, removes the edge to a waypoint that it did not reach."""

    def __init__(
        self,
        networks: ReferenceNetworks,
        graph: networkx.DiGraph,
        nodes: NDArray[np.float32],
        *,
        max_dist: float,
        max_steps: int,
        clean: bool,
        sorb: bool = False,
    ) -> None:
        self.networks, self.graph, self.nodes = networks, graph, torch.as_tensor(nodes)
        self.max_dist, self.max_steps, self.clean, self.sorb = max_dist, max_steps, clean, sorb
        self.pairs = networks.table(self.nodes, self.nodes).numpy()

    def begin(self, observation: torch.Tensor, goal: torch.Tensor) -> None:
        """Plan from here to the goal."""
        to_nodes = self.networks.table(observation, self.nodes).max(dim=0).values.numpy().ravel()
        to_goal = self.networks.table(self.nodes, goal).max(dim=0).values.numpy().ravel()
        graph = self.graph.copy()
        for first, last in zip(np.argsort(to_nodes), np.argsort(to_goal), strict=True):
            graph.add_edge("start", int(first), weight=to_nodes[first])
            graph.add_edge(int(last), "goal", weight=to_goal[last])
            try:
                self.path = networkx.shortest_path(graph, "start", "goal", weight="weight")[1:-1]
                break
            except networkx.NetworkXNoPath:
                continue
        self.position = self.attempts = 0
        self.at_last = False

    def reached(self, observation: torch.Tensor, waypoint: int) -> bool:
        """Whether the robot has reached the waypoint."""
        if self.sorb:
            return float(self.networks.steps(observation, self.nodes[[waypoint]]).max()) < self.max_dist
        theirs = np.max(self.pairs, axis=0)[waypoint]
        ours = self.networks.table(observation, self.nodes).max(dim=0).values.numpy().ravel()
        return bool(np.linalg.norm(theirs - ours, np.inf) < 1.0)

    def act(self, observation: NDArray[np.float32], goal: NDArray[np.float32], first: bool) -> NDArray[np.float32]:
        """Choose the action of one step of an episode."""
        state, target = torch.as_tensor(observation)[None], torch.as_tensor(goal)[None]
        direct = float(self.networks.steps(state, target).mean())
        if first:
            self.begin(state, target)
        if self.clean and self.attempts >= self.max_steps:
            if self.position and not self.at_last:
                self.graph.remove_edge(self.path[self.position - 1], self.path[self.position])
            self.begin(state, target)
        if self.reached(state, self.path[self.position]):
            self.attempts = 0
            self.position += 1
            if self.position >= len(self.path):
                self.at_last, self.position = True, len(self.path) - 1
        waypoint = self.nodes[[self.path[self.position]]]
        self.networks.steps(state, waypoint)  # the reference evaluates this distance at every step
        if not self.at_last and not (self.sorb and direct < self.max_dist):
            target = waypoint
        self.attempts += 1
        return self.networks.act(state, target).numpy()[0]
