"""The environments of the `ogbench` package as vector environments that repeat with their seed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from sgm.errors import MissingExtra


class OwnNumbers(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that draws from NumPy's global generator, with a generator of its own in its place.

    Mazes of OGBench draw the noise of starts and goals, tasks and teleports from `np.random`, and random actions before
    an episode from their action space. Their seed reaches neither. Here `reset(seed=...)` seeds both, and the global
    generator is as before after every call.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment."""
        super().__init__(env)
        self._numbers = np.random.RandomState()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if seed is not None:
            self._numbers.seed(seed % 2**32)
            self.env.unwrapped.action_space.seed(seed)
        with self._in_place():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Carry out an action."""
        with self._in_place():
            return self.env.step(action)

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        before = np.random.get_state()  # noqa: NPY002 (the package uses it)
        np.random.set_state(self._numbers.get_state())  # noqa: NPY002
        try:
            yield
        finally:
            self._numbers.set_state(np.random.get_state())  # noqa: NPY002
            np.random.set_state(before)  # noqa: NPY002


def make_vec(name: str, number: int, **arguments: Any) -> Any:
    """So many environments of an id as a `SyncVectorEnv` without autoreset; MissingExtra without the package."""
    register(f"ogbench:{name}", draws=name.startswith("visual-"))
    mode = {"autoreset_mode": AutoresetMode.DISABLED}
    return gymnasium.make_vec(name, number, "sync", vector_kwargs=mode, wrappers=[OwnNumbers], **arguments)


def register(what: str, *, draws: bool = False) -> None:
    """Import the package, also where there is no screen; MissingExtra, for `what`, if it is not installed."""
    before = os.environ.get("MUJOCO_GL")
    os.environ.setdefault("MUJOCO_GL", "egl" if draws else "disabled")
    try:
        import ogbench.locomaze  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(what, "ogbench", error) from error
    finally:  # other environments of this process may want to draw later
        if before is None:
            del os.environ["MUJOCO_GL"]
