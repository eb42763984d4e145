"""Fast code: a stack of three-layer networks, with gradients written out by hand and Adam without bookkeeping.

All networks of a stack share one array, every layer is one batched product for all of them, and nothing is traced or
allocated for an autograd graph. The plain version is d3pg_reference.py: one module for each network, autograd and
`torch.optim.Adam`. It is the oracle of the tests. `python -m speed.d3pg` prints the ratio of the times.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adam import adam

from sgm.distances.sorb import Layers, Shape


class Stack:
    """A stack of m equal networks with the buffers for one batch of n rows: forward pass, and backward pass by hand.

    Each buffer ends in a column of ones, which multiplies the bias rows; so no bias is added or summed separately.
    Views are made once here, because making one costs as much as a small product.
    """

    def __init__(self, layers: Layers, rows: int) -> None:
        """Make the buffers of these networks for batches of `rows` rows."""
        count, wide, hidden = layers.second.shape
        self.layers = layers
        self.first = torch.ones(count, rows, wide)  # first hidden layer, extra inputs, one
        self.second = torch.ones(count, rows, hidden + 1)  # second hidden layer, one
        self.outputs = torch.empty(count, rows, layers.third.shape[2])
        self.work = torch.empty(2, count, rows, hidden)  # layers before their ReLU, and gradients
        self.first_units, self.second_units = self.first[:, :, :hidden], self.second[:, :, :hidden]
        self.extra = self.first[:, :, hidden:-1]
        self.second_to_first, self.second_to_extra = layers.second[:, :hidden].mT, layers.second[:, hidden:-1].mT
        self.third_to_second = layers.third[:, :hidden].mT

    def forward(self, inputs: Tensor, extra: Tensor | None = None) -> Tensor:
        """(n, i + 1) inputs that end in 1, and (n, x) extra inputs, to (m, n, outputs); the next call overwrites it."""
        before = self.work[0]
        torch.bmm(inputs.expand(len(before), -1, -1), self.layers.first, out=before)
        torch.clamp_min(before, 0, out=self.first_units)
        if extra is not None:
            self.extra.copy_(extra)
        torch.bmm(self.first, self.layers.second, out=before)
        torch.clamp_min(before, 0, out=self.second_units)
        return torch.bmm(self.second, self.layers.third, out=self.outputs)

    def backward(self, inputs: Tensor, gradient: Tensor, into: Layers) -> None:
        """Write the gradients of all weights into `into`, from the gradient at the outputs of the last forward pass."""
        torch.bmm(self.second.mT, gradient, out=into.third)
        second = self._to_second(gradient)
        torch.bmm(self.first.mT, second, out=into.second)
        first = torch.bmm(second, self.second_to_first, out=self.work[1])
        _through_relu(first, self.first_units)
        torch.bmm(inputs.mT.expand(len(first), -1, -1), first, out=into.first)

    def backward_to_extra(self, gradient: Tensor) -> Tensor:
        """Gradient at the extra inputs, (m, n, x), from the gradient at the outputs of the last forward pass."""
        return torch.bmm(self._to_second(gradient), self.second_to_extra)

    def _to_second(self, gradient: Tensor) -> Tensor:
        return _through_relu(torch.bmm(gradient, self.third_to_second, out=self.work[0]), self.second_units)


def _through_relu(gradient: Tensor, activation: Tensor) -> Tensor:
    """Set the gradient to 0, in place, where a unit is off."""
    return torch.ops.aten.threshold_backward.grad_input(gradient, activation, 0, grad_input=gradient)


class TrainedNetworks:
    """Networks with their target networks, gradients and Adam's moments; each is one array for all networks."""

    def __init__(self, shape: Shape, count: int, rows: int, learning_rate: float, generator: torch.Generator) -> None:
        """Make `count` randomly initialised networks of a shape, for batches of `rows` rows."""
        self.weights = torch.empty(2, count, shape.size)  # the networks, and their target networks
        shape.initialize(self.weights[0], generator)
        self.weights[1] = self.weights[0]
        self.online, self.targets = self.weights
        self.gradient = torch.zeros(count, shape.size)
        self.moments = torch.zeros(2, count, shape.size)  # Adam's means of the gradient and of its square
        self.steps = torch.zeros(())
        self.learning_rate = learning_rate
        self.layers, self.gradients = shape.split(self.online), shape.split(self.gradient)
        self.stack = Stack(self.layers, rows)
        self.target_layers = shape.split(self.targets)

    def descend(self) -> None:
        """Make one step of Adam."""
        # The function behind torch.optim.Adam(fused=True): the bookkeeping of that class costs a third of the
        # arithmetic here.
        adam(
            [self.online],
            [self.gradient],
            [self.moments[0]],
            [self.moments[1]],
            [],
            [self.steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def move_targets(self, rate: float) -> None:
        """Move the target networks towards the networks by the share `rate`."""
        self.targets.lerp_(self.online, rate)

    def tensors(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint, by name."""
        return {"weights": self.weights, "moments": self.moments, "steps": self.steps}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from the `tensors` of a checkpoint."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
