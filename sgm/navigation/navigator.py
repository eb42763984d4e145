"""The agent, for one or many episodes at once, composed of a localiser, an arrival test, a router and blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import EmptyMemory, InputError
from sgm.memory import Distance, SparseGraphicalMemory
from sgm.memory.settings import whole

from .arrive import ARRIVALS, TwoWay, WithinRadius, WithinSteps, calibrate
from .blame import BLAMES, LastEdge
from .localise import LOCALISERS, Bools, Ints, NearestNode
from .route import NOWHERE, ROUTERS, NearestPair

Look = Callable[[Ints], NDArray[Any]]
FRESH, FOLLOWING, AT_LAST, LOST = range(4)  # to be planned; going to a waypoint; all waypoints reached; no path
REMOVALS = ("episode", "none")
GOAL = "achieved_goal"  # the node attribute, and the entry of observations, that is in goal space


class Controller(Protocol):
    """Short-range control: from where a robot is to a target nearby.

    A controller with `uses_previous = True` is also given what was seen a step before, as `previous`.
    """

    def __call__(self, observations: Any, targets: Any, /) -> NDArray[Any]:
        """(n, ...) observations and (n, ...) targets, in goal space, to (n, ...) actions."""
        ...


class Navigator:
    """Follows plans through a memory with a controller that is good for short distances only.

    Each episode has a waypoint it is going to and, unless that is the first one, the node before it. A waypoint that is
    reached is followed by the next one on the way to the goal's node; after the last one the agent heads for the goal
    itself. A waypoint that is not reached within `max_steps` is given up: with `clean` the edge that led to it is
    blamed (`memory.record`), and with `clean` or `replan` the agent localises itself anew and plans again. A goal that
    changes during an episode is planned for at once.

    What fails in an episode is not tried again in it: neither the edge that was not passed (`removals`), nor the first
    waypoint, to which no edge leads (`first_leg`), nor the node from which the goal was not reached. The memory is left
    as it is, and the next episode begins anew.

    Four parts decide how, each by name or as an object with settings of its own; `sgm.navigation.agents` has the
    combinations of SoRB, SGM, SPTM, ConSPTM and ours.

    Differences from the authors' released code: successes are recorded too (the paper's rule ignores them); after the
    last waypoint the agent goes for the goal without comparing ways; `replan`, `removals` and `first_leg` are on unless
    they are switched off, as `sgm.navigation.agents` does for the paper's agents.

    Attributes:
        phase: (n,) what each episode is doing: FRESH, FOLLOWING, AT_LAST or LOST.
        waypoint: (n,) node each episode is going to; −1: none.
        previous: (n,) node before the waypoint; −1: the waypoint is the first one.
        start_node: (n,) node the plan begins at.
        goal_node: (n,) node the plan ends at.
        attempts: (n,) steps spent on the waypoint.
        given_up: (n,) waypoints given up in this episode.
        arrived: (n,) how often the robot came to a waypoint in this episode.
        far_from_nodes: (n,) bool, no node was near when the episode began.
        far_from_goal: (n,) bool, no node was near the goal when the episode began.
        passed_over: (n,) bool, when the episode began, no path joined the nodes nearest to start and goal.
        planned: episodes that made a plan in the last call.
        blamed: (episode, u, v) of the edges blamed in the last call.
    """

    def __init__(
        self,
        memory: SparseGraphicalMemory,
        controller: Controller | Callable[..., NDArray[Any]],
        *,
        localiser: str | NearestNode = "nearest",
        arrival: str | TwoWay | WithinSteps | WithinRadius = "two-way",
        router: str | NearestPair = "nearest",
        blame: str | LastEdge = "last",
        max_steps: int | None = None,
        cutoff: float | str | None = None,
        clean: bool = False,
        replan: bool = True,
        removals: str = "episode",
        first_leg: bool = True,
        hopping: bool = False,
        distance: Distance | None = None,
        look: Look | None = None,
        goal_key: str = "observation",
        acts_on: str = "observation",
        target: str | None = None,
        turn: int | None = None,
        confident: float = 2.0,
        patience: int = 8,
    ) -> None:
        """Make an agent.

        Args:
            memory: where to plan.
            controller: (n, ...) observations and (n, ...) targets to (n, ...) actions, see `Controller`.
            localiser: where robots are: "nearest" (the node nearest to what is seen now), "filter" (`BayesFilter`, all
                that was seen in the episode) or "odometry" (`Odometry`).
            arrival: when a waypoint is reached: "two-way" (SGM), "distance" (`WithinSteps`) or "radius"
                (`WithinRadius`).
            router: "nearest" (`NearestPair`, the paper's) or "ranked" (`RankedGoals`).
            blame: which edge a failure counts against: the "last" one (the paper's) or the most "doubtful" one.
            max_steps: MaxSteps, the steps given to a waypoint; None: 3 × MaxDist, as in the authors' code, and the
                cutoff that a waypoint may be short of.
            cutoff: of an arrival test that is given by name, steps; None: "auto", see `calibrate`.
            clean: blame the edge that led to a waypoint that was not reached, then plan again.
            replan: plan again after a waypoint was not reached, and leave the memory as it is.
            removals: "episode": an edge that was not passed, and a goal's node from which the goal was not reached, are
                not used again in the episode unless there is no other way; the memory is left as it is. "none": they
                are. It needs `replan`, and is of no effect while the agent cleans: then the memory's policy decides.
            first_leg: a first waypoint that was not reached from where the robot planned is not the first of a plan
                again until the robot has passed an edge.
            hopping: go for the goal as soon as it is within MaxDist, waypoints or not (SoRB).
            distance: what the agent localises itself with; None: the memory's own.
            look: (m,) rows of the batch to (m, ...) images of what these robots see now, for odometry.
            goal_key: the entry of Dict observations that the distance sees: "observation", or "achieved_goal" where
                the memory was built over achieved goals.
            acts_on: the entry of Dict observations that the controller acts on.
            target: the node attribute that the controller is sent to; None: "achieved_goal" if the memory has it,
                else the nodes' observations, or their embeddings.
            turn: the action that turns a robot round; while no node is within `confident` steps, the robot looks round
                before it plans. None: it plans at once.
            confident: steps within which the nearest node tells where the robot is.
            patience: steps after which it plans all the same.
        """
        if not isinstance(memory, SparseGraphicalMemory) or not callable(controller):
            raise InputError(
                f"got {type(memory).__name__} and {type(controller).__name__}: expected a SparseGraphicalMemory and a "
                "controller, a function from observations and targets to actions"
            )
        max_steps = None if max_steps is None else whole("max_steps", max_steps, 1)
        _require_switches(clean=clean, replan=replan, hopping=hopping)
        if removals not in REMOVALS:
            raise InputError(f"removals is {removals!r}: expected one of {', '.join(map(repr, REMOVALS))}")
        self.memory, self.controller, self.distance, self.look = memory, controller, distance, look
        self.goal_key, self.acts_on, self.target = goal_key, acts_on, target
        self.clean, self.replan, self.hopping = clean, replan, hopping
        self.removals, self.first_leg = removals, first_leg
        self.turn, self.confident, self.patience = turn, confident, patience
        self._compose(localiser, arrival, router, blame, cutoff)
        limit = getattr(self.arrival, "limit", 0.0) if max_steps is None else 0.0
        self.max_steps = max(1, round(3 * memory.settings.max_dist + limit)) if max_steps is None else max_steps
        self._targets, self._size = self._node_targets(), len(memory)
        self.recorded: Callable[[list[tuple[int, int]], bool], None] | None = None  # told of edges that were tried
        self.acted_on: Any = None
        self._shapes: Any = None  # of observations and goals that are known to be comparable
        self.phase = np.empty(0, np.int64)
        self.reset(0)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: all but `look` and `recorded`, which belong to the environment of this one."""
        return {**self.__dict__, "look": None, "recorded": None}

    def _compose(self, localiser: Any, arrival: Any, router: Any, blame: Any, cutoff: float | str | None) -> None:
        """Make the four parts, see that they go together, and bind them to this agent."""
        self.localiser: NearestNode = _part("localiser", localiser, LOCALISERS)
        self.arrival: Any = _part("arrival", arrival, ARRIVALS)
        self.router: NearestPair = _part("router", router, ROUTERS)
        self.blame: LastEdge = _part("blame", blame, BLAMES)
        if cutoff is not None:
            if not isinstance(arrival, str) or not hasattr(self.arrival, "cutoff"):
                raise InputError("cutoff goes with arrival='two-way' or 'distance'; an arrival object has its own")
            self.arrival.cutoff = cutoff
        if self.localiser.by_odometry and not isinstance(self.arrival, WithinRadius):
            raise InputError(f"arrival is {arrival!r}: an agent with odometry needs 'radius', or WithinRadius(...)")
        for part in (self.localiser, self.arrival, self.router, self.blame):
            part.bind(self)

    # -- episodes ------------------------------------------------------------------------------------------------

    def reset(self, episodes: int | None = None, mask: Bools | None = None) -> None:
        """Forget everything for `episodes` new episodes, or only for those of `mask`."""
        if mask is None:
            number = len(self.phase) if episodes is None else episodes
            self.phase = np.full(number, FRESH)
            self.waypoint, self.previous, self.start_node, self.goal_node = np.full((4, number), NOWHERE)
            self.attempts, self.given_up, self.arrived, self._turned = np.zeros((4, number), np.int64)
            self.passed_over, self.far_from_nodes, self.far_from_goal = np.zeros((3, number), np.bool_)
            self._before: Any = None
            self._new = np.ones(number, np.bool_)
            self._goals: Any = None
            for part in (self.localiser, self.router, self.blame):
                part.reset(number)
        else:
            self._forget(mask)
        self.planned: list[int] = []
        self.blamed: list[tuple[int, int, int]] = []

    def _forget(self, mask: Bools) -> None:
        self.phase[mask] = FRESH
        self.given_up[mask] = self.arrived[mask] = self._turned[mask] = 0
        self._new[mask] = True
        self.localiser.forget(mask)
        for episode in np.flatnonzero(mask).tolist():
            self.router.forget(episode)
            self.blame.forget(episode)

    # -- acting --------------------------------------------------------------------------------------------------

    def act(self, observation: Any, goal: Any) -> NDArray[Any]:
        """The action of one robot: observation and goal as the environment gives them; `reset(1)` begins an episode."""
        if len(self.phase) != 1:
            self.reset(1)
        if isinstance(observation, Mapping):
            batch: Any = {name: np.asarray(value)[None] for name, value in observation.items()}
        else:
            batch = np.asarray(observation)[None]
        return self.act_many(batch, np.asarray(goal)[None])[0]

    def act_many(
        self, observations: Any, goals: Any, *, goal_nodes: ArrayLike | None = None, active: Bools | None = None
    ) -> NDArray[Any]:
        """The actions of many robots: (n, ...) observations, or a dict of them, and (n, ...) goals to (n, ...) actions.

        Args:
            observations: what each robot sees.
            goals: where each should go, in goal space.
            goal_nodes: (n,) node ids of the goals, if they are nodes of the memory: saves localising them.
            active: (n,) whose action matters; the others are left alone.
        """
        self._refresh()
        self.acted_on = entry(observations, self.acts_on, "acts_on")
        looks = self.localiser.by_odometry
        seen = self.acted_on if looks else entry(observations, self.goal_key, "goal_key")
        goals = np.asarray(goals)
        if len(goals) != len(self.acted_on):
            raise InputError(f"got {len(self.acted_on)} observations and {len(goals)} goals: expected as many of each")
        number = len(self.acted_on)
        if len(self.phase) != number:
            self.reset(number)
        active = np.ones(number, np.bool_) if active is None else active
        self.planned, self.blamed = [], []
        nodes = None if goal_nodes is None else np.asarray(goal_nodes)
        if nodes is None and self._shapes != (seen.shape, goals.shape):
            self._require_comparable(seen, goals)
            self._shapes = (seen.shape, goals.shape)
        self._notice_new_goals(goals if nodes is None else nodes, active)
        self.localiser.see(seen, active)
        self.router.visit(active)
        self._give_up(active)
        turning = self._look_round(active & (self.phase == FRESH))
        self._plan(active & ~turning & (self.phase == FRESH), goals, nodes)
        self._advance(active & (self.phase == FOLLOWING))
        if self.router.live:
            # An edge on the way may be gone by now; then there is another way, or the robot localises itself anew.
            self._plan(active & (self.phase == FRESH), goals, nodes)
        return self._act(goals, nodes, active, turning)

    def waypoints(self, nodes: ArrayLike) -> NDArray[Any]:
        """What the controller is sent to for (n,) nodes, in goal space."""
        self._refresh()
        return self._seen_at(np.asarray(nodes))

    def _seen_at(self, nodes: Ints) -> NDArray[Any]:
        return self.memory.waypoints(nodes) if self._targets is None else self._targets[nodes].copy()

    def locate(self, observations: Any) -> Ints:
        """The nodes, (n,), nearest to where these (n, ...) observations are made."""
        self._refresh()
        looks = self.localiser.by_odometry
        name = "acts_on" if looks else "goal_key"
        return self.localiser.nearest(entry(observations, self.acts_on if looks else self.goal_key, name))

    def _refresh(self) -> None:
        """Take over what the memory has got since the last call."""
        size = len(self.memory)
        if not size:
            raise EmptyMemory("the memory holds no node yet: give it observations with extend() first")
        if size != self._size:
            self._targets, self._size = self._node_targets(), size
            self.localiser.refresh()
            self.arrival.bind(self)

    def path(self, episode: int) -> Ints:
        """The nodes of an episode's plan, from the first to the goal's; empty without one."""
        return np.empty(0, np.int64) if self.phase[episode] in (FRESH, LOST) else self.router.path(episode)

    def _require_comparable(self, seen: Any, goals: Any) -> None:
        """InputError if goals are no observations and the distance cannot embed them either."""
        embeds = getattr(self.distance or self.memory.distance, "embed_goal", None) is not None
        if embeds or self.localiser.by_odometry or np.shape(seen)[1:] == np.shape(goals)[1:]:
            return
        raise InputError(
            f"observations have shape {np.shape(seen)[1:]} and goals {np.shape(goals)[1:]}: give the distance a method "
            "embed_goal(goals), or build the memory over achieved goals and make the Navigator with "
            "goal_key='achieved_goal'"
        )

    # -- parts of a step -----------------------------------------------------------------------------------------

    def _notice_new_goals(self, goals: Any, active: Bools) -> None:
        """Plan anew where the goal is not the one of the last step."""
        if self._goals is not None and self._goals.shape == goals.shape:
            unlike = self._goals != goals
            if not unlike.any():
                return
            unlike &= ~((self._goals != self._goals) & (goals != goals))  # NaN is like NaN
            changed = unlike.reshape(len(goals), -1).any(axis=1) & active & ~self._new
            if changed.any():
                self._forget(changed)
        self._goals = goals.copy()

    def _give_up(self, active: Bools) -> None:
        """Blame and plan anew where a waypoint was not reached in time."""
        if not (self.clean or self.replan):
            return
        late = active & (self.phase != FRESH) & (self.attempts >= self.max_steps)
        self.given_up[late] += 1
        failed: list[tuple[int, int]] = []
        for episode in np.flatnonzero(late).tolist():
            if self.phase[episode] == FOLLOWING and self.previous[episode] != NOWHERE:
                edge = int(self.previous[episode]), int(self.waypoint[episode])
                self.router.failed(episode, edge)
                if self.clean:
                    edge = self.blame.culprit(episode, edge)
                    failed.append(edge)
                    self.blamed.append((episode, *edge))
            elif self.phase[episode] == FOLLOWING and self.first_leg:
                self.router.start_failed(episode)
            elif self.phase[episode] == AT_LAST:
                self.router.failed(episode, None)
            self.blame.forget(episode)
        self._record(failed, False)
        self.phase[late] = FRESH

    def _look_round(self, fresh: Bools) -> Bools:
        """Who looks round before planning."""
        turning = np.zeros(len(fresh), np.bool_)
        if self.turn is None or not fresh.any():
            return turning
        unsure = self.localiser.to_nodes(np.flatnonzero(fresh)).min(axis=1) > self.confident
        turning[fresh] = unsure & (self._turned[fresh] < self.patience)
        self._turned[turning] += 1
        self._turned[fresh & ~turning] = 0
        return turning

    def _plan(self, fresh: Bools, goals: Any, goal_nodes: Ints | None) -> None:
        """Localise and plan where that is due."""
        rows = fresh.nonzero()[0]
        if not len(rows):
            return
        signs = (self.passed_over, self.far_from_nodes, self.far_from_goal)
        before = [sign[rows] for sign in signs]
        start, goal = self.router.plan(rows, goals, goal_nodes)
        for sign, known in zip(signs, before, strict=True):  # of the first plan of an episode, not of later ones
            sign[rows] = np.where(self._new[rows], sign[rows], known)
        self.waypoint[rows] = self.start_node[rows] = start
        self.goal_node[rows] = goal
        self.planned += rows[start != NOWHERE].tolist()
        self.previous[rows] = NOWHERE
        self.attempts[rows] = 0
        self.phase[rows] = np.where(start == NOWHERE, LOST, FOLLOWING)

    def _advance(self, following: Bools) -> None:
        """Go on to the next waypoint where this one, or one behind it, is reached."""
        rows = following.nonzero()[0]
        if not len(rows):
            return
        hits = self.arrival(rows, self.router.coming(rows))
        arrived = hits.any(axis=1)
        if not arrived.any():
            return
        rows, hits = rows[arrived], hits[arrived]
        self.arrived[rows] += 1
        passed, worked, last = np.ones(len(rows), np.int64), list[tuple[int, int]](), np.zeros(len(rows), np.bool_)
        for number, episode in enumerate(rows.tolist()):
            path, first = self._rest_of_path(episode)
            mine = hits[number, : len(path) - first].tolist()
            passed[number] = 1 + max(place for place, hit in enumerate(mine) if hit)
            last[number] = path[first + passed[number] - 1] == self.goal_node[episode]
            hit = mine[: passed[number]]
            if first + passed[number] > 1:
                self.router.passed(episode)
            worked += self.blame.passed(episode, path, first, hit, bool(last[number]))
        self._record(worked, True)
        self._move_on(rows, passed, last)

    def _rest_of_path(self, episode: int) -> tuple[Ints, int]:
        """The path that is being followed, and the place of the waypoint on it."""
        if self.router.live:
            known = [node for node in (self.previous[episode], self.waypoint[episode]) if node != NOWHERE]
            return np.array(known), len(known) - 1
        return self.router.paths[episode], int(self.router.place[episode])  # type: ignore[attr-defined]

    def _move_on(self, rows: Ints, passed: Ints, last: Bools) -> None:
        """Make the next node on the way the waypoint; an episode whose way is cut off plans anew."""
        self.attempts[rows] = 0
        self.phase[rows[last]] = AT_LAST
        rows, passed = rows[~last], passed[~last]
        if not len(rows):
            return
        reached = self.router.coming(rows)[np.arange(len(rows)), passed - 1]
        following = self.router.next(rows, passed)
        cut_off = following == NOWHERE
        self.phase[rows[cut_off]] = FRESH
        moves = rows[~cut_off]
        self.previous[moves], self.waypoint[moves] = reached[~cut_off], following[~cut_off]
        if self.clean and self.plans_around_removed:
            gone = [episode for episode in moves.tolist() if self._is_gone(episode)]
            self.phase[gone] = FRESH

    @property
    def removes(self) -> bool:
        """Whether what fails is not tried again in the episode."""
        return self.removals == "episode" and not self.clean

    @property
    def plans_around_removed(self) -> bool:
        """Whether an episode that follows a path looks out for edges that others have removed from it meanwhile."""
        return self.localiser.by_odometry

    def _is_gone(self, episode: int) -> bool:
        edge = int(self.previous[episode]), int(self.waypoint[episode])
        return self.memory.evidence(*edge).removed_at is not None

    def _record(self, edges: list[tuple[int, int]], reached: bool) -> None:
        if self.clean and edges:
            source, target = np.array(edges).T
            self.memory.record_many(source, target, np.full(len(edges), reached))
            if self.recorded is not None:
                self.recorded(edges, reached)

    # -- what the controller is told -----------------------------------------------------------------------------

    def _act(self, goals: Any, nodes: Ints | None, active: Bools, turning: Bools) -> NDArray[Any]:
        """Send each robot to its waypoint or goal."""
        if self.localiser.by_odometry:
            targets, direct = self._positions(None if nodes is not None else goals, active)
        else:
            targets, direct = self._aims(goals, active)
        # By odometry all robots are asked for an action: a network may round differently in smaller batches.
        rows = np.arange(len(active)) if self.localiser.by_odometry else active.nonzero()[0]
        # Steps towards the goal say nothing about the edge to the waypoint.
        self.attempts[active & ~direct] += 1
        chosen = np.asarray(self._call_controller(rows, targets))
        if chosen.ndim == 0 or len(chosen) != len(rows):
            raise InputError(
                f"the controller returned an array of shape {chosen.shape} for {len(rows)} observations: expected "
                f"({len(rows)}, ...), an action for each"
            )
        actions = chosen
        if len(rows) < len(active):
            actions = np.zeros((len(active), *chosen.shape[1:]), chosen.dtype)
            actions[rows] = chosen
        if self.turn is not None:
            actions[turning] = self.turn
        self._new[active] = False
        return actions

    def _call_controller(self, rows: Ints, targets: NDArray[Any]) -> Any:
        now = self.acted_on
        if not getattr(self.controller, "uses_previous", False):
            return self.controller(now[rows], targets[rows])
        before = np.array(now)
        if self._before is not None:
            before[~self._new] = self._before[~self._new]
        self._before = np.array(now)
        return self.controller(now[rows], targets[rows], previous=before[rows])  # type: ignore[call-arg]

    def _aims(self, goals: Any, active: Bools) -> tuple[NDArray[Any], Bools]:
        """(n, ...) what each robot is sent to now, and which of them hop straight to the goal."""
        chosen = (active & (self.phase == FOLLOWING)).nonzero()[0]
        direct = np.zeros(len(active), np.bool_)
        if self.hopping and len(chosen):
            embed = getattr(self.memory.distance, "embed_goal", self.memory.embed)
            vectors = self.localiser.vectors(chosen)
            steps = self.memory.steps(vectors, embed(np.asarray(goals)[chosen]), embedded=True)
            near = steps < self.memory.settings.max_dist
            direct[chosen[near]] = True
            chosen = chosen[~near]
        waypoints = self._seen_at(self.waypoint[chosen])
        if waypoints.shape[1:] != np.shape(goals)[1:]:
            raise InputError(
                f"waypoints have shape {waypoints.shape[1:]} and goals {np.shape(goals)[1:]}, but the controller takes "
                "both: build the memory from an Experience with achieved goals (sgm.collect), or make it with "
                "keep_observations=True where observations are goals"
            )
        aims = np.array(goals, np.result_type(np.asarray(goals), waypoints))
        aims[chosen] = waypoints
        return aims, direct

    def _positions(self, goals: Any, active: Bools) -> tuple[NDArray[Any], Bools]:
        """(n, p) where odometry should lead: to a waypoint, then to where the goal may be. A lost robot stays.

        Without goals they are nodes of the memory.
        """
        localiser = self.localiser
        aims = localiser.places[np.maximum(self.waypoint, 0)]
        last = (active & (self.phase == AT_LAST)).nonzero()[0]
        if len(last):
            aims[last] = localiser.goal_places(last, None if goals is None else goals[last], self.goal_node[last])
        here = np.asarray(self.acted_on)[:, : aims.shape[1]]
        stays = (self.phase == LOST)[:, None]
        return np.where(stays, here, aims), np.zeros(len(active), np.bool_)

    def _node_targets(self) -> NDArray[Any] | None:
        name = self.target or (GOAL if GOAL in self.memory.attributes else None)
        if name is None:
            return None
        if name not in self.memory.attributes:
            raise InputError(f"the memory has no attribute {name!r} to send the controller to")
        targets = np.asarray(self.memory.attributes[name])
        missing = np.isnan(targets).reshape(len(targets), -1).any(axis=1) if targets.dtype.kind == "f" else np.zeros(0)
        if missing.any():
            raise InputError(
                f"{int(missing.sum())} nodes have no {name!r}: extend the memory with an Experience, or with "
                f"attributes={{{name!r}: ...}}, every time"
            )
        return targets

    # -- a folder ------------------------------------------------------------------------------------------------

    def save(self, folder: Any) -> None:
        """Write memory, networks and settings to a folder; see `sgm.navigation.folder`."""
        from .folder import save

        save(self, folder)

    @classmethod
    def load(cls, folder: Any, **given: Any) -> Navigator:
        """The agent of a folder; `given` takes the place of what the folder cannot hold, see `save`."""
        from .folder import load

        return load(cls, folder, **given)


def entry(observations: Any, name: str, argument: str) -> Any:
    """An entry of Dict observations, as an array; other observations as they are."""
    if not isinstance(observations, Mapping):
        return np.asarray(observations)
    if name not in observations:
        raise InputError(f"{argument} is {name!r}: observations have {', '.join(observations)}")
    return np.asarray(observations[name])


def _require_switches(**switches: Any) -> None:
    for name, value in switches.items():
        if not isinstance(value, (bool, np.bool_)):
            raise InputError(f"{name} is {value!r}: expected True or False")


def _part(name: str, given: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(given, str) and given in known:
        return known[given]()
    if isinstance(given, (str, type)) or not hasattr(given, "bind"):
        objects = ", ".join(kind.__name__ for kind in known.values())
        raise InputError(f"{name} is {given!r}: expected {', '.join(map(repr, known))}, or an object: {objects}")
    return given


__all__ = ["AT_LAST", "FOLLOWING", "FRESH", "GOAL", "LOST", "NOWHERE", "Controller", "Navigator", "calibrate"]
