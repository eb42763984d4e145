"""Goal-conditioned policies of Stable-Baselines3, as controllers and distances use them.

A policy that was trained with hindsight replay sees three entries: `observation`, `achieved_goal` and `desired_goal`.
Here it is given observations and goals only, so the achieved goal must follow from the observation.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from sgm.data.experience import Experience
from sgm.errors import InputError, MissingExtra, StoreError

from .device import resolve_device
from .tensors import read_tensors, write_tensors

Floats = NDArray[np.float32]
Achieved = Callable[[NDArray[Any]], Any] | Sequence[int] | None
ALGORITHMS = ("SAC", "TD3", "DDPG", "DQN")  # whose critics tell steps, and whose policies can be kept in a file
SEEN, ACHIEVED, WANTED = "observation", "achieved_goal", "desired_goal"
_SAMPLE = 1_000  # observations on which columns are looked for
_NUMBERS = 4_000_000  # that go through a policy at once


class GoalPolicy:
    """A copy of a trained policy that takes observations and goals as flat vectors.

    An embedding holds an observation and what it achieves: (n, e) float32, the o numbers of an observation, followed by
    its achieved goal where that is not among them. `columns` says which g numbers of an embedding are the goal.

    Attributes:
        columns: (g,) the numbers of an embedding that are in goal space; None: the achieved goal is unknown.
        algorithm: name of the algorithm, "" for one that is not among `ALGORITHMS`.
    """

    def __init__(
        self, policy: Any, algorithm: str, columns: Sequence[int] | None, achieved: Callable[..., Any] | None = None
    ) -> None:
        """Take a policy over Dict observations; `achieved` makes goals of observations where columns cannot."""
        self.policy, self.algorithm, self._achieved = policy, algorithm, achieved
        entries = policy.observation_space.spaces
        self.shape, self.goal_shape = entries[SEEN].shape, entries[WANTED].shape
        self.size, self.goal_size = int(np.prod(self.shape)), int(np.prod(self.goal_shape))
        if achieved is not None:
            columns = range(self.size, self.size + self.goal_size)
        self.columns = None if columns is None else np.asarray(columns, np.int64)
        policy.set_training_mode(False)
        for parameter in policy.parameters():
            parameter.requires_grad_(False)

    @classmethod
    def of(cls, model: Any, achieved: Achieved, data: Experience | None, device: str | None = None) -> GoalPolicy:
        """A copy of a model's policy, on a device, see `resolve_device` (None: the model's own)."""
        policy = getattr(model, "policy", None)
        space = getattr(policy, "observation_space", None)
        if policy is None or not callable(getattr(policy, "predict", None)):
            raise InputError(f"model is {type(model).__name__}: expected a trained model of Stable-Baselines3")
        entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
        known = {SEEN, WANTED} <= set(entries) <= {SEEN, ACHIEVED, WANTED}
        if not known or not all(isinstance(entry, spaces.Box) for entry in entries.values()):
            raise InputError(
                f"the policy sees {space}: expected Dict observations with the Box entries observation, achieved_goal "
                "and desired_goal (MultiInputPolicy)"
            )
        if getattr(model, "get_vec_normalize_env", lambda: None)() is not None:
            raise InputError(
                "the model sees what VecNormalize makes of observations, which the memory does not: train without it, "
                "and normalise in an environment wrapper instead"
            )
        copied = copy.deepcopy(policy)
        if device is not None:
            copied = copied.to(resolve_device(device))
        function = achieved if callable(achieved) else None
        columns = None if function else find_columns(entries, achieved, data, model)
        return cls(copied, _algorithm(model, policy), columns, function)

    # -- observations and goals ------------------------------------------------------------------------------------

    def embed(self, observations: Any) -> Floats:
        """(n, ...) observations to (n, e)."""
        values = np.asarray(observations)
        flat = flatten(values, self.shape, "observations")
        if self._achieved is None:
            return flat
        return np.concatenate(
            [flat, flatten(self._achieved(values), self.goal_shape, "achieved(observations)")], axis=1
        )

    def embed_goal(self, goals: Any) -> Floats:
        """(n, ...) goals to (n, e), with 0 for what a goal does not tell."""
        assert self.columns is not None
        flat = flatten(goals, self.goal_shape, "goals")
        embedded = np.zeros((len(flat), self.width), np.float32)
        embedded[:, self.columns] = flat
        return embedded

    @property
    def width(self) -> int:
        """Size e of an embedding."""
        return self.size + (self.goal_size if self._achieved else 0)

    def entries(self, starts: Any, goals: Any) -> dict[str, Any]:
        """(n, e) embeddings and (n, g) goals as the entries that the policy sees; arrays or tensors."""
        seen = {
            SEEN: starts[:, : self.size].reshape(len(starts), *self.shape),
            WANTED: goals.reshape(len(goals), *self.goal_shape),
        }
        if ACHIEVED in self.policy.observation_space.spaces:
            seen[ACHIEVED] = starts[:, self.columns].reshape(len(starts), *self.goal_shape)
        return seen

    @property
    def batch(self) -> int:
        """Number of pairs in one forward pass of the policy."""
        return max(64, min(16_384, _NUMBERS // (self.size + self.goal_size)))

    # -- what the networks say -------------------------------------------------------------------------------------

    def act(self, starts: Floats, goals: Floats) -> NDArray[Any]:
        """(n, e) embeddings and (n, g) goals to (n, ...) actions, without exploring."""
        parts = [
            self.policy.predict(self.entries(starts[low:high], goals[low:high]), deterministic=True)[0]
            for low, high in _blocks(len(starts), self.batch)
        ]
        return np.concatenate(parts)

    def values(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, e) and (n, g) to (c, n) values of the best action, by each of the c critics."""
        seen = self.entries(starts, goals)
        if self.algorithm == "DQN":
            return self.policy.q_net(seen).amax(dim=1)[None]
        return torch.stack(self.policy.critic(seen, self.policy._predict(seen, deterministic=True))).squeeze(-1)

    def digest(self) -> str:
        """Fingerprint of the policy."""
        result = hashlib.sha256(f"{self.algorithm} {self.columns}".encode())
        for name, value in sorted(self.policy.state_dict().items()):
            result.update(name.encode() + value.cpu().numpy().tobytes())
        return result.hexdigest()

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def can_be_saved(self) -> bool:
        """Whether `save` can keep it: a standard policy of a known algorithm, and no function of the user's own."""
        return self._achieved is None and _kept_arguments(self.policy, self.algorithm) is not None

    def save(self, path: str | os.PathLike[str], file_format: str, facts: dict[str, Any]) -> None:
        """Write a safetensors file without anything that is unpickled."""
        arguments = _kept_arguments(self.policy, self.algorithm)
        if arguments is None or self._achieved is not None:
            raise InputError(
                "this policy cannot be kept as a safetensors file: expected the MultiInputPolicy of "
                f"{', '.join(ALGORITHMS)} with layers of its own, and achieved= as columns, not a function. Keep the "
                "model's own file (model.save), and give Navigator.load(folder, controller=…, memory_distance=…)"
            )
        content = {
            "algorithm": self.algorithm,
            "arguments": arguments,
            "observation_space": {n: _box_facts(s) for n, s in self.policy.observation_space.spaces.items()},
            "action_space": _action_facts(self.policy.action_space),
            "columns": None if self.columns is None else self.columns.tolist(),
        }
        tensors = {name: value.detach().cpu().clone() for name, value in self.policy.state_dict().items()}
        write_tensors(path, tensors, {"format": file_format, "policy": json.dumps(content), "facts": json.dumps(facts)})

    @classmethod
    def load(cls, path: str | os.PathLike[str], file_format: str) -> tuple[GoalPolicy, dict[str, Any]]:
        """Read what `save` wrote; StoreError if the file is anything else."""
        tensors, metadata = read_tensors(path, file_format)
        baselines = import_sb3()
        try:
            content, facts = json.loads(metadata["policy"]), json.loads(metadata["facts"])
            if content["algorithm"] not in ALGORITHMS:
                raise ValueError(f"algorithm {content['algorithm']!r}")
            kind = getattr(baselines, content["algorithm"]).policy_aliases["MultiInputPolicy"]
            arguments = dict(content["arguments"])
            arguments["activation_fn"] = _activation(arguments["activation_fn"])
            seen = spaces.Dict({name: _box(entry) for name, entry in content["observation_space"].items()})
            with torch.random.fork_rng(devices=[]):
                policy = kind(seen, _action_space(content["action_space"]), lr_schedule=lambda _: 0.0, **arguments)
            policy.load_state_dict(tensors)
            return cls(policy, content["algorithm"], content["columns"]), facts
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise StoreError(f"{path} has other contents than this version writes: {error}") from error


