"""Fast code: all distances between two sets of observations, for a fraction of the arithmetic.

The plain version is `GoalNetworks.table` in sorb.py, which evaluates the networks on every pair. It is the oracle of
the tests. `python -m speed.d3pg` prints the ratio of the times.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .fast_bounds import relu_lines

if TYPE_CHECKING:
    from .sorb import GoalNetworks, Layers

Floats = NDArray[np.float32]
_TILE = 32  # starts and goals of one tile of a table; larger tiles have more open units, smaller ones more overhead
_GROUP = 32  # tiles of goals planned together


class TiledTable:
    """Computes all distances between two sets of embeddings with a fraction of the work, the same up to rounding.

    Starts and goals are grouped into tiles of neighbours. Over one tile of starts × one tile of goals most hidden units
    keep their sign. A unit that stays off adds nothing; all units that stay on are one linear map, which is multiplied
    into the next layer once for the tile. Only open units, whose sign may depend on the pair, are computed pair by
    pair. Activations have shape (units, pairs), so that matrix products run along the long side.
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
        """Whether tiles save work: there are enough points for dense tiles, and embeddings are smaller than layers."""
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
        """Yield (E, r · c) steps from one tile of (o, r) starts to each of several tiles of (o, c) goals."""
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
        """Minimum and maximum of the inputs (one, start, goal) over a tile, (2, 1 + 2 o)."""
        ones = torch.ones(2, 1)
        return torch.cat([ones, torch.stack(torch.aminmax(starts, dim=1)), torch.stack(torch.aminmax(goals, dim=1))], 1)

    def _inputs(self, starts: Tensor, goals: Tensor, actions: Tensor | None = None) -> Tensor:
        """Return the buffer of activations for the pairs of a tile, with the rows before the open units filled in."""
        inputs = self.inputs[:, : starts.shape[1] * goals.shape[1]]
        points = inputs[self.actions + 1 : self.base].unflatten(1, (starts.shape[1], goals.shape[1]))
        points[: self.size] = starts[:, :, None]
        points[self.size :] = goals[:, None, :]
        if actions is not None:
            inputs[: self.actions] = actions
        return inputs

    def _expectation(self, logits: Tensor) -> Tensor:
        """(E, B, pairs) logits to (E, pairs) expected steps, without forming the normalised distribution."""
        # Below −80 an exponential is at most a denormal number: negligible against 1, and slow.
        mass = logits.sub_(logits.amax(1, keepdim=True)).clamp_min_(-80).exp_()
        total = torch.matmul(self.mean, mass)
        return total[:, 0] / total[:, 1]


class _Plan(NamedTuple):
    """The matrices of one network for one tile."""

    folded: Tensor  # (x + 1 + i, hidden): from the inputs to the second layer, through first-layer units that stay on
    third: Tensor  # (hidden, outputs): the third layer, with 0 in the rows of second-layer units that may be off
    first_open: Tensor  # the open units of the first layer
    second_open: Tensor


class _Folding:
    """A stack of m networks, evaluated over a tile after folding the units that keep their sign into one matrix.

    The rows of `inputs` are: extra inputs, a one (for the bias), inputs; then space for the open units of both layers.
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
        """(tiles, 2, x + 1 + i) minimum and maximum inputs to the plans of each tile, one for each network.

        Each ReLU is replaced by a line with an error on both sides, which propagates the bounds of the first layer to
        the second. The line has slope 0 or 1 and no error if the unit keeps its sign.
        """
        middle, radius = boxes.mean(1), (boxes[:, 1] - boxes[:, 0]) / 2
        slope, error = relu_lines(middle @ self.first, radius @ self.first.abs())
        on = self._second_matrix(slope >= 1)
        line = self._second_matrix(slope)
        mean = (middle[:, None] @ line)[:, :, 0] + error @ self.second
        spread = (radius[:, None] @ line.abs())[:, :, 0] + error @ self.second.abs()
        second_slope, _ = relu_lines(mean, spread)
        third = self.third[:, None] * (second_slope >= 1)[..., None]
        parts = (_flat(on), _flat(third), _open_units(slope), _open_units(second_slope))
        plans = map(_Plan, *parts)
        return (list(itertools.islice(plans, len(self.networks))) for _ in boxes)

    def _second_matrix(self, slope: Tensor) -> Tensor:
        """(m, tiles, hidden) slopes of the first layer to (m, tiles, x + 1 + i, hidden) maps to the second layer."""
        scaled = self.first[:, None] * slope[:, :, None]
        matrix = (scaled.flatten(1, 2) @ self.second).view_as(scaled)
        matrix[:, :, : self.from_inputs.shape[1]] += self.from_inputs[:, None]
        return matrix

    def __call__(self, plans: list[_Plan], inputs: Tensor) -> Tensor:
        """Evaluate every network over a tile: (rows, pairs) inputs to (m, outputs, pairs)."""
        return torch.stack([_forward(net, plan, inputs) for net, plan in zip(self.networks, plans, strict=True)])


def _forward(network: tuple[Tensor, ...], plan: _Plan, inputs: Tensor) -> Tensor:
    """Evaluate one network over a tile: (rows, pairs) inputs, with space for the open units, to (outputs, pairs)."""
    first, second, third, bias = network
    rows = len(plan.folded)
    middle = rows + len(plan.first_open)
    end = middle + len(plan.second_open)
    torch.mm(first.index_select(0, plan.first_open), inputs[:rows], out=inputs[rows:middle]).clamp_min_(0)
    matrix = torch.cat([plan.folded, second.index_select(0, plan.first_open)])
    torch.mm(matrix.index_select(1, plan.second_open).T, inputs[:middle], out=inputs[middle:end]).clamp_min_(0)
    matrix = torch.cat([matrix @ plan.third, third.index_select(0, plan.second_open)])
    return torch.addmm(bias, matrix.T, inputs[:end])


def _open_units(slope: Tensor) -> tuple[Tensor, ...]:
    """(m, tiles, hidden) slopes to the indices of the open units of each network in each tile, ordered by tile."""
    is_open = ((slope > 0) & (slope < 1)).transpose(0, 1)
    return is_open.nonzero()[:, 2].split(is_open.sum(2).flatten().tolist())


def _flat(values: Tensor) -> tuple[Tensor, ...]:
    """Split (m, tiles, ...) values into those of each network in each tile, ordered by tile."""
    return values.transpose(0, 1).flatten(0, 1).unbind()


def _neighbours(points: Floats, size: int) -> list[NDArray[np.intp]]:
    """Group neighbouring points into groups of at most `size` rows, by repeatedly halving along the longest side."""
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
