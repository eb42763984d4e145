"""Collecting with many workers: each part has its own seed, so it does not matter which worker collects it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sgm.data import Experience
from sgm.data.experience import joined
from sgm.errors import InputError
from sgm.memory.settings import whole
from sgm.navigation import collect
from sgm.progress import progress_bar

from .cleaning import made_env
from .messages import Ready
from .pool import Pool

_DAY = 24 * 3600.0  # seconds


class Part(NamedTuple):
    """A part of the experience to collect.

    Attributes:
        number: number of the part.
        steps: environment steps.
        seed: seed of the environment and of random actions.
    """

    number: int
    steps: int
    seed: int


class CollectWorker:
    """Worker that collects parts, each in a new environment, so that parts are independent."""

    def __init__(self, make_env: Callable[[], Any], how: dict[str, Any]) -> None:
        """Make a worker; `how` are further arguments of `collect`."""
        self.make_env, self.how, self.num_envs = make_env, how, 1

    def answer(self, request: Part) -> tuple[Part, Experience]:
        """Collect the experience of a part."""
        env = made_env(self.make_env)
        try:
            return request, collect(env, request.steps, seed=request.seed, progress=False, **self.how)
        finally:
            env.close()

    def leave(self) -> None:
        """Do nothing: an unfinished part is collected again."""

    def close(self) -> None:
        """Do nothing: environments are closed after each part."""


def collect_by_workers(
    make_env: Any,
    steps: int,
    workers: int,
    backend: Any,
    *,
    seed: int = 0,
    progress: bool = True,
    timeout: float | None = None,
    **how: Any,
) -> Experience:
    """Collect experience with workers; see `sgm.collect`. `timeout` is for a whole part; None: a day."""
    if not callable(make_env) or hasattr(make_env, "step"):
        raise InputError(
            f"env is {make_env!r}: with workers give a function that makes an environment, because each worker needs "
            "its own"
        )
    parts = divided(whole("steps", steps, 1), workers, whole("seed", seed, 0))
    timeout = _DAY if timeout is None else timeout
    found = collect_parts(make_env, parts, len(parts), backend, progress=progress, timeout=timeout, how=how)
    done = {part.number: data for part, data in found}
    return joined([data for _, data in sorted(done.items())])


def collect_parts(
    make_env: Callable[[], Any],
    parts: Sequence[Part],
    workers: int,
    backend: Any,
    *,
    how: dict[str, Any],
    progress: bool = True,
    timeout: float = _DAY,
) -> Iterator[tuple[Part, Experience]]:
    """Yield the experience of each part as soon as it is collected.

    Args:
        make_env: function that makes an environment in each worker.
        parts: parts to collect.
        workers: number of workers.
        backend: where workers run.
        how: further arguments of `sgm.navigation.collect`.
        progress: show a progress bar.
        timeout: seconds that a worker may take for a part.
    """
    worker = functools.partial(CollectWorker, make_env=make_env, how=how)
    total = sum(part.steps for part in parts)
    with (
        contextlib.closing(Pool(lambda _: worker, workers, backend, timeout=timeout)) as pool,
        progress_bar(shown=progress, total=total, desc="collect", unit="step", leave=False) as bar,
    ):
        for part, data in _collected(pool, list(parts)):
            bar.update(part.steps)
            yield part, data


def divided(steps: int, parts: int, seed: int) -> list[Part]:
    """Divide steps into at most `parts` parts of about equal length, each with its own seed; none is empty."""
    parts = min(parts, steps)
    ends = [steps * number // parts for number in range(parts + 1)]
    return [
        Part(number, ends[number + 1] - ends[number], int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
        for number in range(parts)
    ]


def _collected(pool: Pool, waiting: list[Part]) -> Iterator[tuple[Part, Experience]]:
    """Yield the parts that workers collect; the part of a dead worker is given to another."""
    left = len(waiting)
    while left:
        for member, answer in pool.wait():
            if answer is None and member.task is not None:
                waiting.insert(0, member.task)
            elif isinstance(answer, tuple) and not isinstance(answer, Ready):
                left -= 1
                yield answer
        for member in pool.members:
            if member.num_envs and member.task is None and waiting:
                pool.ask(member, waiting[0], waiting.pop(0))
