"""Blame: which edge a failure counts against, and which edges a passed waypoint speaks for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .localise import Ints

if TYPE_CHECKING:
    from .navigator import Navigator

Edge = tuple[int, int]


@dataclasses.dataclass
class LastEdge:
    """A failure counts against the edge that led to the waypoint (the paper's).

    Attributes:
        skipped_count: a waypoint that was skipped counts as reached; otherwise an edge has worked only if both of its
            ends were reached.
    """

    skipped_count: bool = True
    unconfirmed = 0  # passed edges that may still be to blame

    def bind(self, agent: Navigator) -> None:
        """Judge for this agent."""
        self._agent = agent

    def reset(self, episodes: int) -> None:
        """Nothing is pending in so many episodes."""
        self._pending: list[list[Edge]] = [[] for _ in range(episodes)]

    def forget(self, episode: int) -> None:
        """Nothing is pending in this episode."""
        self._pending[episode] = []

    def culprit(self, episode: int, edge: Edge) -> Edge:
        """The edge that a failure to pass `edge` counts against."""
        return edge

    def passed(self, episode: int, path: Ints, first: int, hits: list[bool], arrived: bool) -> list[Edge]:
        """The edges that have shown to work.

        Args:
            episode: whose.
            path: nodes in order; `path[first]` is the waypoint, the node before it was reached unless `first` is 0.
            first: place of the waypoint.
            hits: which of the nodes from `first` on are reached; the last of them is.
            arrived: whether that is the end of the path.
        """
        pending = self._pending[episode]
        came = [first > 0, *hits]
        proven = set()
        for number in range(max(1, first), first + len(hits)):
            edge = int(path[number - 1]), int(path[number])
            pending.append(edge)
            if came[number - first] and came[number - first + 1]:
                proven.add(edge)
        confirmed = max(0, len(pending) - (0 if arrived else self.unconfirmed))
        worked, self._pending[episode] = pending[:confirmed], pending[confirmed:]
        return worked if self.skipped_count else [edge for edge in worked if edge in proven]


@dataclasses.dataclass
class MostDoubtful(LastEdge):
    """A failure counts against the edge that has proven itself least among the last few.

    A false edge joins places that look alike: it seems to work, and only what comes after it fails.
    """

    unconfirmed = 3

    def culprit(self, episode: int, edge: Edge) -> Edge:
        """The edge with the least share of successes."""
        return min([*self._pending[episode], edge], key=self._worth)

    def _worth(self, edge: Edge) -> float:
        known = self._agent.memory.evidence(*edge)
        return (1 + known.successes) / (2 + known.attempts)


BLAMES = {"last": LastEdge, "doubtful": MostDoubtful}
