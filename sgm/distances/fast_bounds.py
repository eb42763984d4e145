"""Fast code: bounds on how much distances change while the start moves a little.

The plain version computes the distances again; the tests compare with it.

Over a small box of starts a ReLU network is nearly linear. Each unit is replaced by a line in the start with an error
on both sides. Propagating lines and errors through the layers bounds every logit of every critic, and so the distance
of every start in the box.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from .sorb import GoalNetworks

Bools = NDArray[np.bool_]
Floats = NDArray[np.float32]
_ROUNDING = 1e-3  # steps; bounds hold in exact arithmetic


class Lines(NamedTuple):
    """Values that are lines in the start: middle + slope · (start − centre), ± error."""

    middle: Tensor  # (m, values)
    slope: Tensor  # (m, o, values)
    error: Tensor  # (m, values)

    def reach(self, radius: float) -> Tensor:
        """(m, values) how far from the middle the values can be in the whole box."""
        return radius * self.slope.abs().sum(1) + self.error

    def at(self, which: Tensor) -> Lines:
        """Lines of some rows."""
        return Lines(*(part[which] for part in self))


class Nearby:
    """Finds distances from starts in a small box that may differ from those of its centre.

    Distances at the upper end of the critics' range cannot grow, so a lower bound is sufficient for them, and a lower
    bound from any one critic is valid because the ensemble is aggregated by its maximum.

    Attributes:
        unproven: (m,) bool, the goals to which the steps may differ for some start of the box.
    """

    def __init__(
        self,
        networks: GoalNetworks,
        centre: Floats,
        radius: float,
        goals: Floats,
        steps: Floats,
        slack: float,
        compiled: bool = False,
    ) -> None:
        """Bound the distances from starts within `radius` of the (o,) centre, sup norm, to (m, o) goals.

        `steps`, (m,), are those from the centre itself; to differ is to be `slack` steps or more away from them.
        """
        origin, ends = torch.from_numpy(centre)[None], torch.from_numpy(goals)
        far = steps > networks.bins - slack + _ROUNDING
        through = _compiled_lines if compiled else lines
        action = _tanh_lines(through(networks.actor, 0, origin, ends, radius, None), radius)
        every, near = np.arange(len(goals)), np.flatnonzero(~far)
        asked = [near if critic else every for critic in range(len(networks.critics.first))]
        said = [
            through(networks.critics, critic, origin, ends[some], radius, action.at(some))
            for critic, some in enumerate(map(torch.from_numpy, asked))
        ]
        goal = np.concatenate(asked)
        order = np.argsort(goal, kind="stable")
        found = Lines(*(torch.cat(parts)[order] for parts in zip(*said, strict=True)))
        self._centre, self._slack, self._steps, self._far = centre, np.float32(slack - _ROUNDING), steps, far
        self.unproven: Bools = np.zeros(len(goals), np.bool_)
        self._keep(goal[order], found)
        self.unproven[self._goals] = self._undecided(self._lines[0], found.reach(radius).numpy().T)
        left = self.unproven[goal[order]]
        self._keep(goal[order][left], found.at(torch.from_numpy(left)))

    def _keep(self, goal: NDArray[np.int64], lines: Lines) -> None:
        """Keep the lines of what critics say of these (p,) goals, ascending; pairs side by side."""
        self._goals, self._first = np.unique(goal, return_index=True)
        middle, slope, error = (part.numpy() for part in lines)
        self._lines = tuple(np.ascontiguousarray(part) for part in (middle.T, slope.transpose(1, 2, 0), error.T))

    @property
    def nbytes(self) -> int:
        """Size of the stored lines, bytes."""
        return sum(part.nbytes for part in self._lines)

    def undecided(self, starts: Floats) -> Bools:
        """For which goals the steps from (n, o) starts of the box may differ: (n, m) bool, False where they do not."""
        result = np.zeros((len(starts), len(self.unproven)), np.bool_)
        middle, slope, error = self._lines
        for row, gap in zip(result, starts - self._centre, strict=True):
            row[self._goals] = self._undecided(middle + np.tensordot(gap, slope, 1), error)
        return result

    def _undecided(self, middle: Floats, reach: Floats) -> Bools:
        """The same from (B, p) logits ± reach of the critics that are asked, for the goals `_goals`."""
        peak = (middle + reach).max(axis=0)
        least, most = extremes(np.exp(middle - reach - peak), np.exp(middle + reach - peak))
        low, high = (np.maximum.reduceat(said, self._first) for said in (least, most))
        steps, far = self._steps[self._goals], self._far[self._goals]
        # Very steep networks have bounds that are not numbers, which prove nothing.
        differs: Bools = ~(steps - low < self._slack) | (~far & ~(high - steps < self._slack))
        return differs


def lines(
    layers: tuple[Tensor, Tensor, Tensor], member: int, start: Tensor, goals: Tensor, radius: float, extra: Lines | None
) -> Lines:
    """The outputs of a network over a box of starts, for (m, o) goals and `extra` inputs of the second layer."""
    first, second, third = (layer[member] for layer in layers)
    size, hidden = start.shape[1], first.shape[1]
    slope = first[:size].expand(len(goals), size, hidden)
    middle = start @ first[:size] + torch.addmm(first[-1], goals, first[size:-1])
    values = _through(_relu(Lines(middle, slope, torch.zeros_like(middle)), radius), second[:hidden], second[-1])
    if extra is not None:
        values = Lines(*map(torch.add, values, _through(extra, second[hidden:-1], torch.zeros(1))))
    return _through(_relu(values, radius), third[:-1], third[-1])


def _compiled_lines(
    layers: tuple[Tensor, Tensor, Tensor], member: int, start: Tensor, goals: Tensor, radius: float, extra: Lines | None
) -> Lines:
    """`lines`, compiled."""
    from . import fast_lines

    size, number = start.shape[1], len(goals)
    nothing = Lines(torch.empty(number, 0), torch.empty(number, size, 0), torch.empty(number, 0))
    parts = (*(layer[member] for layer in layers), start[0], goals)
    given = (part.contiguous().numpy() for part in (*parts, *(extra or nothing)))
    first, second, third, centre, ends, *inputs = given
    found = fast_lines.lines(first, second, third, centre, ends, np.float32(radius), *inputs)
    return Lines(*map(torch.from_numpy, found))


def _through(values: Lines, weights: Tensor, bias: Tensor) -> Lines:
    """Lines through a linear layer."""
    middle, slope, error = values
    flat = (slope.flatten(0, 1) @ weights).view(*slope.shape[:2], weights.shape[1])
    return Lines(torch.addmm(bias, middle, weights), flat, error @ weights.abs())


def _relu(values: Lines, radius: float) -> Lines:
    line, error = relu_lines(values.middle, values.reach(radius))
    return Lines(line * values.middle + error, line[:, None] * values.slope, line * values.error + error)


def relu_lines(middle: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and error of a linear relaxation of ReLUs: relu(x) = slope · x + error ± error for x in middle ± reach."""
    slope = ((middle + reach) / (2 * reach).clamp_min(1e-30)).clamp(0, 1)
    return slope, (slope * (reach - middle) / 2).clamp_min(0)