def import_sb3() -> Any:
    """Import the package `stable_baselines3`; MissingExtra if it is not installed."""
    try:
        import stable_baselines3
    except ModuleNotFoundError as error:
        raise MissingExtra("a policy of Stable-Baselines3", "sb3", error) from error
    return stable_baselines3


def flatten(values: Any, shape: tuple[int, ...], name: str) -> Floats:
    """(n, *shape) as (n, numbers) float32; images may have their channels last where the policy has them first."""
    array = np.asarray(values)
    if array.ndim == 4 and array.shape[1:] != shape and (*array.shape[3:], *array.shape[1:3]) == shape:
        array = np.moveaxis(array, 3, 1)
    numbers = int(np.prod(shape))
    if array.dtype.kind not in "fiub" or not array.ndim or array.shape[1:] not in (shape, (numbers,)):
        raise InputError(
            f"{name} are {array.dtype} of shape {array.shape}: expected numbers {('n', *shape)}".replace("'", "")
        )
    return np.ascontiguousarray(array.reshape(len(array), numbers), np.float32)


# -- what an observation achieves ----------------------------------------------------------------------------------


def find_columns(
    entries: dict[str, Any], achieved: Achieved, data: Experience | None, model: Any = None
) -> list[int] | None:
    """Find the columns of an observation that are its achieved goal; None if they are unknown.

    From what the user says, from experience, from the model's replay buffer; and where nothing tells otherwise,
    observations of the shape of goals are goals.
    """
    size, goal_size = int(np.prod(entries[SEEN].shape)), int(np.prod(entries[WANTED].shape))
    if achieved is not None:
        columns = [int(column) for column in achieved]  # type: ignore[union-attr]
        if len(columns) != goal_size or not all(0 <= column < size for column in columns):
            raise InputError(
                f"achieved is {columns}: expected {goal_size} columns of observations, 0 to {size - 1}, or a function "
                "from (n, ...) observations to (n, ...) achieved goals"
            )
        return columns
    for seen, reached in _examples(entries, data, model):
        if len(seen):
            return _matching(seen, reached)
    return list(range(size)) if entries[SEEN].shape == entries[WANTED].shape else None


