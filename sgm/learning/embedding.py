"""Embeddings of images and vectors, shared by all learned distances in training and inference."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from .device import resolve_device
from .encoders import (
    Standardised,
    check_pictures,
    check_vectors,
    for_inference,
    make_encoder,
    make_mlp,
    run,
    to_input,
)
from .loop import train_network
from .pairs import VECTORS, Ints, Rows

if TYPE_CHECKING:
    from typing_extensions import Self

Floats = NDArray[np.float32]
BatchLoss = Callable[[Rows, np.random.Generator], Tensor]
_BATCHES = 8  # of held-out episodes in a check


class Embedding(nn.Module):
    """An encoder of images or vectors.

    Where vectors of observations and of goals have different shapes, the encoder is of goals, and `achieves` tells what
    an observation achieves, as a standardised goal.
    """

    def __init__(self, config: Any, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`.

        The configuration has `encoder`, `width`, `embedding` and `standardise`; for vectors also `waves` and
        `frequency`, if the perceptron sees Fourier waves.
        """
        super().__init__()
        self.achieves: Standardised | None = None
        if config.encoder == VECTORS:
            observation, goal = size
            waves = {"waves": config.waves, "frequency": config.frequency} if hasattr(config, "waves") else {}
            self.encoder: nn.Module = make_mlp(goal or observation, config.embedding, config.width, **waves)
            self.achieves = make_mlp(observation, goal, config.width) if goal else None
        else:
            self.encoder = make_encoder(config.encoder, 3, size, config.embedding, width=config.width)
            if config.standardise:
                self.encoder = Standardised((3, size[1], size[0]), self.encoder)

    def embed(self, observations: Tensor) -> Tensor:
        """(n, 3, height, width) images or (n, d) vectors, in goal space, to (n, e)."""
        return self.encoder(observations)

    def measure(self, rows: Rows, seed: int) -> None:
        """Standardise inputs by their mean and spread in experience from now on."""
        sample = rows.sample(seed)
        if isinstance(self.encoder, Standardised):
            self.encoder.measure(to_input(rows.goals[sample]))
        if self.achieves is not None:
            self.achieves.measure(to_input(rows.observations[sample]))

    def embed_pairs(self, rows: Rows, first: Ints, second: Ints) -> tuple[Tensor, Tensor, Tensor]:
        """Return (n, e) embeddings of starts and of goals, and the error of the predicted achieved goals."""
        device = next(self.parameters()).device
        if self.achieves is None:
            both = to_input(np.concatenate([rows.observations[first], rows.goals[second]])).to(device)
            starts, goals = self.embed(both).chunk(2)
            return starts, goals, torch.zeros((), device=device)
        both = to_input(np.concatenate([rows.goals[first], rows.goals[second]])).to(device)
        told = self.achieves(to_input(rows.observations[first]).to(device))
        wrong = functional.mse_loss(told, self.encoder.standardise(both[: len(first)]))  # type: ignore[operator]
        starts, goals = self.embed(both).chunk(2)
        return starts, goals, wrong


class Embedded:
    """The part of a trained distance that embeds observations and goals into one space."""

    def __init__(self, network: Embedding, size: tuple[int, int], config: Any) -> None:
        """Take a trained network, on the CPU."""
        self.network, self.size, self.config = network, size, config
        self.inference = for_inference(network.encoder)
        self.achieves = None if network.achieves is None else for_inference(network.achieves)

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, height, width[, 1 or 3]) images or (n, d) vectors to (n, e)."""
        if self.achieves is None:
            return self.embed_goal(observations, "observations")
        goals = run(self.achieves, check_vectors(observations, self.size[0]))
        return self._finish(run(self.inference.layers, goals))  # type: ignore[arg-type]

    def embed_goal(self, goals: ArrayLike, name: str = "goals") -> Floats:
        """(n, ...) goals, in goal space, to (n, e)."""
        if self.config.encoder == VECTORS:
            return self._finish(run(self.inference, check_vectors(goals, self.size[1] or self.size[0], name)))
        return self._finish(run(self.inference, check_pictures(goals, self.size, name)))

    def _finish(self, outputs: Floats) -> Floats:
        """Compute (n, e) embeddings from (n, e) outputs of the encoder."""
        return outputs

    def to(self, device: str) -> Self:
        """Embed on this device from now on; comparing embeddings stays where it is, on the CPU."""
        for network in (self.inference, self.achieves):
            if network is not None:
                network.to(resolve_device(device))
        return self


def train_embedding(
    network: Embedding,
    loss: BatchLoss,
    kept: Rows,
    held_out: Rows,
    config: Any,
    *,
    kind: str,
    seed: int,
    device: str,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool,
    error: BatchLoss | None = None,
) -> None:
    """Train a network in place on batches of `kept`.

    The configuration has `iterations`, `learning_rate` and `patience`; see `train_network`. The error on held-out
    episodes that patience goes by is the loss unless another one is given. Where nothing is held out (`held_out` is
    `kept`), training does not stop early and the last weights are kept.
    """
    measured = error or loss

    def held_out_error() -> Tensor:
        """Compute the error on the same batches at every call."""
        errors = [measured(held_out, np.random.default_rng([seed, 1, number])) for number in range(_BATCHES)]
        return torch.stack(errors).mean()

    facts = {"kind": kind, "observations": list(kept.observations.shape), "data": kept.digest()}
    train_network(
        network,
        lambda random: loss(kept, random),
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=None if checkpoint is None else Path(checkpoint),
        settings={**dataclasses.asdict(config), **facts},
        description="train distance",
        progress=progress,
        device=device,
        validate=None if held_out is kept else held_out_error,
        patience=config.patience,
    )
