"""Experience from a Minari dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, MissingExtra

from .experience import Experience

if TYPE_CHECKING:
    from minari import MinariDataset


def from_minari(
    id_or_dataset: str | MinariDataset,
    *,
    key: str = "observation",
    goal_key: str = "achieved_goal",
    position_key: str | None = None,
    actions: bool = True,
    download: bool = False,
) -> Experience:
    """Read all episodes of a Minari dataset. An episode has one more observation than actions.

    Args:
        id_or_dataset: such as "D4RL/pointmaze/large-v2", or a dataset that was loaded or filtered already.
        key: the entry of Dict observations to keep; plain observations are kept as they are.
        goal_key: the entry of Dict observations that says what is achieved, if there is one.
        position_key: the entry of Dict observations that is ground truth for figures and evaluation; None: none is.
        actions: keep actions, which must be of a Box, Discrete, MultiDiscrete or MultiBinary space. A memory and plans
            need no actions, a controller does.
        download: fetch a dataset that is not on this machine.
    """
    dataset = _load(id_or_dataset, download) if isinstance(id_or_dataset, str) else id_or_dataset
    for method in ("iterate_episodes", "total_steps", "total_episodes"):
        if not hasattr(dataset, method):
            raise InputError(f"got a {type(dataset).__name__}: expected a Minari dataset, or the id of one")
    total = int(dataset.total_steps) + int(dataset.total_episodes)
    columns: dict[str, NDArray[Any]] = {}
    lengths: list[int] = []
    for episode in dataset.iterate_episodes():
        parts = _parts(episode, key, goal_key, position_key, actions)
        length, begin = len(parts["observations"]), sum(lengths)
        for name, values in parts.items():
            column = columns.setdefault(name, np.zeros((total, *values.shape[1:]), values.dtype))
            if values.shape[1:] != column.shape[1:]:
                raise InputError(f"episode {episode.id} has {name} of shape {values.shape[1:]}: expected "
                                 f"{column.shape[1:]}, as the episodes before")  # fmt: skip
            expected = length - 1 if name in ("actions", "rewards") else length
            if len(values) != expected:
                raise InputError(
                    f"episode {episode.id} has {length} observations and {len(values)} {name}: expected {expected}"
                )
            column[begin : begin + expected] = values
            if expected:
                column[begin + expected : begin + length] = values[-1:]
        lengths.append(length)
    if not lengths:
        raise InputError(f"{_name(dataset)} has no episodes")
    columns = {name: values[: sum(lengths)] for name, values in columns.items()}
    return Experience(episodes=np.repeat(np.arange(len(lengths)), lengths), source=_name(dataset), **columns)


def _load(name: str, download: bool) -> MinariDataset:
    try:
        import minari
    except ModuleNotFoundError as error:
        raise MissingExtra("reading a Minari dataset", "minari", error) from error
    try:
        return minari.load_dataset(name, download=download)
    except (FileNotFoundError, ValueError) as error:
        local = ", ".join(sorted(minari.list_local_datasets())) or "none"
        raise InputError(
            f"Minari has no dataset {name!r} on this machine (there: {local}): give download=True, or run "
            f"minari download {name} ({error})"
        ) from error
    except ImportError as error:
        raise MissingExtra(
            "reading this Minari dataset", "minari", ModuleNotFoundError(str(error), name=error.name or "h5py")
        ) from error


def _name(dataset: Any) -> str:
    return f"minari:{getattr(getattr(dataset, 'spec', None), 'dataset_id', 'dataset')}"


def _parts(episode: Any, key: str, goal_key: str, position_key: str | None, actions: bool) -> dict[str, NDArray[Any]]:
    """Arrays of an episode, by their names in Experience."""
    seen = episode.observations
    parts = {"observations": _entry(seen, key, "key"), "rewards": np.asarray(episode.rewards)}
    if isinstance(seen, Mapping) and goal_key in seen:
        parts["achieved_goals"] = _entry(seen, goal_key, "goal_key")
    if position_key is not None:
        if not isinstance(seen, Mapping):
            raise InputError(f"position_key is {position_key!r}, but observations have no entries: leave it out")
        parts["positions"] = _entry(seen, position_key, "position_key")
    if actions:
        parts["actions"] = _numbers(episode.actions, "actions are", "give actions=False: a memory and plans need none")
    return parts


def _entry(seen: Any, key: str, argument: str) -> NDArray[Any]:
    """Return an entry of Dict observations, or plain observations; those of a Discrete space become (n, 1)."""
    if isinstance(seen, Mapping):
        if key not in seen:
            raise InputError(f"{argument} is {key!r}: observations have {', '.join(map(str, seen))}")
        seen = seen[key]
    values = _numbers(seen, "observations are", f"choose an entry of Dict observations with {argument}=")
    return values[:, None] if values.ndim == 1 else values


def _numbers(values: Any, what: str, advice: str) -> NDArray[Any]:
    if isinstance(values, (Mapping, tuple, list)) or np.asarray(values).dtype.kind not in "iufb":
        kind = f"a {type(values).__name__}" if isinstance(values, (Mapping, tuple, list)) else "no numbers"
        raise InputError(f"{what} {kind}: expected arrays of numbers; {advice}")
    return np.asarray(values)
