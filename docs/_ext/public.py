"""The public names of the package, found in its code.

A name is public if it is in `__all__` of `sgm` or of one of its rooms (`sgm.memory`, `sgm.navigation`, …), if it is an
error, or if it is what users call of a module that a room offers by name (its `LEARNED` modules, and MODULES): `train`,
and the classes and functions that match CALLED.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import sgm

# Modules that are public though no room lists them: environments, and what declares a benchmark.
MODULES = {
    "envs": ["point.env", "doom.env", "safety.env", "ogbench.env"],
    "benchmarks": ["base"],
}
CALLED = re.compile(
    r"train|explore|window_\w+|D3PG|\w*(Distance|Controller|Config|Env|Maze|Mazes|Benchmark|Method|Settings)"
)
# Rooms that hold parts of others, and whose names are no promise to users.
INSIDE = {"learning", "fit", "cli", "progress", "weights", "__main__"}


class Public(NamedTuple):
    """A public name: where users find it, and what it is."""

    path: str
    room: str
    thing: Any

    @property
    def kind(self) -> str:
        """What it is: class, exception, function or data."""
        if inspect.isclass(self.thing):
            return "exception" if issubclass(self.thing, BaseException) else "class"
        return "function" if callable(self.thing) else "data"


def rooms() -> list[str]:
    """Names of the packages in `sgm` that users see, in order."""
    found = [module.name for module in pkgutil.iter_modules(sgm.__path__)]
    return [name for name in found if name not in INSIDE and name != "errors"]


def public_names() -> list[Public]:
    """Every public class, function and exception, each once, under the shortest name that it is found by."""
    found = {id(public.thing): public for public in reversed([*_of_package(), *_of_rooms()])}
    return sorted(found.values(), key=lambda public: public.path.lower())


def _of_package() -> Iterator[Public]:
    for name in sgm.__all__:
        thing = getattr(sgm, name)
        if not inspect.ismodule(thing) and name != "__version__":
            yield Public(f"sgm.{name}", _room_of(thing), thing)


def _of_rooms() -> Iterator[Public]:
    for room in rooms():
        module = importlib.import_module(f"sgm.{room}")
        lazy = [*getattr(module, "FUNCTIONS", ()), *getattr(module, "_FUNCTIONS", ())]
        for name in dict.fromkeys([*getattr(module, "__all__", ()), *lazy]):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                yield from _of_module(room, thing, re.compile(r"\w+"))
            elif inspect.isclass(thing) or callable(thing):
                yield Public(f"sgm.{room}.{name}", room, thing)
        for name in [*getattr(module, "LEARNED", ()), *MODULES.get(room, ())]:
            yield from _of_module(room, importlib.import_module(f"sgm.{room}.{name}"), CALLED)
    yield from _of_module("memory", sgm.errors, re.compile(r"[A-Z]\w+"))


def _of_module(room: str, module: ModuleType, names: re.Pattern[str]) -> Iterator[Public]:
    """Classes and functions that are defined in a module, have such names and no underscore before them."""
    for name, thing in vars(module).items():
        mine = getattr(thing, "__module__", None) == module.__name__
        if mine and names.fullmatch(name) and name[0] != "_" and (inspect.isclass(thing) or inspect.isfunction(thing)):
            yield Public(f"{module.__name__}.{name}", room, thing)


def _room_of(thing: Any) -> str:
    """The room that something is defined in; errors are listed with the memory."""
    parts = thing.__module__.split(".")
    return "memory" if len(parts) < 2 or parts[1] == "errors" else parts[1]


def undocumented() -> list[str]:
    """Public names, and public methods of public classes, without a docstring of their own."""
    missing = []
    for public in public_names():
        if not inspect.getdoc(public.thing):
            missing.append(public.path)
        if public.kind == "class":
            missing += [f"{public.path}.{name}" for name in _bare_methods(public.thing)]
    return missing


def _bare_methods(cls: type) -> list[str]:
    """Public methods and properties defined in a class that neither they nor what they override document."""
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    return [
        name
        for name, member in vars(cls).items()
        if not name.startswith("_")
        and name not in fields
        and (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod)))
        and not inspect.getdoc(getattr(cls, name))
    ]
