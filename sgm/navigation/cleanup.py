"""Cleanup: the agent sets itself goals in its memory and finds out by acting which edges work."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import EmptyMemory, InputError
from sgm.memory.settings import whole
from sgm.progress import progress_bar

from .evaluation import CUT_OFF, DIED, TIME
from .goals import Goals, make_goals
from .navigator import AT_LAST, LOST, Navigator
from .record import Recorder
from .reset_options import OptionCycle, Options
from .rollout import Driver, Env, Outcome, rows_of

EPISODE_STEPS = 600  # the authors' limit
ENDED = "ended by the environment"


@dataclasses.dataclass(frozen=True)
class CleanupReport:
    """Result of cleanup.

    Attributes:
        steps: number of environment steps.
        episodes: number of finished episodes, each with one goal.
        arrived: number of episodes that reached the node of their goal.
        removed: number of edges removed.
        seconds: wall time, s.
    """

    steps: int
    episodes: int
    arrived: int
    removed: int
    seconds: float

    def asdict(self) -> dict[str, Any]:
        """Return plain numbers, ready for JSON."""
        return dataclasses.asdict(self)


class Cleaner:
    """A batch of robots that clean up one memory; a further call of `run` continues their episodes.

    An episode ends when the node of the goal is reached, when there is no path, after `episode_steps`, and, as in the
    authors' code, when the robot happens to reach the goal of the environment. If the environment resets itself, a
    robot gets its next goal where it is.
    """

    def __init__(
        self,
        navigator: Navigator,
        env: Env,
        *,
        seed: int | Sequence[int] = 0,
        options: Options | None = None,
        goals: str | Goals = "random",
        episode_steps: int = EPISODE_STEPS,
        recorder: Recorder | None = None,
    ) -> None:
        """Clean up `navigator.memory` by acting in `env`; for the arguments see `cleanup`."""
        _require_navigator(navigator)
        if not navigator.clean:
            raise InputError("this navigator does not clean: make it with clean=True")
        if not len(navigator.memory):
            raise EmptyMemory("the memory holds no node yet: give it observations with extend() first")
        self.navigator, self.driver, self.recorder = navigator, Driver(env), recorder
        self.options, self.goals = OptionCycle(options), make_goals(goals)
        self.episode_steps = whole("episode_steps", episode_steps, 1)
        self.driver.require_one_option(len(self.options))
        self.random = np.random.default_rng(seed)
        self._number = np.arange(self.driver.num_envs)  # of the episode in each sub-environment
        self.driver.begin(seeds=int(self.random.integers(2**31)), options=self.options.of(self._number))
        self.elapsed = np.zeros(self.driver.num_envs, np.int64)
        navigator.reset(self.driver.num_envs)
        self.goal_nodes = self._draw(np.ones(self.driver.num_envs, np.bool_))
        self.steps = self.episodes = self.arrived = 0

    def run(self, steps: int, progress: bool = False) -> CleanupReport:
        """Take `steps` environment steps, all robots together."""
        begin, before = time.perf_counter(), (self.steps, self.episodes, self.arrived)
        removed = len(self.navigator.memory.removed().source)
        with progress_bar(shown=progress, total=steps, desc="clean up", unit="step", leave=False) as bar:
            while (left := steps - (self.steps - before[0])) > 0:
                bar.update(self._step(left))
        taken, episodes, arrived = (
            now - then for now, then in zip((self.steps, self.episodes, self.arrived), before, strict=True)
        )
        removed = len(self.navigator.memory.removed().source) - removed
        return CleanupReport(taken, episodes, arrived, removed, time.perf_counter() - begin)

    def _step(self, left: int) -> int:
        """Take one step of all robots, or of as many as there are steps left; return their number."""
        navigator = self.navigator
        turn = np.arange(self.driver.num_envs) < left
        active = turn & ~self.driver.resetting
        actions: Any = ()
        if active.any():
            goals = navigator.waypoints(self.goal_nodes)
            actions = navigator.act_many(self.driver.observation, goals, goal_nodes=self.goal_nodes, active=active)
            if self.recorder is not None:
                self.recorder.note(navigator, self._number, active, self.driver.observation)
        done = active & ((navigator.phase == AT_LAST) | (navigator.phase == LOST))
        self.arrived += int(np.count_nonzero(active & (navigator.phase == AT_LAST)))
        moving = active & ~done
        outcome = self.driver.step(actions, moving)
        self.elapsed[moving] += 1
        self.steps += int(np.count_nonzero(turn))
        over = outcome.terminated | outcome.truncated | outcome.lost
        ended = done | (active & (over | (self.elapsed >= self.episode_steps)))
        self._tell(ended, outcome)
        self._begin(ended)
        return int(np.count_nonzero(turn))

    def _tell(self, ended: NDArray[np.bool_], outcome: Outcome) -> None:
        """Report to the recorder which episodes ended, and why."""
        if self.recorder is None:
            return
        for row in np.flatnonzero(ended).tolist():
            why = DIED if outcome.lost[row] else CUT_OFF if self.navigator.phase[row] == LOST else TIME
            if why == TIME and (outcome.terminated[row] or outcome.truncated[row]):
                why = ENDED
            arrived = bool(self.navigator.phase[row] == AT_LAST)
            number, seen = int(self._number[row]), outcome.observation
            self.recorder.end(self.navigator, number, row, arrived, "" if arrived else why, seen)

    def _begin(self, ended: NDArray[np.bool_]) -> None:
        """Begin new episodes in the sub-environments whose episode ended."""
        if not ended.any():
            return
        self.episodes += int(ended.sum())
        self.elapsed[ended] = 0
        self._number[ended] = self._number.max() + 1 + np.arange(int(ended.sum()))
        self.driver.begin(ended, options=self.options.of(self._number))
        self.navigator.reset(mask=ended)
        self.goal_nodes[ended] = self._draw(ended)

    def _draw(self, begun: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Draw goals for the robots whose episode has just begun."""
        return self.goals.draw(self.navigator, self.random, rows_of(self.driver.observation, begun))


