"""The agent, for one or many episodes at once, composed of a localiser, an arrival test, a router and a blame rule."""

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
FRESH, FOLLOWING, AT_LAST, LOST = range(4)  # needs a plan; going to a waypoint; all waypoints reached; no path
REMOVALS = ("episode", "none")
GOAL = "achieved_goal"  # name of the node attribute, and of the entry of observations, in goal space


class Controller(Protocol):
    """Short-range control: moves a robot to a target nearby.

    A controller with `uses_previous = True` is also given the observations one step before, as `previous`.
    """

    def __call__(self, observations: Any, targets: Any, /) -> NDArray[Any]:
        """Return (n, ...) actions for (n, ...) observations and (n, ...) targets in goal space."""
        ...


class Navigator:
    """Follows plans through a memory with a controller that is good over short distances only.

    Each episode has a present waypoint and, unless it is the first one, the node before it. When a waypoint is reached,
    the next node on the path to the goal node becomes the waypoint; after the last one the agent heads for the goal
    itself. A waypoint that is not reached within `max_steps` is given up: with `clean` a failure of the edge that led
    to it is recorded (`memory.record`), and with `clean` or `replan` the agent localises itself and plans again. If the
    goal changes during an episode, the agent plans again at once.

    Failures are avoided for the rest of an episode: an edge whose target was not reached (`removals`), a first waypoint
    that was not reached, to which no edge leads (`first_leg`), and a node from which the goal was not reached. The
    memory is not changed, and the next episode begins without these restrictions.

    Four parts define the behaviour, each given by name or as an object with its own settings; `sgm.navigation.agents`
    has the combinations of SoRB, SGM, SPTM, ConSPTM and ours.

    Differences from the authors' released code: successes are recorded too (the paper's rule ignores them); after the
    last waypoint the agent heads for the goal without comparing paths; `replan`, `removals` and `first_leg` are on by
    default, and `sgm.navigation.agents` switches them off for the agents of the paper.

    Attributes:
        phase: (n,) phase of each episode: FRESH, FOLLOWING, AT_LAST or LOST.
        waypoint: (n,) present waypoint of each episode, a node; −1: none.
        previous: (n,) node before the waypoint; −1: the waypoint is the first one.
        start_node: (n,) first node of the plan.
        goal_node: (n,) last node of the plan.
        attempts: (n,) number of steps spent on the waypoint.
        given_up: (n,) number of waypoints given up in this episode.
        arrived: (n,) number of times that the robot reached a waypoint in this episode.
        far_from_nodes: (n,) bool, no node was near the robot when the episode began.
        far_from_goal: (n,) bool, no node was near the goal when the episode began.
        passed_over: (n,) bool, no path joined the nodes nearest to start and goal when the episode began.
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
            memory: the memory on which it plans.
            controller: (n, ...) observations and (n, ...) targets to (n, ...) actions, see `Controller`.
            localiser: how robots are localised: "nearest" (the node nearest to the present observation), "filter"
                (`BayesFilter`, from all observations of the episode) or "odometry" (`Odometry`).
            arrival: when a waypoint is reached: "two-way" (SGM), "distance" (`WithinSteps`) or "radius"
                (`WithinRadius`).
            router: "nearest" (`NearestPair`, as in the paper) or "ranked" (`RankedGoals`).
            blame: the edge for which a failure is recorded: the "last" one (as in the paper) or the most "doubtful".
            max_steps: MaxSteps, the number of steps allowed for a waypoint; None: 3 × MaxDist, as in the authors' code,
                plus the cutoff of the arrival test.
            cutoff: cutoff of an arrival test that is given by name, steps; None: "auto", see `calibrate`.
            clean: record a failure of the edge that led to a waypoint that was not reached, then plan again.
            replan: plan again after a waypoint was not reached, without changing the memory.
            removals: "episode": an edge whose target was not reached, and a node from which the goal was not reached,
                are not used again in the episode unless there is no other path; the memory is not changed. "none": they
                may be used again. It needs `replan`, and has no effect with `clean`: then the policy of the memory
                decides.
            first_leg: a first waypoint that was not reached is not the first one of a plan again until the robot has
                passed an edge.
            hopping: head for the goal as soon as it is within MaxDist, instead of the waypoint (SoRB).
            distance: the distance by which the agent localises itself; None: that of the memory.
            look: (m,) rows of the batch to (m, ...) present images of these robots, for odometry.
            goal_key: the entry of Dict observations that the distance takes: "observation", or "achieved_goal" if the
                memory was built over achieved goals.
            acts_on: the entry of Dict observations that the controller takes.
            target: the node attribute that is the target of the controller; None: "achieved_goal" if the memory has it,
                otherwise the observations of the nodes, or their embeddings.
            turn: the action that turns a robot. While no node is within `confident` steps, the robot turns before it
                plans. None: it plans at once.
            confident: distance in steps within which the nearest node is trusted.
            patience: number of turns after which the robot plans in any case.
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
        self.recorded: Callable[[list[tuple[int, int]], bool], None] | None = None  # called with the edges tried
        self.acted_on: Any = None
        self._shapes: Any = None  # shapes of observations and goals that were found comparable
        self.phase = np.empty(0, np.int64)
        self.reset(0)

    def __getstate__(self) -> dict[str, Any]:
        """State of a copy: everything except `look` and `recorded`, which belong to the environment of this agent."""
        return {**self.__dict__, "look": None, "recorded": None}

    def _compose(self, localiser: Any, arrival: Any, router: Any, blame: Any, cutoff: float | str | None) -> None:
        """Make the four parts, check that they fit together, and bind them to this agent."""
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
        """Begin `episodes` new episodes, or new ones only in the rows of `mask`."""
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
        """Return the action of one robot; call `reset(1)` to begin an episode.

        Observation and goal are those of a single environment. For many robots use `act_many`.
        """
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
        """Return the (n, ...) actions of many robots.

        Args:
            observations: (n, ...) present observations of the robots, or a dict of them.
            goals: (n, ...) goals of the robots, in goal space.
            goal_nodes: (n,) node ids of the goals, if they are nodes of the memory; they need not be localised then.
            active: (n,) the robots whose actions are needed; the state of the others does not change.
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
            # An edge on the path may have been removed: then the robot localises itself and plans again at once.
            self._plan(active & (self.phase == FRESH), goals, nodes)
        return self._act(goals, nodes, active, turning)

    def waypoints(self, nodes: ArrayLike) -> NDArray[Any]:
        """Return the targets of the controller for (n,) nodes, in goal space."""
        self._refresh()
        return self._seen_at(np.asarray(nodes))

    def _seen_at(self, nodes: Ints) -> NDArray[Any]:
        return self.memory.waypoints(nodes) if self._targets is None else self._targets[nodes].copy()

    def locate(self, observations: Any) -> Ints:
        """Return the (n,) nodes nearest to (n, ...) observations."""
        self._refresh()
        looks = self.localiser.by_odometry
        name = "acts_on" if looks else "goal_key"
        return self.localiser.nearest(entry(observations, self.acts_on if looks else self.goal_key, name))

    def _refresh(self) -> None:
        """Update the agent after nodes were added to the memory."""
        size = len(self.memory)
        if not size:
            raise EmptyMemory("the memory holds no node yet: give it observations with extend() first")
        if size != self._size:
            self._targets, self._size = self._node_targets(), size
            self.localiser.refresh()
            self.arrival.bind(self)

    def path(self, episode: int) -> Ints:
        """Return the nodes of the plan of an episode, from the first to the goal node; empty without a plan."""
        return np.empty(0, np.int64) if self.phase[episode] in (FRESH, LOST) else self.router.path(episode)

    def _require_comparable(self, seen: Any, goals: Any) -> None:
        """Raise InputError if goals have another shape than observations and the distance cannot embed goals."""
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
        """Begin again in episodes whose goal has changed since the last step."""
        if self._goals is not None and self._goals.shape == goals.shape:
            unlike = self._goals != goals
            if not unlike.any():
                return
            unlike &= ~((self._goals != self._goals) & (goals != goals))  # NaN counts as equal to NaN
            changed = unlike.reshape(len(goals), -1).any(axis=1) & active & ~self._new
            if changed.any():
                self._forget(changed)
        self._goals = goals.copy()

    def _give_up(self, active: Bools) -> None:
        """Give up waypoints that were not reached in time: record failures, and plan again."""
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
        """(n,) the robots that turn before they plan."""
        turning = np.zeros(len(fresh), np.bool_)
        if self.turn is None or not fresh.any():
            return turning
        unsure = self.localiser.to_nodes(np.flatnonzero(fresh)).min(axis=1) > self.confident
        turning[fresh] = unsure & (self._turned[fresh] < self.patience)
        self._turned[turning] += 1
        self._turned[fresh & ~turning] = 0
        return turning

    def _plan(self, fresh: Bools, goals: Any, goal_nodes: Ints | None) -> None:
        """Localise and plan in these episodes."""
        rows = fresh.nonzero()[0]
        if not len(rows):
            return
        signs = (self.passed_over, self.far_from_nodes, self.far_from_goal)
        before = [sign[rows] for sign in signs]
        start, goal = self.router.plan(rows, goals, goal_nodes)
        for sign, known in zip(signs, before, strict=True):  # these describe the first plan of an episode only
            sign[rows] = np.where(self._new[rows], sign[rows], known)
        self.waypoint[rows] = self.start_node[rows] = start
        self.goal_node[rows] = goal
        self.planned += rows[start != NOWHERE].tolist()
        self.previous[rows] = NOWHERE
        self.attempts[rows] = 0
        self.phase[rows] = np.where(start == NOWHERE, LOST, FOLLOWING)

    def _advance(self, following: Bools) -> None:
        """Advance episodes that have reached their waypoint or a later one."""
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
        """Return the path that an episode follows, and the position of its waypoint."""
        if self.router.live:
            known = [node for node in (self.previous[episode], self.waypoint[episode]) if node != NOWHERE]
            return np.array(known), len(known) - 1
        return self.router.paths[episode], int(self.router.place[episode])  # type: ignore[attr-defined]

    def _move_on(self, rows: Ints, passed: Ints, last: Bools) -> None:
        """Make the next node on the path the waypoint; episodes whose path was cut plan again."""
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
        """Whether failures are avoided for the rest of an episode."""
        return self.removals == "episode" and not self.clean

    @property
    def plans_around_removed(self) -> bool:
        """Whether an episode plans again if an edge of its path has been removed by another episode."""
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

    # -- targets of the controller -------------------------------------------------------------------------------

    def _act(self, goals: Any, nodes: Ints | None, active: Bools, turning: Bools) -> NDArray[Any]:
        """Return the actions of the controller, with the waypoint or the goal of each robot as its target."""
        if self.localiser.by_odometry:
            targets, direct = self._positions(None if nodes is not None else goals, active)
        else:
            targets, direct = self._aims(goals, active)
        # With odometry actions are computed for all robots: a network may round differently in smaller batches.
        rows = np.arange(len(active)) if self.localiser.by_odometry else active.nonzero()[0]
        # Steps directly towards the goal do not count as a try of the edge to the waypoint.
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
        """(n, ...) target of each robot, and (n,) which of them head straight for the goal."""
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
        """(n, p) target positions for odometry: the waypoint, or in the end the goal. A robot without a path stays.

        `goals` is None if they are nodes of the memory.
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
        """Load the agent from a folder; `given` replaces parts that the folder cannot hold, see `save`."""
        from .folder import load

        return load(cls, folder, **given)


def entry(observations: Any, name: str, argument: str) -> Any:
    """Return an entry of Dict observations as an array; other observations are returned as they are."""
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
