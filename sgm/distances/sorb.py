"""Distances from an ensemble of distributional Q-functions (SoRB), and the networks of actor and critics.

Each critic predicts a distribution over the number of steps 1…B from an observation to a goal under the actor; the
distance is the mean of that distribution, aggregated over the ensemble pessimistically (paper, appendix, PointEnv).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError, MissingExtra

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingExtra("a learned distance", "learn", error) from error

from sgm.learning.tensors import read_tensors, write_tensors

from .fast_bounds import Nearby
from .fast_tables import TiledTable

if TYPE_CHECKING:
    from .fast_pairs import SinglePairs

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
AGGREGATES = ("max", "mean")
_FORMAT = "sgm-goal-networks-1"
_ROWS = 1024  # pairs evaluated at once, so that activations stay in the cache
_WORTH_A_LOOK = 48  # number of pairs above which evaluating one critic first saves time
_ROUNDING = 1e-3  # rounding error of single precision, steps
_PAIRS = 8192  # pairs of a table evaluated at once without tiles: 8 MB of activations for each layer


class Layers(NamedTuple):
    """A stack of m equal networks with two hidden ReLU layers; the last row of every matrix is its bias."""

    first: Tensor  # (m, inputs + 1, hidden)
    second: Tensor  # (m, hidden + extra + 1, hidden): `extra` inputs (the action) join the first hidden layer
    third: Tensor  # (m, hidden + 1, outputs)

    def forward(self, inputs: Tensor, extra: Tensor | None = None) -> Tensor:
        """(n, inputs) and (n, extra) to (m, n, outputs)."""
        count, _, hidden = self.first.shape
        first = _affine(self.first, inputs.expand(count, *inputs.shape)).relu_()
        second = torch.baddbmm(self.second[:, -1:], first, self.second[:, :hidden])
        if extra is not None:
            second.baddbmm_(extra.expand(count, *extra.shape), self.second[:, hidden:-1])
        return _affine(self.third, second.relu_())

    def some(self, which: slice) -> Layers:
        """Select some of the networks."""
        return Layers(*(layer[which] for layer in self))

    def cross(self, starts: Tensor, goals: Tensor, extra: Tensor | None = None) -> Iterator[Tensor]:
        """Yield (n · m, outputs) of each network for all pairs of (n, o) starts and (m, o) goals.

        The first layer is linear, so it is computed once for each start and each goal, and added for the pairs.
        """
        size = starts.shape[1]
        for first, second, third in zip(*self, strict=True):
            hidden = first.shape[1]
            of_goals = torch.addmm(first[-1], goals, first[size:-1])
            layer = ((starts @ first[:size])[:, None] + of_goals).flatten(0, 1).relu_()
            layer = torch.addmm(second[-1], layer, second[:hidden])
            if extra is not None:
                layer.addmm_(extra, second[hidden:-1])
            yield torch.addmm(third[-1], layer.relu_(), third[:-1])


def _affine(matrix: Tensor, inputs: Tensor) -> Tensor:
    return torch.baddbmm(matrix[:, -1:], inputs, matrix[:, :-1])


class Shape(NamedTuple):
    """The sizes of one network, and the layout of its weights in a flat vector."""

    inputs: int
    hidden: int
    extra: int
    outputs: int

    @property
    def matrices(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """(rows, columns) of each layer; one row is the bias."""
        return (
            (self.inputs + 1, self.hidden),
            (self.hidden + self.extra + 1, self.hidden),
            (self.hidden + 1, self.outputs),
        )

    @property
    def size(self) -> int:
        """Number of weights of one network."""
        return sum(math.prod(matrix) for matrix in self.matrices)

    def split(self, flat: Tensor) -> Layers:
        """View (m, size) weights as layers, without a copy."""
        parts = flat.split([math.prod(matrix) for matrix in self.matrices], dim=1)
        return Layers(*(part.view(-1, *matrix) for part, matrix in zip(parts, self.matrices, strict=True)))

    def initialize(self, flat: Tensor, generator: torch.Generator) -> None:
        """Initialise (m, size) weights as the authors do: U(±1/√fan-in), the last layer U(±0.003), biases 0."""
        layers = self.split(flat)
        for layer in layers:
            bound = 0.003 if layer is layers.third else 1 / math.sqrt(layer.shape[1] - 1)
            layer.uniform_(-bound, bound, generator=generator)
            layer[:, -1] = 0


@dataclasses.dataclass(frozen=True)
class GoalNetworks:
    """An actor and its ensemble of distributional critics, for observations and goals of size o.

    Attributes:
        actor: one network, (observation, goal) to an action of size a, before the tanh that maps it to [−1, 1].
        critics: E networks, (observation, goal) and action to logits over 1…B steps.
        config: training settings; written into the file, not used in computations.
    """

    actor: Layers
    critics: Layers
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def observation_size(self) -> int:
        """Size o of an observation and of a goal."""
        return (self.actor.first.shape[1] - 1) // 2

    @property
    def bins(self) -> int:
        """B, the largest distance the critics can express, steps."""
        return self.critics.third.shape[2]

    @cached_property
    def values(self) -> Tensor:
        """(B,) number of steps of each bin: 1 … B."""
        return torch.arange(1.0, self.bins + 1)

    def act(self, pairs: Tensor) -> Tensor:
        """(n, 2 o) concatenated observations and goals to (n, a) actions in [−1, 1]."""
        return torch.tanh_(self.actor.forward(pairs)[0])

    def steps(self, pairs: Tensor) -> Tensor:
        """(n, 2 o) concatenated observations and goals to (E, n) expected steps under the actor."""
        return self.expected(self.critics.forward(pairs, self.act(pairs)))

    def expected(self, logits: Tensor) -> Tensor:
        """(E, n, B) logits of critics to (E, n) expected steps."""
        return torch.softmax(logits, dim=2) @ self.values

    def table(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, o) starts and (m, o) goals to (E, n · m) expected steps under the actor."""
        actions = torch.tanh_(next(self.actor.cross(starts, goals)))
        return torch.stack([logits.softmax(1) @ self.values for logits in self.critics.cross(starts, goals, actions)])

    def tensors(self) -> dict[str, Tensor]:
        """Every weight matrix by name: `actor.first` … `critics.third`."""
        networks = {"actor": self.actor, "critics": self.critics}
        return {f"{name}.{layer}": tensor for name, net in networks.items() for layer, tensor in net._asdict().items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights, with `config` as metadata, to a `.safetensors` file."""
        contiguous = {name: tensor.contiguous() for name, tensor in self.tensors().items()}
        write_tensors(path, contiguous, {"format": _FORMAT, "config": json.dumps(self.config, sort_keys=True)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GoalNetworks:
        """Read a file written by `save`; StoreError if it is any other file."""
        tensors, metadata = read_tensors(path, _FORMAT)
        actor, critics = (
            Layers(*(tensors[f"{name}.{layer}"] for layer in Layers._fields)) for name in ("actor", "critics")
        )
        return cls(actor, critics, json.loads(metadata["config"]))


class DistributionalDistance:
    """Expected steps from one observation to another under the actor, estimated by an ensemble of critics.

    Follows the Distance contract. Distances lie between 1 (not 0: the critics count the step that reaches the goal) and
    the number of bins. The embedding is the observation itself, because the first layer already mixes start and goal.
    """

    def __init__(self, networks: GoalNetworks, aggregate: str = "max", *, compiled: bool | None = None) -> None:
        """Make a distance from trained networks.

        Args:
            networks: an actor and its critics.
            aggregate: aggregate over the ensemble: "max" (pessimistic, the paper's) or "mean".
            compiled: whether small batches of pairs, as one robot needs them, are evaluated by compiled code in place
                of torch, which is several times as fast: True (extra `fast`), False, or None: if numba is installed.
                The numbers are the same up to rounding, and episodes of PointEnv were the same step by step
                (docs/speed.md), but use False for results that must repeat to the last bit, as in benchmarks.
        """
        if aggregate not in AGGREGATES:
            raise InputError(f"aggregate is {aggregate!r}: expected one of {', '.join(map(repr, AGGREGATES))}")
        self.networks = networks
        self.aggregate = aggregate
        self.fingerprint = _fingerprint(networks, aggregate)
        # For observations in [0, 1]: within a larger radius less can be proven, a smaller one is left sooner.
        self.unchanged_radius = 0.013
        self._size = networks.observation_size
        self._tiles = TiledTable(networks)
        self._single = single_pairs(networks, compiled)

    @cached_property
    def _differ_compiled(self) -> Callable[..., NDArray[np.bool_]]:
        """`differ` of fast_blocks.py: an import statement in every call would take as long as a layer."""
        from .fast_blocks import differ

        return differ

    @classmethod
    def load(cls, path: str | os.PathLike[str], aggregate: str = "max") -> DistributionalDistance:
        """Read the networks from a `.safetensors` file, and make a distance from them."""
        return cls(GoalNetworks.load(path), aggregate)

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, o) observations to (n, o) float32 embeddings: the same numbers."""
        return self._checked(observations, "observations").copy()

    @torch.inference_mode()
    def __call__(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, o) and (m, o) embeddings to (n, m) float32 steps."""
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")
        if self._tiles.worthwhile(len(starts), len(goals)):
            return self._tiles(starts, goals, self._combine)
        table = np.empty((len(starts), len(goals)), np.float32)
        if not table.size:
            return table
        block, columns = max(1, _PAIRS // len(goals)), torch.tensor(goals)
        for begin in range(0, len(starts), block):
            steps = self._combine(self.networks.table(torch.tensor(starts[begin : begin + block]), columns))
            table[begin : begin + block] = steps.view(-1, len(goals)).numpy()
        return table

    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, o) and (n, o) embeddings, row by row, to (n,) float32 steps."""
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")
        if len(starts) != len(goals):
            raise InputError(f"pairs got {len(starts)} starts and {len(goals)} goals: expected as many of each")
        if self._single is not None and len(starts) <= self._single.most:
            return self._single.steps(starts, goals, self.aggregate == "max")
        with torch.inference_mode():
            return self._pairs(starts, goals)

    def differ(self, starts: ArrayLike, goals: ArrayLike, steps: Floats, slack: float) -> NDArray[np.bool_]:
        """Whether distances differ from (n,) `steps` by `slack` or more: (n, o) and (n, o) embeddings to (n,) bool.

        The result is the same as with `pairs`, mostly from one critic: the ensemble is aggregated by its maximum, so
        one critic with a much larger distance is enough, and no distance exceeds the number of bins.
        """
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")
        if len(starts) != len(goals):
            raise InputError(f"differ got {len(starts)} starts and {len(goals)} goals: expected as many of each")
        if self.aggregate == "max" and self._single is not None:
            theirs = np.ascontiguousarray(steps, np.float32)
            if theirs.shape != (len(starts),):  # rarely needed, and slow beside the arithmetic of one pair
                theirs = np.ascontiguousarray(np.broadcast_to(theirs, len(starts)))
            return self._differ_compiled(self._single, starts, goals, theirs, slack)
        if self.aggregate != "max" or len(starts) < _WORTH_A_LOOK or len(self.networks.critics.first) == 1:
            return np.abs(self.pairs(starts, goals) - steps) >= slack
        both, known = torch.from_numpy(np.concatenate([starts, goals], axis=1)), torch.from_numpy(np.asarray(steps))
        with torch.inference_mode():
            parts = zip(both.split(_ROWS), known.split(_ROWS), strict=True)
            return torch.cat([self._differ(block, part, slack) for block, part in parts]).numpy()

    def _differ(self, both: Tensor, steps: Tensor, slack: float) -> Tensor:
        networks = self.networks
        actions = networks.act(both)
        least = networks.expected(networks.critics.some(slice(1)).forward(both, actions))[0]
        told = least - steps >= slack
        agrees = (steps + slack > networks.bins + _ROUNDING) & (steps - least < slack - _ROUNDING)
        left = torch.nonzero(~(told | agrees))[:, 0]
        if len(left):
            others = networks.critics.some(slice(1, None)).forward(both[left], actions[left])
            most = torch.maximum(least[left], networks.expected(others).amax(0))
            told[left] = (most - steps[left]).abs() >= slack
        return told

    def nearest(
        self, starts: ArrayLike, goals: ArrayLike, *, outgoing: bool = True
    ) -> tuple[NDArray[np.int64], Floats]:
        """Find the nearest goal of each start, and the steps to it: (n, o) and (m, o) embeddings to (n,) and (n,).

        With `outgoing=False` find the nearest start of each goal: (m,) and (m,). Of equally near ones, the first.

        One critic gives a lower bound for every pair; the others are evaluated only for pairs that may be the nearest.
        """
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")
        plain = self.aggregate != "max" or self._tiles.worthwhile(len(starts), len(goals))
        table = self(starts, goals) if plain else self._least_table(starts, goals)
        table = table if outgoing else np.ascontiguousarray(table.T)
        rows, node = np.arange(len(table)), table.argmin(axis=1)
        if plain:
            return node, table[rows, node]

        def exact(row: NDArray[Any], column: NDArray[Any]) -> Floats:
            ends = (row, column) if outgoing else (column, row)
            return self.pairs(starts[ends[0]], goals[ends[1]])

        best = exact(rows, node)
        row, column = np.nonzero(table <= best[:, None] + (0 if self._single is None else _ROUNDING))
        other = column != node[row]
        row, column = row[other], column[other]
        if len(row):
            steps = exact(row, column)
            order = np.lexsort((column, steps, row))
            row, column, steps = row[order], column[order], steps[order]
            first = np.flatnonzero(np.diff(row, prepend=-1))
            row, column, steps = row[first], column[first], steps[first]
            nearer = (steps < best[row]) | ((steps == best[row]) & (column < node[row]))
            node[row[nearer]], best[row[nearer]] = column[nearer], steps[nearer]
        return node, best

    @torch.inference_mode()
    def _least_table(self, starts: Floats, goals: Floats) -> Floats:
        """(n, m) steps by the first critic: a lower bound of the maximum over the ensemble."""
        if self._single is not None:
            from .fast_blocks import first_critic

            return first_critic(self._single, starts, goals)
        networks, columns = self.networks, torch.tensor(goals)
        table = np.empty((len(starts), len(goals)), np.float32)
        block = max(1, _ROWS // len(goals))
        for begin in range(0, len(starts), block):
            some = torch.tensor(starts[begin : begin + block])
            actions = torch.tanh_(next(networks.actor.cross(some, columns)))
            steps = networks.expected(next(networks.critics.cross(some, columns, actions))[None])
            table[begin : begin + block] = steps.view(-1, len(goals)).numpy()
        return table

    def _pairs(self, starts: Floats, goals: Floats) -> Floats:
        both = torch.from_numpy(np.concatenate([starts, goals], axis=1))
        if len(both) <= _ROWS:
            return self._combine(self.networks.steps(both)).numpy()
        return torch.cat([self._combine(self.networks.steps(block)) for block in both.split(_ROWS)]).numpy()

    def unchanged_nearby(self, start: Floats, goals: Floats, steps: Floats, slack: float) -> NDArray[np.bool_]:
        """Find goals whose distance provably stays within `slack` of `steps` if the start moves by `unchanged_radius`.

        (o,) start, (m, o) goals and (m,) steps from the start to (m,) bool; see `sgm.distances.fast_bounds`.
        """
        bounds = self.nearby(start, goals, steps, slack)
        return np.zeros(len(goals), np.bool_) if bounds is None else ~bounds.unproven

    @torch.inference_mode()
    def nearby(self, start: Floats, goals: Floats, steps: Floats, slack: float) -> Nearby | None:
        """Return bounds for single starts within `unchanged_radius`; None unless aggregated by maximum."""
        if self.aggregate != "max":
            return None
        return Nearby(self.networks, start, self.unchanged_radius, goals, steps, slack, self._single is not None)

    def _combine(self, steps: Tensor) -> Tensor:
        """(E, n) steps to (n,)."""
        return steps.amax(0) if self.aggregate == "max" else steps.mean(0)

    def _checked(self, values: ArrayLike, name: str) -> Floats:
        array = np.ascontiguousarray(values, np.float32)
        if array.ndim != 2 or array.shape[1] != self._size:
            raise InputError(
                f"{name} has shape {array.shape}: expected (n, {self._size}), the size of the observations these "
                "networks were trained on"
            )
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds NaN or infinity in row {np.argwhere(~np.isfinite(array))[0][0]}")
        return array


def single_pairs(networks: GoalNetworks, compiled: bool | None) -> SinglePairs | None:
    """Return compiled code for small batches of pairs; without numba None, or MissingExtra if `compiled` is True."""
    if compiled is False:
        return None
    try:
        from .fast_pairs import SinglePairs

        return SinglePairs(networks)
    except ModuleNotFoundError as error:
        if compiled:
            raise MissingExtra("compiled=True", "fast", error) from error
    except Exception:  # numba is installed but cannot be used, for example because its cache cannot be written
        if compiled:
            raise
    return None


def _fingerprint(networks: GoalNetworks, aggregate: str) -> str:
    digest = hashlib.sha256(f"distributional {aggregate}".encode())
    for name, tensor in networks.tensors().items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()
