"""Save and load an agent in a folder: memory, networks and settings, without pickle.

`memory.sgm` is the memory. `agent.json` holds the parts of the agent with their settings, and the classes of its
networks. Each network that can be saved is in `NAME.safetensors`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from sgm.errors import InputError, StoreError
from sgm.memory import SparseGraphicalMemory

from .arrive import ARRIVALS
from .blame import BLAMES
from .localise import LOCALISERS
from .navigator import Navigator
from .route import ROUTERS

FORMAT = "sgm agent 1"
PARTS: dict[str, dict[str, Any]] = {"localiser": LOCALISERS, "arrival": ARRIVALS, "router": ROUTERS, "blame": BLAMES}
PLAIN = [
    "max_steps", "clean", "replan", "removals", "first_leg", "hopping", "goal_key", "acts_on", "target", "turn",
    "confident", "patience",
]  # fmt: skip
ROOMS = ("sgm.distances.", "sgm.controllers.", "sgm.learning.")  # packages from which classes may be loaded
_LARGEST = 2**20  # largest size of agent.json, bytes


def save(agent: Navigator, folder: Any) -> None:
    """Write an agent to a folder, which is made if it does not exist.

    Networks are saved if their class is in this package and has `save(path)`. For a user's own controller or distance,
    or one whose `can_be_saved` is false, only the name is stored, and it must be given to `load`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    networks = {
        "controller": agent.controller,
        "memory_distance": agent.memory.distance,
        "memory_features": agent.memory._features,
        "distance": agent.distance,
    }
    content = {
        "format": FORMAT,
        "settings": {name: getattr(agent, name) for name in PLAIN},
        "parts": {name: _part_facts(getattr(agent, name)) for name in PARTS},
        "networks": {name: _keep(network, folder / f"{name}.safetensors") for name, network in networks.items()},
        "look": agent.look is not None,
    }
    text = json.dumps(content, indent=2, default=_plain) + "\n"
    agent.memory.save(folder / "memory.sgm")
    temporary = folder / f"agent.json.{os.getpid()}.new"
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, folder / "agent.json")


def load(
    kind: type[Navigator],
    folder: Any,
    *,
    controller: Any = None,
    distance: Any = None,
    memory_distance: Any = None,
    memory_features: Any = None,
    look: Any = None,
    memory: str = "memory.sgm",
) -> Navigator:
    """Load an agent from a folder.

    Args:
        kind: the class of the agent.
        folder: a folder written by `save`.
        controller: replaces the controller in the folder.
        distance: replaces the distance by which the agent localises itself.
        memory_distance: replaces the distance of the memory.
        memory_features: replaces the feature function of the memory.
        look: for an agent with odometry, see `Navigator`.
        memory: name of the memory file in the folder.
    """
    folder = Path(folder)
    content = _read(folder / "agent.json")
    parts = {name: _make_part(name, content["parts"].get(name), folder) for name in PARTS}
    given = {
        "controller": controller,
        "memory_distance": memory_distance,
        "memory_features": memory_features,
        "distance": distance,
    }
    networks = {name: _network(name, content["networks"].get(name), folder, own) for name, own in given.items()}
    if content.get("look") and look is None:
        raise InputError(f"the agent in {folder} localises itself by images: give look=, see sgm.Navigator")
    graph = SparseGraphicalMemory.load(folder / memory, networks["memory_distance"], networks["memory_features"])
    settings = {name: content["settings"][name] for name in PLAIN if name in content["settings"]}
    try:
        return kind(graph, networks["controller"], distance=networks["distance"], look=look, **parts, **settings)
    except TypeError as error:
        raise StoreError(f"{folder / 'agent.json'} does not describe an agent: {error}") from error


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python values."""
    if isinstance(value, np.generic):
        return value.item()
    raise InputError(f"{value!r} is a setting of this agent that cannot be saved: expected numbers and texts")


def _part_facts(part: Any) -> dict[str, Any]:
    if type(part) not in {kind for kinds in PARTS.values() for kind in kinds.values()}:
        raise InputError(
            f"{type(part).__name__} is a part of your own, which a folder cannot hold: save the memory alone"
        )
    fields = {item.name: getattr(part, item.name) for item in dataclasses.fields(part) if item.init}
    # JSON has no infinity.
    plain = {name: str(value) if value == float("inf") else value for name, value in fields.items()}
    return {"kind": type(part).__name__, **plain}


def _make_part(name: str, facts: Any, folder: Path) -> Any:
    kinds = {kind.__name__: kind for kind in PARTS[name].values()}
    if not isinstance(facts, dict) or facts.get("kind") not in kinds:
        raise StoreError(
            f"{folder / 'agent.json'} has {name} {str(facts)[:80]}; accepted: one of {', '.join(kinds)} with settings"
        )
    values = {key: float("inf") if value == "inf" else value for key, value in facts.items() if key != "kind"}
    try:
        return kinds[facts["kind"]](**values)
    except (TypeError, InputError) as error:
        raise StoreError(
            f"{folder / 'agent.json'} has other settings of {facts['kind']} than expected: {error}"
        ) from error


def _keep(network: Any, path: Path) -> str | None:
    """Save a network of this package; return its class, with "yours: " in front if it was not saved, None for none."""
    if network is None:
        return None
    name = f"{type(network).__module__}:{type(network).__qualname__}"
    ours = name.startswith(ROOMS) and callable(getattr(network, "save", None))
    if not ours or not getattr(network, "can_be_saved", True):
        return f"yours: {name}"
    network.save(path)
    return name


def _network(name: str, kind: Any, folder: Path, given: Any) -> Any:
    if given is not None or kind is None:
        return given
    if not isinstance(kind, str) or kind.startswith("yours: "):
        raise InputError(
            f"{folder} does not hold the agent's {name} ({str(kind)[:80]}): give it, load(folder, {name}=…)"
        )
    module, _, attribute = kind.partition(":")
    if not kind.startswith(ROOMS) or not attribute.isidentifier():
        raise StoreError(f"{folder / 'agent.json'} has {name} {kind[:80]!r}; accepted: a class in {', '.join(ROOMS)}")
    try:
        return getattr(importlib.import_module(module), attribute).load(folder / f"{name}.safetensors")
    except (ImportError, AttributeError) as error:
        raise StoreError(f"{folder / 'agent.json'} has {name} {kind!r}, which cannot be loaded: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise StoreError(f"{path.parent} holds no agent.json: give a folder that Navigator.save has written")
    if path.stat().st_size > _LARGEST:
        raise StoreError(f"{path} is larger than {_LARGEST:,} bytes: expected a file written by Navigator.save")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON: {error}") from error
    named = isinstance(content, dict) and content.get("format") == FORMAT
    if not named or not all(isinstance(content.get(name), dict) for name in ("settings", "parts", "networks")):
        raise StoreError(f"{path} does not describe an agent of this version: expected format {FORMAT!r}")
    return content
