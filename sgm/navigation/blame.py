"""Blame: which edge a failure is recorded for, and which edges a reached waypoint confirms."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from .localise import Ints

if TYPE_CHECKING:
    from .navigator import Navigator

Edge = tuple[int, int]


@dataclasses.dataclass
class LastEdge:
    """A failure is recorded for the edge that led to the waypoint (as in the paper).

    Attributes:
        skipped_count: whether a skipped waypoint counts as reached; if not, an edge has worked only if both of its ends
            were reached.
    """

    skipped_count: bool = True
    unconfirmed = 0  # passed edges that may still be to blame

    def bind(self, agent: Navigator) -> None:
        """Judge the edges of this agent."""
        self._agent = agent

    def reset(self, episodes: int) -> None:
        """Begin `episodes` new episodes."""
        self._pending: list[list[Edge]] = [[] for _ in range(episodes)]

    def forget(self, episode: int) -> None:
        """Drop the passed edges of this episode that are not confirmed yet."""
        self._pending[episode] = []

    def culprit(self, episode: int, edge: Edge) -> Edge:
        """Return the edge for which a failure to pass `edge` is recorded."""
        return edge

    def passed(self, episode: int, path: Ints, first: int, hits: list[bool], arrived: bool) -> list[Edge]:
        """Return the edges that are now confirmed to work.

        Args:
            episode: number of the episode.
            path: nodes in order; `path[first]` is the waypoint, the node before it was reached unless `first` is 0.
            first: position of the waypoint.
            hits: whether each of the nodes from `first` on was reached; the last of them was.
            arrived: whether the last of them is the end of the path.
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
    """A failure is recorded for the edge with the lowest success rate among the last few.

    A false edge joins places that look alike: it seems to work, and only a later edge fails.
    """

    unconfirmed = 3

    def culprit(self, episode: int, edge: Edge) -> Edge:
        """Return the edge with the lowest success rate."""
        return min([*self._pending[episode], edge], key=self._worth)

    def _worth(self, edge: Edge) -> float:
        known = self._agent.memory.evidence(*edge)
        return (1 + known.successes) / (2 + known.attempts)


BLAMES = {"last": LastEdge, "doubtful": MostDoubtful}
