"""The agent, for one or many episodes at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.memory import InputError, NoPath, SparseGraphicalMemory

Controller = Callable[[Any, Any], NDArray[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FRESH, FOLLOWING, AT_LAST, LOST = range(4)  # to be planned; going to a waypoint; all waypoints reached; no path
NOWHERE = -1


class Navigator:
    """Follows plans through a memory with a controller that is good for short distances only.

    Each episode has a waypoint it is going to and, unless that is the first one, the node before it. A waypoint that
    is reached is followed by the next one on the way to the goal's node; after the last one the agent heads for the
    goal itself. A waypoint that is not reached within `max_steps` is given up: with `clean` the edge that led to it is
    blamed (`memory.record`), and with `clean` or `replan` the agent localises itself anew and plans again.

    Follows the authors' released code, with these differences: the next waypoint is looked up when the last one is
    reached, so edges that other episodes have removed meanwhile are never followed; successes are recorded too (the
    paper's rule ignores them); after the last waypoint the agent goes for the goal without comparing ways.

    Attributes:
        senses: which entry of an environment's observations it acts on.
    """

    senses = "observation"

    def __init__(
        self,
        memory: SparseGraphicalMemory,
        controller: Controller,
        *,
        max_steps: int | None = None,
        reached: str = "two-way",
        cutoff: float = 1.0,
        by: str = "distance",
        within: float | None = math.inf,
        candidates: str = "nearest",
        hopping: bool = False,
        clean: bool = False,
        replan: bool = False,
    ) -> None:
        """Make an agent.

        Args:
            memory: where to plan.
            controller: (n, ...) observations and (n, ...) goals to (n, ...) actions.
            max_steps: MaxSteps, the steps given to a waypoint; None: 3 × MaxDist, as in the authors' code.
            reached: when a waypoint w is reached: "two-way": ‖d(s, ·) − d(w, ·)‖∞ < cutoff over the memory (SGM);
                "distance": d(s, w) < MaxDist (SoRB).
            cutoff: ActingCutoff, the threshold of the two-way test, steps.
            by: plan by "distance" or by "hops".
            within: how far start and goal may be attached, see `SparseGraphicalMemory.plan`.
            candidates: what they are attached to: the "nearest" nodes (SGM) or "all" within reach (SoRB), see
                `SparseGraphicalMemory.attach`.
            hopping: go for the goal as soon as it is within MaxDist, waypoints or not (SoRB).
            clean: blame the edge that led to a waypoint that was not reached, then plan again.
            replan: plan again after a waypoint was not reached, and leave the memory as it is.
        """
        if reached not in ("two-way", "distance"):
            raise InputError(f"reached is {reached!r}: expected 'two-way' or 'distance'")
        if by not in ("distance", "hops"):
            raise InputError(f"by is {by!r}: expected 'distance' or 'hops'")
        if candidates not in ("nearest", "all"):
            raise InputError(f"candidates is {candidates!r}: expected 'nearest' or 'all'")
        if not cutoff > 0:
            raise InputError(f"cutoff is {cutoff!r}: expected a number of steps over 0")
        if max_steps is not None and max_steps < 1:
            raise InputError(f"max_steps is {max_steps!r}: expected a number of steps, 1 or more")
        self.memory = memory
        self.controller = controller
        self.max_steps = max(1, round(3 * memory.settings.max_dist)) if max_steps is None else max_steps
        self.test = reached
        self.cutoff = cutoff
        self.by = by
        self.within = within
        self.candidates = candidates
        self.hopping = hopping
        self.clean = clean
        self.replan = replan
        self.phase = np.empty(0, np.int64)
        self.reset(0)

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Forget everything for `episodes` new episodes, or only for those of `mask`."""
        if mask is None:
            number = len(self.phase) if episodes is None else episodes
            self.phase = np.full(number, FRESH)
            self.waypoint = np.full(number, NOWHERE)
            self.previous = np.full(number, NOWHERE)
            self.start_node = np.full(number, NOWHERE)
            self.goal_node = np.full(number, NOWHERE)
            self.attempts = np.zeros(number, np.int64)
            self.given_up = np.zeros(number, np.int64)
        else:
            self.phase[mask] = FRESH
            self.given_up[mask] = 0
        self.planned: list[int] = []  # episodes that made a plan in the last call
        self.blamed: list[tuple[int, int, int]] = []  # (episode, u, v) of the edges blamed in the last call

    def act(self, observation: Any, goal: Any) -> NDArray[Any]:
        """The action of one robot: observation and goal as the environment gives them.

        The goal must stay the same during an episode; `reset(1)` begins a new one.
        """
        if len(self.phase) != 1:
            self.reset(1)
        return self.act_many(np.asarray(observation)[None], np.asarray(goal)[None])[0]

    def act_many(
        self, observations: Any, goals: Any, *, goal_nodes: ArrayLike | None = None, active: Bools | None = None
    ) -> NDArray[Any]:
        """The actions of many robots: (n, ...) observations and (n, ...) goals to (n, ...) actions.

        Args:
            observations: what each robot sees.
            goals: where each should go; must stay the same during an episode.
            goal_nodes: (n,) node ids of the goals, if they are nodes of the memory: saves localising them.
            active: (n,) whose action matters; the others are left alone.
        """
        number = len(observations)
        if len(self.phase) != number:
            self.reset(number)
        active = np.ones(number, np.bool_) if active is None else active
        self.planned, self.blamed = [], []
        embedding = self.memory.embed(observations)
        self._give_up(active)
        self._plan(active & (self.phase == FRESH), embedding, goals, goal_nodes)
        self._advance(active & (self.phase == FOLLOWING), embedding)
        # An edge on the way may be gone by now; then there is another way, or the robot localises itself anew.
        self._plan(active & (self.phase == FRESH), embedding, goals, goal_nodes)
        targets, direct = self._targets(goals, active, embedding)
        # Steps towards the goal say nothing about the edge to the waypoint.
        self.attempts[active & ~direct] += 1
        return self.controller(observations, targets)

    def seen_at(self, nodes: Ints) -> NDArray[Any]:
        """What a controller is sent to for (n,) nodes."""
        return self.memory.waypoints(nodes)

    def locate(self, observations: Any) -> Ints:
        """The nodes, (n,), nearest to where these (n, ...) observations are made."""
        return self.memory.localise(observations).node

    def path(self, episode: int) -> Ints:
        """The nodes of an episode's plan on the graph as it stands, from the first to the goal's; empty without one."""
        if self.phase[episode] in (FRESH, LOST):
            return np.empty(0, np.int64)
        try:
            return self.memory.plan_nodes(self.start_node[episode], self.goal_node[episode], by=self.by).nodes
        except NoPath:
            return np.empty(0, np.int64)

    def _give_up(self, active: Bools) -> None:
        """Blame and plan anew where a waypoint was not reached in time."""
        if not (self.clean or self.replan):
            return
        late = active & (self.phase != FRESH) & (self.attempts >= self.max_steps)
        self.given_up[late] += 1
        blamed = np.flatnonzero(late & (self.phase == FOLLOWING) & (self.previous != NOWHERE))
        if self.clean and len(blamed):
            ends = self.previous[blamed], self.waypoint[blamed]
            self.memory.record_many(*ends, np.zeros(len(blamed), np.bool_))
            self.blamed = list(zip(blamed.tolist(), *(end.tolist() for end in ends), strict=True))
        self.phase[late] = FRESH

    def _plan(self, fresh: Bools, embedding: NDArray[np.float32], goals: Any, goal_nodes: ArrayLike | None) -> None:
        """Localise and plan where that is due."""
        chosen = np.flatnonzero(fresh)
        if not len(chosen):
            return
        to_nodes = self.memory.steps_to_nodes(embedding[chosen], embedded=True)
        ends = self._goal_rows(chosen, goals) if goal_nodes is None else np.asarray(goal_nodes)[chosen]
        first, last = self.memory.attach(to_nodes, ends, by=self.by, within=self.within, candidates=self.candidates)
        self.waypoint[chosen] = self.start_node[chosen] = first
        self.goal_node[chosen] = last
        self.planned += chosen[first != NOWHERE].tolist()
        self.previous[chosen] = NOWHERE
        self.attempts[chosen] = 0
        self.phase[chosen] = np.where(first == NOWHERE, LOST, FOLLOWING)

    def _goal_rows(self, chosen: Ints, goals: Any) -> NDArray[np.float32]:
        """(m, V) steps from every node to the goals of these episodes."""
        return self.memory.steps_from_nodes(np.asarray(goals)[chosen])

    def _advance(self, following: Bools, embedding: NDArray[np.float32]) -> None:
        """Go on to the next waypoint where this one is reached."""
        chosen = np.flatnonzero(following)
        if not len(chosen):
            return
        arrived = chosen[self._reached(embedding[chosen], self.waypoint[chosen])]
        if not len(arrived):
            return
        if self.clean:
            known = arrived[self.previous[arrived] != NOWHERE]
            if len(known):
                self.memory.record_many(self.previous[known], self.waypoint[known], np.ones(len(known), np.bool_))
        here = self.waypoint[arrived]
        following_node = self.memory.next_nodes(here, self.goal_node[arrived], by=self.by)
        last, cut_off = here == self.goal_node[arrived], following_node == NOWHERE
        self.attempts[arrived] = 0
        self.phase[arrived] = np.where(last, AT_LAST, np.where(cut_off, FRESH, FOLLOWING))
        moves = arrived[~last & ~cut_off]
        self.previous[moves] = self.waypoint[moves]
        self.waypoint[moves] = following_node[~last & ~cut_off]

    def _reached(self, embedding: NDArray[np.float32], waypoints: Ints) -> Bools:
        if self.test == "distance":
            steps = self.memory.steps_to(embedding, waypoints)
            return steps < self.memory.settings.max_dist
        return self.memory.reached(embedding, waypoints, self.cutoff, embedded=True)

    def _targets(self, goals: Any, active: Bools, embedding: NDArray[np.float32]) -> tuple[NDArray[Any], Bools]:
        """What each robot is sent to now, and which of them hop straight to the goal."""
        chosen = np.flatnonzero(active & (self.phase == FOLLOWING))
        direct = np.zeros(len(active), np.bool_)
        if self.hopping and len(chosen):
            goal_embedding = self.memory.embed(np.asarray(goals)[chosen])
            near = self.memory.steps(embedding[chosen], goal_embedding, embedded=True) < self.memory.settings.max_dist
            direct[chosen[near]] = True
            chosen = chosen[~near]
        waypoints = self.memory.waypoints(self.waypoint[chosen])
        if waypoints.shape[1:] != np.shape(goals)[1:]:
            raise InputError(
                f"waypoints have shape {waypoints.shape[1:]} and goals {np.shape(goals)[1:]}, but the controller takes "
                "both: make the memory with keep_observations=True, so that waypoints are observations"
            )
        targets = np.array(goals, np.result_type(np.asarray(goals), waypoints))
        targets[chosen] = waypoints
        return targets, direct
