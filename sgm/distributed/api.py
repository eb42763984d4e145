"""`sgm.cleanup` and `sgm.collect`: in this process, or by workers in other processes."""

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
    """Clean up a memory by acting: robots go to nodes of the memory as goals, and failed edges are removed (Sec. 4.3).

    With several workers each has a copy of the agent and of the memory, acts in its own environment and sends the
    results of its tries; this process, the owner of the memory, decides which edges are removed. docs/workers.md lists
    all guarantees.

    Args:
        navigator: an agent; `clean` is switched on during this call. The policy of its memory decides the effect of
            failures.
        env: any Gymnasium environment, single or vector; all sub-environments clean up the same memory. Or a function
            that makes one, which several workers need: each worker calls it.
        steps: total number of environment steps.
        seed: seed of starts, goals and noise.
        options: reset options, for example {"uniform": True}; or a list of them, which episodes use in turn.
        goals: "random": any node (the paper's); "active": ends of uncertain edges that many plans use, see
            `ActiveGoals`; or an object with the same method `draw`.
        episode_steps: steps after which a robot gets another goal.
        recorder: records the first episodes for the inspector, see `Recorder`; with one worker only.
        progress: show a progress bar.
        workers: number of workers; 1: in this process, without workers.
        backend: where several workers run: "multiprocessing" (processes on this machine, started with spawn), "ray" (a
            Ray cluster; extra `ray`) or "in-process" (in turn, in this process).
        order: "rounds": evidence is applied in rounds, in the order of workers, so that the result is deterministic for
            a seed and number of workers unless a worker dies. "arrival": evidence is applied as it arrives, without
            waiting for slow workers.
        timeout: seconds that a worker may take for one batch of evidence, or to start; after that it is replaced.
    """
    how: dict[str, Any] = {"options": options, "goals": goals, "episode_steps": episode_steps}
    if whole("workers", workers, 1) == 1 and backend != "ray":
        if isinstance(navigator, Navigator) and navigator.memory._applied:
            Owner(navigator.memory).close()  # applies evidence that workers of a dead owner have saved
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
    """Act in an environment and record the experience, in this process or with several workers.

    Args:
        env: any Gymnasium environment, single or vector, in any autoreset mode. Or a function that makes one, which
            several workers need: each worker calls it.
        steps: total number of environment steps.
        workers: number of workers; 1: in this process, without workers. `steps` are divided into as many parts, each
            with its own seed; the result depends only on `seed`, `steps` and `workers`.
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
    """Yield an environment: the given one, or one that is made by the given function and closed at the end."""
    if isinstance(env, (gymnasium.Env, VectorEnv)) or not callable(env):
        yield env
        return
    with contextlib.closing(made_env(env)) as made:
        yield made
