"""Image features: the means of a β-VAE, as the paper uses for perceptual consistency (SafetyGym).

The encoder is that of the distance, as in the paper, except that it ends in two dense layers, mean and log-variance,
without a LayerNorm: with means of constant norm the divergence could not be minimised.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.device import resolve_device
from sgm.learning.encoders import Pictures, check_pictures, check_rollouts, for_inference, run, to_input
from sgm.learning.rollouts import image_rollouts, train_on_rollouts
from sgm.learning.trained import Trained

from .bilinear import convolutions

Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class VAEConfig:
    """Hyper-parameters."""

    width: int = 32  # channels of each convolution
    latent: int = 50  # size of a feature vector
    beta: float = 1.0  # weight of the divergence, relative to half the squared error, summed over an image in [-1, 1]
    iterations: int = 1_500  # updates
    batch: int = 128  # images of an update
    learning_rate: float = 1e-3  # peak, of AdamW


class Means(nn.Sequential):
    """The part of the encoder that features need: images to means."""

    def __init__(self, config: VAEConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height)."""
        body, shape = convolutions(size, config.width)
        super().__init__(body, nn.Flatten(), nn.Linear(int(np.prod(shape)), config.latent))


class VAE(nn.Module):
    """Encoder and decoder; the decoder mirrors the encoder."""

    def __init__(self, config: VAEConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height)."""
        super().__init__()
        if size[0] % 8 or size[1] % 8:
            raise InputError(f"images are {size[0]} × {size[1]}: expected multiples of 8 pixels, for the decoder")
        width, (_, self.shape) = config.width, convolutions(size, config.width)
        numbers = int(np.prod(self.shape))
        self.means = Means(config, size)
        self.log_variances = nn.Linear(numbers, config.latent)
        self.unfold = nn.Linear(config.latent, numbers)
        self.decoder = nn.Sequential(
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, width, 3, 1, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, 3, 8, 4, 2),
        )
        self.decoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(n, 3, height, width) images to (n, latent) means and log-variances."""
        body, flatten, last = self.means
        numbers = flatten(body(images))
        return last(numbers), self.log_variances(numbers)

    def decode(self, latents: Tensor) -> Tensor:
        """(n, latent) to (n, 3, height, width)."""
        return self.decoder(self.unfold(latents).view(-1, *self.shape))


class VAEFeatures(Trained):
    """Maps images to the means of their latents, for `features` of a memory, which compares them by the L2 norm.

    Files hold only the network of the means, without decoder and variances.
    """

    file_format = "sgm-vae-1"
    config_type = VAEConfig
    network_type = Means

    def __init__(self, network: Means, size: tuple[int, int], config: VAEConfig) -> None:
        """Make features from a trained network."""
        self.network, self.size, self.config = network, size, config
        self.inference = for_inference(network)

    def __call__(self, observations: ArrayLike) -> Floats:
        """(n, height, width, 3) uint8 images to (n, latent)."""
        return run(self.inference, check_pictures(observations, self.size))


def train(
    data: Experience,
    config: VAEConfig | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> VAEFeatures:
    """Train on the images of experience, cut into episodes of one length; see `train_vae`."""
    where = None if checkpoint is None else Path(checkpoint)
    frames = image_rollouts(data)
    return train_vae(frames, config, seed=seed, device=device, checkpoint=where, progress=progress)


def train_vae(
    frames: Pictures,
    config: VAEConfig | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    checkpoint: Path | None = None,
    progress: bool = True,
) -> VAEFeatures:
    """Train on images of exploration: (episodes, images, height, width, 3) uint8."""
    config = config or VAEConfig()
    episodes, length, size = check_rollouts(frames, 1)
    torch.manual_seed(seed)
    where = resolve_device(device)
    network = VAE(config, size)

    def loss(random: np.random.Generator) -> Tensor:
        rows, times = random.integers(episodes, size=config.batch), random.integers(length, size=config.batch)
        noise = torch.from_numpy(random.standard_normal((config.batch, config.latent), np.float32))
        return negative_bound(network, to_input(frames[rows, times]).to(where), noise.to(where), config.beta)

    train_on_rollouts(
        network,
        loss,
        frames,
        config,
        kind="vae",
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
        device=where,
        description="train features",
    )
    return VAEFeatures(network.means, size, config)


def negative_bound(network: VAE, images: Tensor, noise: Tensor, beta: float) -> Tensor:
    """Loss of a β-VAE: half the squared reconstruction error, plus β times the divergence, in nats.

    (n, 3, height, width) images and (n, latent) standard normal noise to the mean over images.
    """
    means, log_variances = network.encode(images)
    drawn = network.decode(means + noise * (log_variances / 2).exp())
    error = (drawn - images).square().sum() / 2
    divergence = (means.square() + log_variances.exp() - log_variances - 1).sum() / 2
    return (error + beta * divergence) / len(images)
