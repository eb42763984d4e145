"""Distances from an ensemble of distributional Q-functions (SoRB), and the networks that give them.

Each critic says how likely each number of steps 1…B is from an observation to a goal when the actor acts; the
distance is the mean of that distribution, aggregated over the ensemble pessimistically (paper, appendix, PointEnv).
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sgm.errors import InputError, StoreError

try:
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file
    from torch import Tensor
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"learned distances and controllers need {error.name}: pip install 'sparse-graphical-memory[learn]'",
        name=error.name,
    ) from error

from .relu_bounds import settled

Floats = NDArray[np.float32]
AGGREGATES = ("max", "mean")
_FORMAT = "sgm-goal-networks-1"
_ROWS = 1024  # pairs that go through the networks at once, so that activations stay in the cache
_PAIRS = 8192  # pairs of a table evaluated at once without tiles: 8 MB of activations for each layer
_TILE = 32  # starts, and goals, in one tile of a table; larger tiles have more open units, smaller ones more overhead
_GROUP = 32  # tiles of goals planned together, see _TiledTable


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

    def cross(self, starts: Tensor, goals: Tensor, extra: Tensor | None = None) -> Iterator[Tensor]:
        """(n, o) starts and (m, o) goals to (n · m, outputs) for every pair, network by network.

        The first layer is linear in both, so it is computed for each start and each goal and added up for the pairs.
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
    """The sizes of one network, and how its weights lie in a flat vector."""

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
        """(m, size) weights as layers that share their memory."""
        parts = flat.split([math.prod(matrix) for matrix in self.matrices], dim=1)
        return Layers(*(part.view(-1, *matrix) for part, matrix in zip(parts, self.matrices, strict=True)))

    def initialize(self, flat: Tensor, generator: torch.Generator) -> None:
        """Fill (m, size) weights as the authors do: U(±1/√fan-in), the last layer U(±0.003), biases 0."""
        layers = self.split(flat)
        for layer in layers:
            bound = 0.003 if layer is layers.third else 1 / math.sqrt(layer.shape[1] - 1)
            layer.uniform_(-bound, bound, generator=generator)
            layer[:, -1] = 0