def _tanh_lines(values: Lines, radius: float) -> Lines:
    """Lines through tanh: the chord over what the values can be, and how far tanh is from it at most."""
    reach = values.reach(radius)
    low, high = values.middle - reach, values.middle + reach
    chord = ((torch.tanh(high) - torch.tanh(low)) / (high - low).clamp_min(1e-6)).clamp(0, 1)
    # tanh is farthest from the chord at an end, or where it has the same slope, 1 − tanh².
    steep = torch.atanh((1 - chord).sqrt().clamp_max(1 - 1e-6))
    places = torch.stack([low, high, torch.clamp(steep, low, high), torch.clamp(-steep, low, high)])
    apart = torch.tanh(places) - chord * places
    above, below = apart.amax(0), apart.amin(0)
    middle = chord * values.middle + (above + below) / 2
    return Lines(middle, chord[:, None] * values.slope, chord * values.error + (above - below) / 2)


def extremes(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Smallest and largest expected bin, 1…B, for (B, p) weights between `low` and `high`: (p,) each.

    More of a weight shortens the expectation if its bin is below it: so all bins up to some bin are high, the rest low.
    """
    return _means(low, high).min(axis=0), _means(high, low).max(axis=0)


def _means(rest: Floats, first: Floats) -> Floats:
    """(B, p) the expected bin with the weights `first` up to each bin and `rest` beyond it."""
    until, beyond, bins = _sums(len(rest))
    with np.errstate(invalid="ignore"):  # all weights may underflow
        mean = ((until * bins) @ first + (beyond * bins) @ rest) / (until @ first + beyond @ rest)
    return np.asarray(mean, np.float32)


@functools.cache
def _sums(bins: int) -> tuple[Floats, Floats, Floats]:
    """(B, B) what sums up weights until each bin, and beyond it, and (B,) the steps of the bins."""
    until = np.tri(bins, dtype=np.float32)
    return until, np.float32(1) - until, np.arange(1, bins + 1, dtype=np.float32)