def require_columns(policy: GoalPolicy) -> None:
    """Raise InputError if the achieved goal of an observation is unknown."""
    if policy.columns is None:
        raise InputError(
            f"observations have shape {policy.shape} and goals {policy.goal_shape}, and the achieved goal is not among "
            "the numbers of an observation, or there is nothing to see that from: give data=, an Experience with "
            "achieved goals, or achieved=, the columns of an observation that are its achieved goal, or a function "
            "from (n, ...) observations to (n, ...) achieved goals"
        )


def _examples(entries: dict[str, Any], data: Experience | None, model: Any) -> list[tuple[Floats, Floats]]:
    """Observations and what they achieve, (n, o) and (n, g), from each place that has them."""
    found = []
    if data is not None and data.achieved_goals is not None:
        rows = np.unique(np.linspace(0, len(data) - 1, _SAMPLE).astype(int)) if len(data) else np.empty(0, int)
        found.append((data.observations[rows], data.achieved_goals[rows]))
    buffer = getattr(model, "replay_buffer", None)
    kept = getattr(buffer, "observations", None)
    if isinstance(kept, dict) and ACHIEVED in kept:
        number = len(kept[SEEN]) if getattr(buffer, "full", False) else int(getattr(buffer, "pos", 0))
        rows = np.unique(np.linspace(0, max(0, number - 1), _SAMPLE).astype(int))[:number]
        found.append((kept[SEEN][rows, 0], kept[ACHIEVED][rows, 0]))
    return [
        (flatten(seen, entries[SEEN].shape, "observations"), flatten(reached, entries[WANTED].shape, "achieved goals"))
        for seen, reached in found
    ]