@dataclasses.dataclass(frozen=True)
class GoalNetworks:
    """An actor and its ensemble of distributional critics, for observations and goals of size o.

    Attributes:
        actor: one network, (observation, goal) to an action in [−1, 1]^a before its tanh.
        critics: E networks, (observation, goal) and action to logits over 1…B steps.
        config: how they were trained; written into the file, and part of no computation.
    """

    actor: Layers
    critics: Layers
    config: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def observation_size(self) -> int:
        """o, the numbers in an observation and in a goal."""
        return (self.actor.first.shape[1] - 1) // 2

    @property
    def bins(self) -> int:
        """B, the longest distance the critics can express, steps."""
        return self.critics.third.shape[2]

    @cached_property
    def values(self) -> Tensor:
        """(B,) the steps that the bins stand for: 1 … B."""
        return torch.arange(1.0, self.bins + 1)

    def act(self, pairs: Tensor) -> Tensor:
        """(n, 2 o) observations beside goals to (n, a) actions in [−1, 1]."""
        return torch.tanh_(self.actor.forward(pairs)[0])

    def steps(self, pairs: Tensor) -> Tensor:
        """(n, 2 o) observations beside goals to (E, n) expected steps when the actor acts."""
        return torch.softmax(self.critics.forward(pairs, self.act(pairs)), dim=2) @ self.values

    def table(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, o) starts and (m, o) goals to (E, n · m) expected steps when the actor acts."""
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
        """Read what `save` wrote; StoreError if the file is anything else."""
        tensors, metadata = read_tensors(path, _FORMAT)
        actor, critics = (
            Layers(*(tensors[f"{name}.{layer}"] for layer in Layers._fields)) for name in ("actor", "critics")
        )
        return cls(actor, critics, json.loads(metadata["config"]))


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file so that a crash leaves either the old file or the new one, never half of one."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, unfinished, metadata)
        unfinished.chmod(0o644)  # safetensors lets only the owner read, but run folders are shared
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def read_tensors(path: str | os.PathLike[str], expected: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of a safetensors file whose `format` is `expected`; StoreError otherwise."""
    if not Path(path).is_file():
        raise StoreError(f"{path} does not exist: expected a .safetensors file of format {expected!r}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise StoreError(f"{path} is not a safetensors file ({error}): expected format {expected!r}") from error
    if metadata.get("format") != expected:
        raise StoreError(f"{path} has format {metadata.get('format')!r}: expected {expected!r}")
    return tensors, metadata


class DistributionalDistance:
    """Expected steps from one observation to another under the actor, as an ensemble of critics sees it.

    Follows the Distance contract. Distances lie between 1 (not 0: the critics count the step that arrives) and the
    number of bins. The embedding is the observation itself, because the first layer already mixes start and goal.
    """

    def __init__(self, networks: GoalNetworks, aggregate: str = "max") -> None:
        """Take trained `networks`; `aggregate` the ensemble by its "max" (pessimistic, the paper) or its "mean"."""
        if aggregate not in AGGREGATES:
            raise InputError(f"aggregate is {aggregate!r}: expected one of {', '.join(map(repr, AGGREGATES))}")
        self.networks = networks
        self.aggregate = aggregate
        self.fingerprint = _fingerprint(networks, aggregate)
        self.settled_radius = 0.013  # of observations in [0, 1]; wider boxes prove less, narrower ones apply less often
        self._tiles = _TiledTable(networks)

    @classmethod
    def load(cls, path: str | os.PathLike[str], aggregate: str = "max") -> DistributionalDistance:
        """The distance whose networks lie in the `.safetensors` file at `path`."""
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

    @torch.inference_mode()
    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, o) and (n, o) embeddings, row by row, to (n,) float32 steps."""
        starts, goals = self._checked(starts, "starts"), self._checked(goals, "goals")
        if len(starts) != len(goals):
            raise InputError(f"pairs got {len(starts)} starts and {len(goals)} goals: expected as many of each")
        both = torch.from_numpy(np.concatenate([starts, goals], axis=1))
        if len(both) <= _ROWS:
            return self._combine(self.networks.steps(both)).numpy()
        return torch.cat([self._combine(self.networks.steps(block)) for block in both.split(_ROWS)]).numpy()

    @torch.inference_mode()
    def settled(self, start: Floats, goals: Floats, steps: Floats, slack: float) -> NDArray[np.bool_]:
        """Which goals stay within `slack` of `steps` for every start within `settled_radius` of `start`, provably.

        (o,) start, (m, o) goals and (m,) steps to (m,) bool; see `sgm.distances.relu_bounds`.
        """
        if self.aggregate != "max":
            return np.zeros(len(goals), np.bool_)
        return settled(self.networks, start, self.settled_radius, goals, torch.from_numpy(steps), slack)

    def _combine(self, steps: Tensor) -> Tensor:
        """(E, n) steps to (n,)."""
        return steps.amax(0) if self.aggregate == "max" else steps.mean(0)

    def _checked(self, values: ArrayLike, name: str) -> Floats:
        array = np.ascontiguousarray(values, np.float32)
        if array.ndim != 2 or array.shape[1] != self.networks.observation_size:
            raise InputError(
                f"{name} has shape {array.shape}: expected (n, {self.networks.observation_size}), the size of the "
                "observations these networks were trained on"
            )
        if not np.isfinite(array).all():
            raise InputError(f"{name} holds NaN or infinity in row {np.argwhere(~np.isfinite(array))[0][0]}")
        return array


def _fingerprint(networks: GoalNetworks, aggregate: str) -> str:
    digest = hashlib.sha256(f"distributional {aggregate}".encode())
    for name, tensor in networks.tensors().items():
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


class _TiledTable:
    """All distances between two sets of embeddings: the same numbers (up to rounding) for a fraction of the work.

    Starts and goals are grouped into tiles of neighbours. Over one tile of starts × one tile of goals most hidden units
    keep their sign. A unit that stays off adds nothing; all units that stay on are one linear map, which is multiplied
    into the next layer once for the tile. Only units that are open, whose sign may depend on the pair, are computed
    pair by pair. Activations are (units, pairs): products run along the long side.
    """

    def __init__(self, networks: GoalNetworks) -> None:
        self.size = networks.observation_size
        self.actions = networks.actor.third.shape[2]
        self.base = self.actions + 1 + 2 * self.size  # rows of `inputs` before the open units: action, one, start, goal
        self.hidden = networks.actor.first.shape[2]
        self.actor, self.critics = _Folding(networks.actor), _Folding(networks.critics)
        self.mean = torch.stack([torch.arange(1.0, networks.bins + 1), torch.ones(networks.bins)])
        self.inputs = torch.ones(self.base + 2 * self.hidden, _TILE * _TILE)

    def worthwhile(self, starts: int, goals: int) -> bool:
        """Whether tiles save work: enough points to be close together, and embeddings smaller than their layer."""
        return min(starts, goals) >= 4 * _TILE and 4 * self.base <= self.hidden

    def __call__(self, starts: Floats, goals: Floats, combine: Callable[[Tensor], Tensor]) -> Floats:
        """(n, o) and (m, o) embeddings to (n, m) steps, with `combine` over the ensemble."""
        rows, columns = _neighbours(starts, _TILE), _neighbours(goals, _TILE)
        table = np.empty((len(starts), len(goals)), np.float32)
        for begin in range(0, len(columns), _GROUP):
            group = columns[begin : begin + _GROUP]
            tiles = [torch.tensor(goals[column].T) for column in group]
            for row in rows:
                for column, steps in zip(group, self._row(torch.tensor(starts[row].T), tiles), strict=True):
                    table[np.ix_(row, column)] = combine(steps).view(len(row), len(column)).numpy()
        return table

    def _row(self, starts: Tensor, tiles: list[Tensor]) -> Iterator[Tensor]:
        """One tile of (o, r) starts and some tiles of (o, c) goals: for each of these (E, r · c) steps."""
        boxes = torch.stack([self._box(starts, goals) for goals in tiles])  # (tiles, 2, 1 + 2 o)
        actions = [
            torch.tanh_(self.actor(plans, self._inputs(starts, goals)[self.actions :])[0])
            for goals, plans in zip(tiles, self.actor.plan(boxes), strict=True)
        ]
        bounds = torch.stack([torch.stack(torch.aminmax(action, dim=1)) for action in actions])
        critic_plans = self.critics.plan(torch.cat([bounds, boxes], dim=2))
        for goals, action, plans in zip(tiles, actions, critic_plans, strict=True):
            yield self._expectation(self.critics(plans, self._inputs(starts, goals, action)))

    def _box(self, starts: Tensor, goals: Tensor) -> Tensor:
        """The least and the greatest (one, start, goal) of a tile, (2, 1 + 2 o)."""
        ones = torch.ones(2, 1)
        return torch.cat([ones, torch.stack(torch.aminmax(starts, dim=1)), torch.stack(torch.aminmax(goals, dim=1))], 1)

    def _inputs(self, starts: Tensor, goals: Tensor, actions: Tensor | None = None) -> Tensor:
        """The buffer of activations, cut to the pairs of a tile and with the rows before the open units filled in."""
        inputs = self.inputs[:, : starts.shape[1] * goals.shape[1]]
        points = inputs[self.actions + 1 : self.base].unflatten(1, (starts.shape[1], goals.shape[1]))
        points[: self.size] = starts[:, :, None]
        points[self.size :] = goals[:, None, :]
        if actions is not None:
            inputs[: self.actions] = actions
        return inputs

    def _expectation(self, logits: Tensor) -> Tensor:
        """(E, B, pairs) logits to (E, pairs) expected steps, without forming the normalised distribution."""
        # Below −80 an exponential is a denormal number at best: nothing beside 1, and slow.
        mass = logits.sub_(logits.amax(1, keepdim=True)).clamp_min_(-80).exp_()
        total = torch.matmul(self.mean, mass)
        return total[:, 0] / total[:, 1]


class _Plan(NamedTuple):
    """How one network treats one tile."""

    folded: Tensor  # (x + 1 + i, hidden): from the inputs to the second layer, through first-layer units that stay on
    third: Tensor  # (hidden, outputs): the third layer behind second-layer units that stay on, 0 behind the others
    first_open: Tensor  # the open units of the first layer
    second_open: Tensor


class _Folding:
    """A stack of m networks, evaluated over a tile with the units that keep their sign folded away.

    `inputs` are rows: extra inputs, one (for the bias), inputs; then room for the open units of both layers.
    """

    def __init__(self, layers: Layers) -> None:
        first, second, third = layers
        hidden = first.shape[2]
        self.from_inputs = second[:, hidden:]  # extra inputs and one
        extra = torch.zeros_like(self.from_inputs[:, 1:])
        self.first = torch.cat([extra, first[:, -1:], first[:, :-1]], dim=1)
        self.second = second[:, :hidden].contiguous()
        self.third = third[:, :-1].contiguous()
        each = (self.first.mT.contiguous(), self.second, self.third, third[:, -1, :, None])
        self.networks = list(zip(*(layer.unbind() for layer in each), strict=True))

    def plan(self, boxes: Tensor) -> Iterator[list[_Plan]]:
        """(tiles, 2, x + 1 + i) least and greatest inputs to the plans of each tile, one for each network.

        A unit's value, a ReLU, is taken for a line with an error on both sides, which carries the bounds of the first
        layer to the second: with slope 0 or 1 and no error if it keeps its sign.
        """
        middle, radius = boxes.mean(1), (boxes[:, 1] - boxes[:, 0]) / 2
        slope, error = _lines(middle @ self.first, radius @ self.first.abs())
        on = self._second_matrix(slope >= 1)
        line = self._second_matrix(slope)
        mean = (middle[:, None] @ line)[:, :, 0] + error @ self.second
        spread = (radius[:, None] @ line.abs())[:, :, 0] + error @ self.second.abs()
        second_slope, _ = _lines(mean, spread)
        third = self.third[:, None] * (second_slope >= 1)[..., None]
        parts = (_flat(on), _flat(third), _open_units(slope), _open_units(second_slope))
        plans = map(_Plan, *parts)
        return (list(itertools.islice(plans, len(self.networks))) for _ in boxes)

    def _second_matrix(self, slope: Tensor) -> Tensor:
        """(m, tiles, hidden) slopes of first-layer units to (m, tiles, x + 1 + i, hidden) through the second layer."""
        scaled = self.first[:, None] * slope[:, :, None]
        matrix = (scaled.flatten(1, 2) @ self.second).view_as(scaled)
        matrix[:, :, : self.from_inputs.shape[1]] += self.from_inputs[:, None]
        return matrix

    def __call__(self, plans: list[_Plan], inputs: Tensor) -> Tensor:
        """The outputs of every network for a tile: (rows, pairs) inputs to (m, outputs, pairs)."""
        return torch.stack([_forward(net, plan, inputs) for net, plan in zip(self.networks, plans, strict=True)])


def _forward(network: tuple[Tensor, ...], plan: _Plan, inputs: Tensor) -> Tensor:
    """One network over a tile: (rows, pairs) inputs, with room for the open units, to (outputs, pairs)."""
    first, second, third, bias = network
    rows = len(plan.folded)
    middle = rows + len(plan.first_open)
    end = middle + len(plan.second_open)
    torch.mm(first.index_select(0, plan.first_open), inputs[:rows], out=inputs[rows:middle]).clamp_min_(0)
    matrix = torch.cat([plan.folded, second.index_select(0, plan.first_open)])
    torch.mm(matrix.index_select(1, plan.second_open).T, inputs[:middle], out=inputs[middle:end]).clamp_min_(0)
    matrix = torch.cat([matrix @ plan.third, third.index_select(0, plan.second_open)])
    return torch.addmm(bias, matrix.T, inputs[:end])


def _lines(mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and error of lines that stand for ReLUs: relu(x) = slope · x + error ± error for x in mean ± spread."""
    slope = ((mean + spread) / (2 * spread).clamp_min(1e-30)).clamp(0, 1)
    return slope, (slope * (spread - mean) / 2).clamp_min(0)


def _open_units(slope: Tensor) -> tuple[Tensor, ...]:
    """(m, tiles, hidden) slopes to the numbers of the open units, tile by tile and network by network."""
    is_open = ((slope > 0) & (slope < 1)).transpose(0, 1)
    return is_open.nonzero()[:, 2].split(is_open.sum(2).flatten().tolist())


def _flat(values: Tensor) -> tuple[Tensor, ...]:
    """(m, tiles, ...) values, tile by tile and network by network."""
    return values.transpose(0, 1).flatten(0, 1).unbind()


def _neighbours(points: Floats, size: int) -> list[NDArray[np.intp]]:
    """Group row numbers, at most `size` together, by halving the points across their longest side."""
    groups, todo = [], [np.arange(len(points))]
    while todo:
        rows = todo.pop()
        if len(rows) <= size:
            groups.append(rows)
            continue
        axis = np.ptp(points[rows], axis=0).argmax()
        rows = rows[np.argsort(points[rows, axis], kind="stable")]
        half = size * -(-len(rows) // (2 * size))  # a multiple of `size`, so that only the last group is smaller
        todo += [rows[half:], rows[:half]]
    return groups
