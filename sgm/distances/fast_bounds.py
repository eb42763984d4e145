"""Fast code: finds distances that provably stay almost the same while the start moves a little.

The plain version computes the distances again; the tests compare with it.

Over a small box of starts a ReLU network is nearly linear. Each unit is replaced by a line with an error on both sides.
Propagating lines and errors through the layers bounds every logit of every critic. Distances at the upper end of the
critics' range cannot grow, so a lower bound is sufficient for them, and a lower bound from any one critic is valid
because the ensemble is aggregated by its maximum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from .sorb import GoalNetworks

_ROUNDING = 1e-3  # steps; bounds hold in exact arithmetic


def cannot_change(
    networks: GoalNetworks,
    start: NDArray[np.float32],
    radius: float,
    goals: NDArray[np.float32],
    steps: Tensor,
    slack: float,
) -> NDArray[np.bool_]:
    """Find goals whose distance stays within `slack` steps of `steps` for all starts within `radius`, sup norm.

    (o,) start, (m, o) goals and (m,) steps from the start itself to (m,) bool; False where there is no proof.
    """
    result = np.zeros(len(goals), np.bool_)
    far = torch.nonzero(steps > networks.bins - slack + _ROUNDING)[:, 0]
    if not len(far):
        return result
    ends = torch.from_numpy(start)[None], torch.from_numpy(goals)[far]
    middle, reach = _bound(networks.actor, 0, *ends, radius, None)
    low, high = torch.tanh(middle - reach), torch.tanh(middle + reach)
    action = (low + high) / 2, (high - low) / 2
    least = torch.stack(
        [_least(*_bound(networks.critics, i, *ends, radius, action)) for i in range(len(networks.critics.first))]
    ).amax(0)
    result[far.numpy()] = (least > steps[far] - slack + _ROUNDING).numpy()
    return result


def _bound(
    layers: tuple[Tensor, Tensor, Tensor],
    member: int,
    start: Tensor,
    goals: Tensor,
    radius: float,
    action: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """Centre and radius of a network's outputs over a box of starts (and of actions): (m, outputs) each."""
    first, second, third = (layer[member] for layer in layers)
    size, hidden = start.shape[1], first.shape[1]
    slopes = first[:size]  # of the first layer with respect to the start
    middle = start @ slopes + torch.addmm(first[-1], goals, first[size:-1])
    line, error = relu_lines(middle, radius * slopes.abs().sum(0).expand_as(middle))
    weights, magnitudes = second[:hidden], second[:hidden].abs()
    middle = torch.addmm(second[-1], line * middle + error, weights)
    slopes = (line[:, None] * slopes) @ weights  # (m, o, hidden): of the second layer with respect to the start
    reach = radius * slopes.abs().sum(1) + error @ magnitudes
    from_action = torch.zeros_like(middle)
    if action is not None:
        middle = middle + action[0] @ second[hidden:-1]
        from_action = action[1] @ second[hidden:-1].abs()
    second_line, second_error = relu_lines(middle, reach + from_action)
    loose = second_line * (error @ magnitudes + from_action) + second_error
    outputs = torch.addmm(third[-1], second_line * middle + second_error, third[:-1])
    slopes = (second_line[:, None] * slopes) @ third[:-1]
    return outputs, radius * slopes.abs().sum(1) + loose @ third[:-1].abs()


def relu_lines(middle: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Slope and error of a linear relaxation of ReLUs: relu(x) = slope · x + error ± error for x in middle ± reach."""
    slope = ((middle + reach) / (2 * reach).clamp_min(1e-30)).clamp(0, 1)
    return slope, (slope * (reach - middle) / 2).clamp_min(0)


def _least(middle: Tensor, reach: Tensor) -> Tensor:
    """Smallest expected steps for logits in middle ± reach: (m, B) and (m, B) to (m,).

    Raising a logit lowers the expectation if its bin is below the expectation. So at the minimum all logits up to some
    bin are at their upper bound, and the rest at their lower bound.
    """
    bins = torch.arange(1.0, middle.shape[1] + 1)
    low, high = middle - reach, middle + reach
    peak = high.amax(1, keepdim=True)
    low, high = (low - peak).exp_(), (high - peak).exp_()
    mass = low.sum(1, keepdim=True) + (high - low).cumsum(1)
    mean = (low @ bins)[:, None] + ((high - low) * bins).cumsum(1)
    return (mean / mass).amin(1)