def _matching(seen: Floats, reached: Floats) -> list[int] | None:
    """Find the g columns of (n, o) observations that equal (n, g) achieved goals; None if there are none."""
    if seen.shape == reached.shape and np.allclose(seen, reached, rtol=1e-5, atol=1e-6):
        return list(range(seen.shape[1]))
    columns = []
    for goal in reached.T:
        alike = np.isclose(seen, goal[:, None], rtol=1e-5, atol=1e-6).all(axis=0)
        if not alike.any():
            return None
        columns.append(int(alike.argmax()))
    return columns


# -- policies as JSON ----------------------------------------------------------------------------------------------


def _algorithm(model: Any, policy: Any) -> str:
    """Name of the algorithm of a model, or ""."""
    names = [kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("stable_baselines3.")]
    found = next((name for name in names if name in ALGORITHMS), "")
    complete = hasattr(policy, "q_net") if found == "DQN" else hasattr(policy, "critic")
    return found if complete else ""


def _kept_arguments(policy: Any, algorithm: str) -> dict[str, Any] | None:
    """The arguments that make an untrained copy of a policy, as JSON; None if there are none of that kind."""
    if not algorithm or type(policy) is not getattr(import_sb3(), algorithm).policy_aliases["MultiInputPolicy"]:
        return None
    given = policy._get_constructor_parameters()
    left_out = {"observation_space", "action_space", "lr_schedule", "optimizer_class", "optimizer_kwargs"}
    arguments = {name: value for name, value in given.items() if name not in left_out}
    arguments["activation_fn"] = getattr(arguments.get("activation_fn"), "__name__", "")
    extractor = arguments.pop("features_extractor_class", None)
    if _activation(arguments["activation_fn"]) is None or getattr(extractor, "__name__", "") != "CombinedExtractor":
        return None
    try:
        json.dumps(arguments)
    except TypeError:
        return None
    return arguments


def _activation(name: str) -> type[nn.Module] | None:
    kind = getattr(nn, name, None) if name.isidentifier() else None
    return kind if isinstance(kind, type) and issubclass(kind, nn.Module) else None


def _box_facts(space: spaces.Box) -> dict[str, Any]:
    ends = {name: _short(getattr(space, name)) for name in ("low", "high")}
    return {"shape": list(space.shape), "dtype": str(space.dtype), **ends}


def _short(values: NDArray[Any]) -> Any:
    """One number where all are equal; as text, because JSON has no infinity."""
    same = values.size and (values == values.flat[0]).all()
    return str(values.flat[0]) if same else [str(value) for value in values.ravel().tolist()]


def _box(facts: dict[str, Any]) -> spaces.Box:
    shape, dtype = tuple(facts["shape"]), np.dtype(facts["dtype"])
    ends = [
        np.broadcast_to(np.array(facts[n], np.float64).reshape(-1), (int(np.prod(shape)),)) for n in ("low", "high")
    ]
    low, high = (end.reshape(shape).astype(dtype) for end in ends)
    return spaces.Box(low, high, shape, dtype.type)


def _action_facts(space: Any) -> dict[str, Any]:
    return {"discrete": int(space.n)} if isinstance(space, spaces.Discrete) else _box_facts(space)


def _action_space(facts: dict[str, Any]) -> Any:
    return spaces.Discrete(facts["discrete"]) if "discrete" in facts else _box(facts)


def _blocks(number: int, size: int) -> list[tuple[int, int]]:
    """Where blocks of a batch begin and end; no rows are a block too."""
    return [(low, low + size) for low in range(0, max(1, number), size)]
