"""Record the first episodes of a batch step by step, for the inspector; recording does not affect the episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.data.thumbnails import are_images, thumbnails

from .beside import NOWHERE, Edge, Episode
from .navigator import AT_LAST, FOLLOWING, Navigator

SIDE = 48  # longer side of a stored image, pixels
IMAGES = 8  # most images of an episode
EVALUATED, CLEANED = 20, 10  # numbers of episodes that a run records
UNFINISHED = "not finished when recording ended"
Bools = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class View:
    """Functions that take positions, goals and images of robots from the observations of a batch.

    Attributes:
        places: observations to (n, 2 or more) positions of the robots, in the units of node positions; or None.
        goals: observations to (n, 2 or more) positions of their goals, NaN if unknown; or None.
        images: observations and (m,) rows to (m, height, width[, 3]) images that these robots see; or None.
    """

    places: Callable[[Any], Any] = lambda _: None
    goals: Callable[[Any], Any] = lambda _: None
    images: Callable[[Any, NDArray[np.int64]], Any] = lambda *_: None


def seen_by(place: str | None) -> View:
    """Make a view for any environment; `place` is the entry of Dict observations that is the position, or None."""

    def entry(observations: Any, name: str | None) -> Any:
        if name is None:
            return None
        values = observations.get(name) if isinstance(observations, Mapping) else observations
        return values if values is not None and np.ndim(values) == 2 and np.shape(values)[1] >= 2 else None

    def goals(observations: Any) -> Any:
        wanted = entry(observations, "desired_goal") if isinstance(observations, Mapping) and place else None
        here = entry(observations, place)
        return wanted if wanted is not None and here is not None and wanted.shape == here.shape else None

    def images(observations: Any, rows: NDArray[np.int64]) -> Any:
        values = observations.get("observation") if isinstance(observations, Mapping) else observations
        return np.asarray(values)[rows] if are_images(values) else None

    return View(lambda observations: entry(observations, place), goals, images)


@dataclasses.dataclass
class _Draft:
    """A running episode."""

    number: int
    goal: NDArray[np.float64] | None
    positions: list[Any] = dataclasses.field(default_factory=list)
    nodes: list[int] = dataclasses.field(default_factory=list)
    waypoints: list[int] = dataclasses.field(default_factory=list)
    plans: list[tuple[int, list[int]]] = dataclasses.field(default_factory=list)
    cuts: list[Edge] = dataclasses.field(default_factory=list)
    gave_up: Edge | None = None
    goal_node: int = NOWHERE
    images: dict[int, NDArray[np.uint8]] = dataclasses.field(default_factory=dict)
    stride: int = 1
    lost: int = 0  # number of waypoints given up

    @property
    def step(self) -> int:
        return len(self.positions)

    def keep(self, image: NDArray[np.uint8]) -> None:
        """Store an image of this step; if there are too many, every other one is dropped."""
        self.images[self.step] = image
        if len(self.images) >= IMAGES:
            self.stride *= 2
            self.images = {step: seen for step, seen in self.images.items() if step % self.stride == 0}


class Recorder:
    """Records the first episodes of an evaluation or a cleanup, without random numbers or any effect on them."""

    def __init__(self, kind: str, most: int, view: View | None = None, about: str = "") -> None:
        """Record the first `most` episodes.

        Args:
            kind: "evaluation" or "cleanup".
            most: number of episodes.
            view: gives positions, goals and images of the robots; None: none of them is recorded.
            about: text in titles after kind and number, such as "after 5,000 cleanup steps".
        """
        self.kind, self.most, self.about = kind, most, about
        self.view = View() if view is None else view
        self._drafts: dict[int, _Draft] = {}
        self._ended: dict[int, tuple[bool, str]] = {}

    def note(self, agent: Any, numbers: NDArray[np.int64], active: Bools, observations: Any) -> None:
        """Add a step to the active episodes of a batch.

        Args:
            agent: the agent, after it has chosen its actions.
            numbers: (n,) number of the episode in each row.
            active: (n,) rows that take a step.
            observations: observations of the batch.
        """
        rows = np.flatnonzero(active & (numbers >= 0) & (numbers < self.most))
        rows = rows[[int(numbers[row]) not in self._ended for row in rows]] if len(rows) else rows
        if not len(rows):
            return
        places, goals = self._places(self.view.places(observations)), self._places(self.view.goals(observations))
        for row in rows.tolist():
            number = int(numbers[row])
            draft = self._drafts.setdefault(number, _Draft(number, None if goals is None else goals[row]))
            self._decided(draft, agent, row)
            if draft.step % draft.stride == 0 and (image := self._image(row, observations)) is not None:
                draft.keep(image)
            draft.positions.append((np.nan, np.nan) if places is None else places[row])

    def end(self, agent: Any, number: int, row: int, success: bool, reason: str, observations: Any) -> None:
        """End an episode, with the result and the last observations."""
        draft = self._drafts.get(number)
        if draft is None or number in self._ended:
            return
        if isinstance(agent, Navigator) and not success and agent.phase[row] == FOLLOWING:
            draft.gave_up = (draft.step, int(agent.previous[row]), int(agent.waypoint[row]))
        if (image := self._image(row, observations)) is not None:
            draft.images[draft.step] = image
        places = self._places(self.view.places(observations))
        draft.positions.append((np.nan, np.nan) if places is None else places[row])
        draft.nodes.append(draft.nodes[-1])
        draft.waypoints.append(draft.waypoints[-1])
        self._ended[number] = (success, reason)

    def settle(self, successes: Bools, reasons: NDArray[np.str_]) -> None:
        """Replace the results of episodes by their final values, which may differ from those at their end."""
        self._ended = {number: (bool(successes[number]), str(reasons[number])) for number in self._ended}

    @property
    def episodes(self) -> list[Episode]:
        """The recorded episodes, in order."""
        return [self._episode(self._drafts[number]) for number in sorted(self._drafts)]

    def _episode(self, draft: _Draft) -> Episode:
        success, reason = self._ended.get(draft.number, (False, UNFINISHED))
        return Episode(
            title=f"{self.kind} {draft.number + 1}{', ' + self.about if self.about else ''}",
            kind=self.kind,
            success=success,
            reason="" if success else reason,
            goal_node=draft.goal_node,
            goal_position=draft.goal if draft.goal is not None and np.isfinite(draft.goal).all() else None,
            positions=np.array(draft.positions, np.float32).reshape(-1, 2),
            nodes=np.array(draft.nodes, np.int32),
            waypoints=np.array(draft.waypoints, np.int32),
            plans=draft.plans,
            cuts=draft.cuts,
            gave_up=None if success else draft.gave_up,
            images=draft.images,
        )

    def _decided(self, draft: _Draft, agent: Any, row: int) -> None:
        """Add the decisions of a navigator: last node, waypoint, plan and failed edges."""
        before = draft.nodes[-1] if draft.nodes else NOWHERE
        if not isinstance(agent, Navigator):
            draft.nodes.append(NOWHERE)
            draft.waypoints.append(NOWHERE)
            return
        failed = [(u, v) for episode, u, v in agent.blamed if episode == row]
        if not agent.clean and agent.given_up[row] > draft.lost and draft.waypoints:
            failed = [(before, draft.waypoints[-1])]
        draft.lost = int(agent.given_up[row])
        draft.cuts += [(draft.step, u, v) for u, v in failed if min(u, v) > NOWHERE]
        following = agent.phase[row] == FOLLOWING
        node = int(agent.previous[row]) if following else NOWHERE
        if agent.phase[row] == AT_LAST:
            node = int(agent.goal_node[row])
        draft.nodes.append(before if node == NOWHERE else node)
        draft.waypoints.append(int(agent.waypoint[row]) if following else NOWHERE)
        if row in agent.planned:
            draft.plans.append((draft.step, agent.path(row).tolist()))
        if agent.phase[row] in (FOLLOWING, AT_LAST):
            draft.goal_node = int(agent.goal_node[row])

    def _image(self, row: int, observations: Any) -> NDArray[np.uint8] | None:
        image = self.view.images(observations, np.array([row]))
        return None if image is None else thumbnails(image, SIDE)[0]

    def _places(self, found: Any) -> NDArray[np.float64] | None:
        # A copy, since observations may be the state of the environment itself, which the next step changes.
        return None if found is None else np.array(found, np.float64)[:, :2]
