"""Threads that share a memory take turns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def takes_turns(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method that waits until no other thread is in one of this object's."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        with self._turn:
            return method(self, *arguments, **options)

    return call
