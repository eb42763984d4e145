"""`sgm.cleanup` and `sgm.collect`: in this process, or by workers in others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from sgm import navigation
from sgm.data import Experience
from sgm.errors import InputError
from sgm.memory.settings import whole
from sgm.navigation import CleanupReport, Navigator, Recorder
from sgm.navigation.cleanup import EPISODE_STEPS
from sgm.navigation.goals import Goals
from sgm.navigation.reset_options import Options
from sgm.navigation.rollout import Env

from .cleaning import Crew, made_env
from .collecting import collect_by_workers
from .owner import Owner
from .pool import TIMEOUT

MakeEnv = Callable[[], Env]


def cleanup(
    navigator: Navigator,
    env: Env | MakeEnv,
    steps: int,
    *,
    seed: int = 0,
    options: Options | None = None,
    goals: str | Goals = "random",
    episode_steps: int = EPISODE_STEPS,
    recorder: Recorder | None = None,
    progress: bool = True,
    workers: int = 1,
    backend: str = "multiprocessing",
    order: str = "rounds",
    timeout: float = TIMEOUT,
) -> CleanupReport:
    """Clean a memory for so many environment steps, with goals drawn from it (Sec. 4.3); by workers, if asked to.

    With several workers each has a copy of the agent and of the memory, acts in an environment of its own and sends
    what it tried; this process, the owner of the memory, decides which edges go. docs/workers.md has all that is
    promised.

    Args:
        navigator: an agent; one that does not clean (`clean=False`) does so during this call. Its memory's policy
            decides what failures mean.
        env: any Gymnasium environment, single or vector; all sub-environments clean the one memory. Or a function that
            makes one, which several workers need: each calls it.
        steps: environment steps in all.
        seed: seeds starts, goals and noise.
        options: reset options, for example {"uniform": True}; or a list of them, which episodes use in turn.
        goals: "random": any node (the paper's); "active": nodes behind doubtful edges that many plans use, see
            `ActiveGoals`; or an object with the same method `draw`.
        episode_steps: steps after which a robot gets another goal.
        recorder: records the first episodes for the inspector, see `Recorder`; with one worker only.
        progress: show a progress bar.
        workers: 1: this process alone, as ever. More: so many workers at once.
        backend: where several workers run: "multiprocessing" (processes on this machine, started with spawn), "ray" (a
            Ray cluster; extra `ray`) or "in-process" (in turn, here).
        order: "rounds": evidence is taken in by rounds, in the order of workers, so that one seed and number of workers
            gives one result unless a worker dies. "arrival": as it comes, and nobody waits for a slow worker.
        timeout: seconds that a worker may take for one batch of evidence, or to start; then it is replaced.
    """
    how: dict[str, Any] = {"options": options, "goals": goals, "episode_steps": episode_steps}
    if whole("workers", workers, 1) == 1 and backend != "ray":
        if isinstance(navigator, Navigator) and navigator.memory._applied:
            Owner(navigator.memory).close()  # takes in what workers of a dead owner have left behind
        with _environment(env) as made:
            return navigation.cleanup(navigator, made, steps, seed=seed, recorder=recorder, progress=progress, **how)
    if recorder is not None:
        raise InputError("recorder records the episodes of this process: leave it out, or give workers=1")
    crew = Crew(
        navigator, env, workers=workers, backend=backend, seed=seed, order=order, timeout=timeout, **how  # type: ignore[arg-type]
    )  # fmt: skip
    with crew:
        return crew.run(steps, progress)


def collect(
    env: Env | MakeEnv, steps: int, *, workers: int = 1, backend: str = "multiprocessing", **how: Any
) -> Experience:
    """Act in an environment and keep what was seen; by workers, if asked to.

    Args:
        env: any Gymnasium environment, single or vector, in any autoreset mode. Or a function that makes one, which
            several workers need: each calls it.
        steps: environment steps in all.
        workers: 1: this process alone. More: `steps` are divided into so many parts, each with a seed of its own; what
            comes of it depends on `seed`, `steps` and `workers`, and on nothing else.
        backend: where several workers run, see `sgm.cleanup`.
        how: further arguments of `sgm.navigation.collect`: behaviour, mix, hold, episode_steps, key, goal_key,
            position_key, seed, options, progress; and timeout, see `sgm.cleanup`.
    """
    if whole("workers", workers, 1) == 1 and backend != "ray":
        how.pop("timeout", None)
        with _environment(env) as made:
            return navigation.collect(made, steps, **how)
    return collect_by_workers(env, steps, workers, backend, **how)


@contextlib.contextmanager
def _environment(env: Any) -> Iterator[Any]:
    """An environment as it is, or one that is made now and closed at the end."""
    if isinstance(env, (gymnasium.Env, VectorEnv)) or not callable(env):
        yield env
        return
    with contextlib.closing(made_env(env)) as made:
        yield made