def cleanup(
    navigator: Navigator,
    env: Env,
    steps: int,
    *,
    seed: int = 0,
    options: Options | None = None,
    goals: str | Goals = "random",
    episode_steps: int = EPISODE_STEPS,
    recorder: Recorder | None = None,
    progress: bool = True,
) -> CleanupReport:
    """Clean up a memory for a number of environment steps, with goals drawn from its nodes (Sec. 4.3).

    Args:
        navigator: an agent; one with `clean=False` cleans up during this call only. The policy of its memory decides
            which edges are removed.
        env: any Gymnasium environment, single or vector; all sub-environments clean up the same memory.
        steps: number of environment steps in total.
        seed: seed of starts, goals and noise.
        options: reset options, for example {"uniform": True}; or a list of them, which episodes use in turn.
        goals: "random": any node (as in the paper); "active": goals behind doubtful edges that many plans use, see
            `ActiveGoals`; or an object with the same method `draw`.
        episode_steps: steps after which a robot gets another goal.
        recorder: records the first episodes for the inspector, see `Recorder`.
        progress: show a progress bar.
    """
    _require_navigator(navigator)
    steps = whole("steps", steps, 0)
    before, navigator.clean = navigator.clean, True
    try:
        how: dict[str, Any] = {"episode_steps": episode_steps, "recorder": recorder}
        cleaner = Cleaner(navigator, env, seed=seed, options=options, goals=goals, **how)
        return cleaner.run(steps, progress)
    finally:
        navigator.clean = before
        navigator.reset(0)


def _require_navigator(navigator: Navigator) -> None:
    if not isinstance(navigator, Navigator):
        raise InputError(f"got {navigator!r}: expected a Navigator, whose memory is cleaned up by acting")
