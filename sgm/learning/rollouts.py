"""Training on rollouts: images of episodes of one length, as the paper's benchmarks have them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from sgm.data.experience import Experience

from .encoders import Pictures, as_images, data_digest, digest
from .loop import Loss, copy_weights, train_network
from .pairs import as_rollouts, episodes_of_one_length


def image_rollouts(data: Experience) -> Pictures:
    """Cut the images of experience into episodes of one length: (episodes, images, height, width, 3)."""
    kept = episodes_of_one_length(data, 2)
    return as_rollouts(as_images(kept.observations), kept)


def train_on_rollouts(
    network: nn.Module,
    loss: Loss,
    frames: Pictures,
    config: Any,
    *more: NDArray[Any],
    kind: str,
    seed: int,
    checkpoint: Path | None,
    progress: bool,
    start: Any = None,
    device: str | torch.device = "cpu",
    description: str = "train distance",
) -> None:
    """Train a network in place; see `train_network` for what is not listed.

    Args:
        network: the network.
        loss: draws a batch of the rollouts with the generator it is given and returns the loss of it.
        frames: the rollouts, of which checkpoints keep the shape and a digest.
        config: a dataclass of hyper-parameters with `iterations` and `learning_rate`.
        more: further arrays over the episodes that the loss depends on, for the digest.
        kind: what is trained: a checkpoint of another kind is refused.
        seed: of the batches.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        start: trained object whose `network`, of the same architecture, training starts from; None: from scratch.
        device: where to train.
        description: label of the progress bar.
    """
    settings = {**dataclasses.asdict(config), "kind": kind, "frames": list(frames.shape)}
    settings["data"] = data_digest(frames, *more)
    if start is not None:
        copy_weights(network, start.network)
        settings["start"] = digest(start.network)
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=settings,
        description=description,
        progress=progress,
        device=device,
    )
