"""Encoders: a small residual net for images on CPUs, the paper's ResNet-18, and a perceptron for vectors."""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

try:
    import torch
    from torch import Tensor, nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"encoders need {error.name}: pip install 'sparse-graphical-memory[learn]'", name=error.name
    ) from error

Pictures = NDArray[np.uint8]
ENCODERS = ("small", "resnet18")
BATCH = 256  # observations encoded at once


class Block(nn.Module):
    """Two 3 × 3 convolutions around a shortcut."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        """Make a block; `stride` 2 halves the image."""
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to (n, out, h / stride, w / stride)."""
        y = torch.relu_(self.bn1(self.conv1(x)))
        return torch.relu_(self.bn2(self.conv2(y)) + self.shortcut(x))


def make_encoder(kind: str, channels: int, size: tuple[int, int], out: int, *, width: int = 32) -> nn.Module:
    """Make an untrained encoder, (n, channels, height, width) to (n, out).

    Args:
        kind: "small", a residual net for CPUs, or "resnet18", the paper's (as published by He et al.; SPTM's copy puts
            normalisation and ReLU before its convolutions).
        channels: of its input: 3 for one image, 9 for three on top of each other.
        size: (width, height) of an image.
        out: size of the output.
        width: channels of the small net's first layer; each of two halvings doubles them. It does not average over
            the image before its last layer: places are kept apart.
    """
    if kind in ENCODERS and min(size) < 4:
        raise InputError(
            f"images are {size[0]} × {size[1]}: expected 4 × 4 or more; give encoder='mlp' for smaller ones"
        )
    if kind == "small":
        stages = [(width, 1), (2 * width, 2), (4 * width, 2)]
        # Patches of 8 × 8 at once: half of the time of two finer layers goes into arrays that do not fit the caches.
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 8, 4, 2, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU(inplace=True)]
        before = width
    elif kind == "resnet18":
        stages = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]
        layers = [nn.Conv2d(channels, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(3, 2, 1)]
        before = 64
    else:
        raise InputError(f"encoder is {kind!r}: expected {' or '.join(map(repr, ENCODERS))}")
    for after, stride in stages:
        layers.append(Block(before, after, stride))
        before = after
    if kind == "resnet18":
        layers.append(nn.AdaptiveAvgPool2d(1))
    body = nn.Sequential(*layers, nn.Flatten()).eval()
    with torch.inference_mode():
        numbers = body(torch.zeros(1, channels, size[1], size[0])).shape[1]
    network = nn.Sequential(*body, nn.Linear(numbers, out)).train()
    return _channels_last(network)


class Standardised(nn.Module):
    """Layers over standardised inputs: vectors number by number, images by their mean image and one scale.

    What never changes in a fixed camera's images hides the little that does: without the mean image, a controller for a
    robot seen from above learns nothing in the same time.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...], layers: nn.Module) -> None:
        """Take layers for inputs (n, *shape), which stay as they are until `measure` is called."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape if len(shape) == 1 else ()))
        self.layers = layers

    def measure(self, inputs: Tensor) -> None:
        """Standardise by the mean and the standard deviation of (n, *shape) inputs from now on."""
        self.mean.copy_(inputs.mean(dim=0))
        spread = (inputs - self.mean).square().mean(dim=tuple(range(inputs.ndim)) if inputs.ndim > 2 else 0).sqrt()
        self.scale.copy_(torch.where(spread > 1e-6, spread, 1.0))

    def standardise(self, inputs: Tensor) -> Tensor:
        """(n, *shape) to the same with mean 0 and standard deviation 1."""
        return (inputs - self.mean) / self.scale

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the layers to (n, *shape) inputs after standardising them."""
        return self.layers(self.standardise(inputs))


class Fourier(nn.Module):
    """Inputs and random waves of them: a perceptron over these tells apart places on two sides of a thin wall."""

    directions: Tensor

    def __init__(self, inputs: int, waves: int, frequency: float) -> None:
        """Draw (inputs, waves) directions; `frequency` is the standard deviation of the radians over one input."""
        super().__init__()
        self.register_buffer("directions", torch.randn(inputs, waves) * frequency / inputs**0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, inputs) to (n, inputs + 2 waves)."""
        angles = inputs @ self.directions
        return torch.cat([inputs, angles.sin(), angles.cos()], dim=1)


def make_mlp(inputs: int, out: int, width: int, *, waves: int = 0, frequency: float = 1.5) -> Standardised:
    """Make an untrained perceptron with two hidden layers, (n, inputs) to (n, out); `waves` adds Fourier features."""
    before: list[nn.Module] = [Fourier(inputs, waves, frequency)] if waves else []
    hidden = [nn.Linear(inputs + 2 * waves, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    return Standardised((inputs,), nn.Sequential(*before, *hidden, nn.Linear(width, out)))


def as_images(observations: Any) -> NDArray[Any]:
    """Grey images (n, height, width[, 1]) and images of floats from 0 to 1 as (n, height, width, 3) uint8.

    Anything else comes back as it is, for `check_pictures` to judge.
    """
    images = np.asarray(observations)
    if images.dtype.kind == "f" and images.size and images.min() >= 0 and images.max() <= 1:
        images = np.rint(images * 255).astype(np.uint8)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and images.shape[3] == 1:
        return np.broadcast_to(images, (*images.shape[:3], 3))  # not a copy: large experience stays as large as it is
    return images


def check_vectors(observations: Any, numbers: int, name: str = "observations") -> NDArray[Any]:
    """The same, flattened, as (n, numbers) uint8 or float32, if each has so many finite numbers; else InputError."""
    vectors = np.asarray(observations)
    if vectors.ndim > 2 and np.prod(vectors.shape[1:]) == numbers:
        vectors = vectors.reshape(len(vectors), numbers)
    if vectors.ndim != 2 or vectors.shape[1] != numbers or vectors.dtype.kind not in "fiub":
        raise InputError(
            f"{name} are {vectors.dtype} of shape {vectors.shape}: expected numbers (n, {numbers}), as in training"
        )
    if not np.isfinite(vectors).all():
        raise InputError(f"{name} have values that are not finite: expected finite numbers (n, {numbers})")
    return vectors if vectors.dtype == np.uint8 else vectors.astype(np.float32, copy=False)


def check_pictures(observations: Any, size: tuple[int, int], name: str = "observations") -> Pictures:
    """The same as an array, if it is (n, height, width, 3) uint8 images of this (width, height); else InputError."""
    images = as_images(observations)
    width, height = size
    if images.shape[1:] != (height, width, 3) or images.dtype != np.uint8:
        alpha = images.ndim == 4 and images.shape[3] == 4
        raise InputError(
            f"{name} are {images.dtype} of shape {images.shape}: expected images (n, {height}, {width}, 3), uint8 or "
            f"floats from 0 to 1{'; leave out the alpha channel: images[..., :3]' if alpha else ''}"
        )
    return images


def check_rollouts(frames: Any, least: int) -> tuple[int, int, tuple[int, int]]:
    """Episodes, images in each, and (width, height) of (episodes, images, height, width, 3) uint8 exploration."""
    shape, dtype = np.shape(frames), getattr(frames, "dtype", None)
    if len(shape) != 5 or shape[4] != 3 or dtype != np.uint8 or 0 in shape:
        raise InputError(
            f"frames are {dtype} of shape {shape}: expected uint8 images (episodes, images, height, width, 3)"
        )
    if shape[1] < least:
        raise InputError(f"episodes have {shape[1]} images: expected at least {least}; explore for longer")
    return shape[0], shape[1], (shape[3], shape[2])


def to_input(observations: NDArray[Any]) -> Tensor:
    """(n, height, width, c) uint8 images or (n, d) vectors as a network takes them.

    The memory format of images is channels last, as it is.
    """
    if observations.ndim == 2:
        return torch.from_numpy(np.array(observations, np.float32))
    own = np.require(observations, requirements=["C", "W"])  # torch warns of memory it must not write to
    return torch.from_numpy(own).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


def for_inference(network: nn.Module) -> nn.Module:
    """Return a copy for inference, with batch normalisation folded into the preceding convolutions."""
    network = copy.deepcopy(network).eval()
    for module in [*network.modules()]:
        if isinstance(module, Block):
            module.conv1, module.bn1 = fuse_conv_bn_eval(module.conv1, module.bn1), _NOTHING  # type: ignore[assignment]
            module.conv2, module.bn2 = fuse_conv_bn_eval(module.conv2, module.bn2), _NOTHING  # type: ignore[assignment]
            if isinstance(module.shortcut, nn.Sequential):
                conv, norm = module.shortcut
                module.shortcut = fuse_conv_bn_eval(conv, norm)  # type: ignore[arg-type, type-var]
        if isinstance(module, nn.Sequential) and len(module) > 1 and isinstance(module[1], nn.BatchNorm2d):
            conv, norm = module[0], module[1]
            module[0], module[1] = fuse_conv_bn_eval(conv, norm), nn.Identity()  # type: ignore[type-var]
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return _channels_last(network)


_DIGESTED = 2**25  # bytes of an array that its digest is made of
_NOTHING = nn.Identity()


def _channels_last(network: nn.Module) -> nn.Module:
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def run(network: nn.Module, observations: Any, batch: int = BATCH) -> NDArray[np.float32]:
    """Apply a network to (n, height, width, c) uint8 images or (n, d) vectors in batches; return (n, out)."""
    parts = []
    device = next(network.parameters()).device
    with torch.inference_mode():
        for first in range(0, max(1, len(observations)), batch):  # no observations are a batch too: (0, out)
            parts.append(network(to_input(observations[first : first + batch]).to(device)).cpu().numpy())
    return np.concatenate(parts)


def digest(network: nn.Module, *arrays: NDArray[Any]) -> str:
    """Fingerprint of a network and its arrays."""
    result = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        result.update(name.encode() + value.cpu().numpy().tobytes())
    for array in arrays:
        result.update(array.tobytes())
    return result.hexdigest()


def data_digest(*arrays: NDArray[Any]) -> str:
    """Fingerprint of arrays over observations; of large ones, evenly spaced rows are used, about 32 MB each."""
    result = hashlib.sha256()
    for array in arrays:
        size = max(1, array.nbytes // max(1, len(array)))
        number = min(len(array), max(100, _DIGESTED // size))
        rows = np.unique(np.linspace(0, len(array) - 1, number).astype(np.int64))
        result.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array[rows]).tobytes())
    return result.hexdigest()[:16]
