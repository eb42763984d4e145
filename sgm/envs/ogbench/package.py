"""Environments of the `ogbench` package as vector environments whose seed determines every episode."""

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
    """Wrapper that replaces NumPy's global generator, from which an environment draws, by the environment's own.

    Mazes of OGBench draw the noise of starts and goals, tasks and teleports from `np.random`, and random actions before
    an episode from their action space. Their seed affects neither. Here `reset(seed=...)` seeds both, and the global
    generator is unchanged after every call.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Wrap an environment."""
        super().__init__(env)
        self._numbers = np.random.RandomState()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        if seed is not None:
            self._numbers.seed(seed % 2**32)
            self.env.unwrapped.action_space.seed(seed)
        with self._in_place():
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take an action."""
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
    """Make `number` environments of an id as a `SyncVectorEnv` without autoreset; MissingExtra without the package."""
    register(f"ogbench:{name}", draws=name.startswith("visual-"))
    mode = {"autoreset_mode": AutoresetMode.DISABLED}
    return gymnasium.make_vec(name, number, "sync", vector_kwargs=mode, wrappers=[OwnNumbers], **arguments)


def register(what: str, *, draws: bool = False) -> None:
    """Import the package, also without a display; MissingExtra, for `what`, if it is not installed."""
    before = os.environ.get("MUJOCO_GL")
    os.environ.setdefault("MUJOCO_GL", "egl" if draws else "disabled")
    try:
        import ogbench.locomaze  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(what, "ogbench", error) from error
    finally:  # other environments of this process may render later
        if before is None:
            del os.environ["MUJOCO_GL"]
