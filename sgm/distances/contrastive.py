"""A distance learned by telling what comes a few steps later from everything else (InfoNCE).

`train` takes the experience of any environment, images or vectors. `train_contrastive` takes images of episodes of one
length, as the ViZDoom benchmark has them.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from sgm.data.experience import Experience
from sgm.errors import InputError
from sgm.learning.encoders import (
    Pictures,
    Standardised,
    check_pictures,
    check_rollouts,
    check_vectors,
    digest,
    for_inference,
    make_encoder,
    make_mlp,
    run,
    to_input,
)
from sgm.learning.loop import copy_weights, load_network, save_network, train_network
from sgm.learning.pairs import VECTORS, Rows, as_rows, settle

_FORMAT = "sgm-contrastive-1"
Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ContrastiveConfig:
    """Hyper-parameters."""

    encoder: str = "small"  # or "resnet18"; "mlp" for vectors, and for images that it flattens
    width: int = 32  # channels of the small encoder, units of the perceptron
    embedding: int = 128  # numbers of an embedding, which has length 1
    iterations: int = 4_000  # updates
    rollouts: int = 12  # of a batch
    pairs: int = 16  # of each rollout in a batch; all others in the batch are negatives of a pair
    reach: int = 5  # a pair is 1 to so many steps apart
    apart: int = 25  # pairs of one rollout are at least so many steps apart; `train` draws them anywhere
    learning_rate: float = 1e-3  # of AdamW, at its highest
    standardise: bool = False  # subtract the mean image; `train` does


FOR_IMAGES = ContrastiveConfig(standardise=True)
FOR_VECTORS = ContrastiveConfig(encoder=VECTORS, width=128, embedding=32, iterations=3_000, reach=20)


class Contrast(nn.Module):
    """An encoder and the sharpness of its comparisons.

    Where vectors of observations and of goals have different shapes, the encoder is of goals, and `achieves` tells what
    an observation achieves, as a standardised goal.
    """

    def __init__(self, config: ContrastiveConfig, size: tuple[int, int]) -> None:
        """Make an untrained network for images of this (width, height), or for vectors; see `Rows.size`."""
        super().__init__()
        self.achieves: Standardised | None = None
        if config.encoder == VECTORS:
            observation, goal = size
            self.encoder: nn.Module = make_mlp(goal or observation, config.embedding, config.width)
            self.achieves = make_mlp(observation, goal, config.width) if goal else None
        else:
            self.encoder = make_encoder(config.encoder, 3, size, config.embedding, width=config.width)
            if config.standardise:
                self.encoder = Standardised((3, size[1], size[0]), self.encoder)
        self.sharpness = nn.Parameter(torch.tensor(2.3))

    def forward(self, observations: Tensor) -> Tensor:
        """(n, 3, height, width) images or (n, d) vectors, in goal space, to (n, e) vectors of length 1."""
        return functional.normalize(self.encoder(observations), dim=1)

    def compare(self, starts: Tensor, goals: Tensor) -> Tensor:
        """(n, m) closeness of embeddings."""
        return self.sharpness.clamp(max=4.0).exp() * (starts @ goals.T)

    def loss(self, starts: Tensor, goals: Tensor) -> Tensor:
        """InfoNCE in both directions of (n, e) starts and the (n, e) goals beside them."""
        scores, own = self.compare(starts, goals), torch.arange(len(starts))
        return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2


class ContrastiveDistance:
    """Steps from one observation to another, by the cosine of their embeddings; follows the Distance contract.

    Observations are images or vectors. Goals are observations too, unless the experience it was trained on has achieved
    goals of another shape: then distances are those between goals, and an observation counts as what it achieves.

    Deviations from the paper, whose contrastive distance (SafetyGym) compares by a bilinear form zᵀ W z': embeddings
    have length 1, so that all pairs are one product of matrices, and the distance is symmetric.

    The calibration turns closeness into steps: `cosines[i]` is the median cosine of what lies `lags[i]` steps apart in
    random exploration; in between it is linear, and closeness below the last one counts `far` steps.

    Attributes:
        noise: standard deviation, steps, of the distance to the next observation, in episodes held out from training;
            NaN where that was not measured: it is not kept in the file.
    """

    def __init__(self, network: Contrast, size: tuple[int, int], config: ContrastiveConfig) -> None:
        """Take a trained network; it is calibrated with `calibrate`."""
        self.network, self.size, self.config = network, size, config
        self.inference = for_inference(network.encoder)
        self.achieves = None if network.achieves is None else for_inference(network.achieves)
        self.noise = math.nan
        self.lags = np.array([0.0, 1.0], np.float32)
        self.cosines = np.array([1.0, 0.0], np.float32)

    @property
    def far(self) -> float:
        """Steps of what is not close at all."""
        return float(self.lags[-1])

    def embed(self, observations: ArrayLike) -> Floats:
        """(n, height, width, 3) uint8 images or (n, d) vectors to (n, e)."""
        if self.achieves is None:
            return self.embed_goal(observations, "observations")
        goals = run(self.achieves, check_vectors(observations, self.size[0]))
        return _unit(run(self.inference.layers, goals))  # type: ignore[arg-type]

    def embed_goal(self, goals: ArrayLike, name: str = "goals") -> Floats:
        """(n, ...) goals, in goal space, to (n, e)."""
        if self.config.encoder == VECTORS:
            return _unit(run(self.inference, check_vectors(goals, self.size[1] or self.size[0], name)))
        return _unit(run(self.inference, check_pictures(goals, self.size, name)))

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) steps."""
        return self.steps(self.closeness(starts, goals))

    def closeness(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (m, e) to (n, m) cosines."""
        return np.asarray(starts, np.float32) @ np.asarray(goals, np.float32).T

    def pairs(self, starts: Floats, goals: Floats) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return self.steps(np.einsum("ne,ne->n", starts, goals))

    def steps(self, cosines: Floats) -> Floats:
        """Steps for cosines, of any shape."""
        return to_steps(cosines, self.cosines, self.lags)

    def calibrate(self, frames: Pictures, lags: int = 20, samples: int = 2_000, seed: int = 0) -> None:
        """Find the median cosine at every lag in rollouts (episodes, pictures, height, width, 3)."""
        windows = draw_windows(self.embed, frames, lags, samples, seed)
        medians = np.median(np.einsum("ne,nle->nl", windows[:, 0], windows[:, 1:]), axis=0)
        self.lags, self.cosines = falling_curve(1.0, medians)

    def _calibrate(self, rows: Rows, held_out: Rows, seed: int, samples: int = 2_000) -> None:
        """Find the median cosine at lags of up to 4 times the reach, and the noise at the least lag there is."""
        random = np.random.default_rng(seed)
        medians = {0: 1.0}
        for lag in range(1, 1 + min(4 * self.config.reach, int(rows.left.max()))):
            first, second = rows.apart(lag)
            if len(first):
                chosen = random.choice(len(first), samples // 4)
                medians[lag] = float(np.median(self._cosines(rows, first[chosen], second[chosen])))
        every = np.interp(np.arange(1, 1 + max(medians)), [*medians], [*medians.values()])  # thinned: some are missing
        self.lags, self.cosines = falling_curve(1.0, every.astype(np.float32))
        first, second = held_out.apart(int(held_out.gaps.min()))
        chosen = random.choice(len(first), samples)
        self.noise = float(self.steps(self._cosines(held_out, first[chosen], second[chosen])).std())

    def _cosines(self, rows: Rows, first: NDArray[np.int64], second: NDArray[np.int64]) -> Floats:
        """(n,) cosines of observations and goals in these rows."""
        return np.einsum("ne,ne->n", self.embed(rows.observations[first]), self.embed_goal(rows.goals[second]))

    @property
    def fingerprint(self) -> str:
        """What tells this distance from another one, for memory files."""
        return digest(self.network, self.lags, self.cosines)

    def save(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Write a safetensors file; `facts` say how it was made."""
        calibration = {"lags": self.lags, "cosines": self.cosines}
        save_network(path, _FORMAT, self.network, self.size, self.config, facts, calibration=calibration)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ContrastiveDistance:
        """Read what `save` wrote; StoreError if the file is anything else."""
        network, size, config, (lags, cosines) = load_network(
            path, _FORMAT, ContrastiveConfig, Contrast, calibration=("lags", "cosines")
        )
        distance = cls(network, size, config)
        distance.lags, distance.cosines = lags, cosines
        return distance


def train(
    data: Experience,
    config: ContrastiveConfig | None = None,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> ContrastiveDistance:
    """Train on experience: images or vectors, episodes of any length.

    Goals are the achieved goals of the experience; without them, its observations. The last twentieth of the episodes
    is held out to measure the noise, where there are 20 or more.

    Args:
        data: what an agent has seen; random exploration is good enough. Actions are not needed.
        config: hyper-parameters; None: the default ones for images or for vectors.
        seed: of weights and batches.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
        settings: hyper-parameters that differ from `config`, by name. The one to think about is `reach`, in steps:
            pairs up to so far apart count as close, and steps are told apart up to 4 times as far.
    """
    rows = as_rows(data, settings.get("encoder", config.encoder if config else None))
    config = settle(rows, config, (FOR_IMAGES, FOR_VECTORS), settings)
    kept, held_out = _hold_out(data, rows)
    torch.manual_seed(seed)
    network = Contrast(config, rows.size)
    sample = rows.sample(seed)
    if isinstance(network.encoder, Standardised):
        network.encoder.measure(to_input(rows.goals[sample]))
    if network.achieves is not None:
        network.achieves.measure(to_input(rows.observations[sample]))

    def loss(random: np.random.Generator) -> Tensor:
        first, second = kept.pairs(random, config.rollouts * config.pairs, config.reach)
        if network.achieves is None:
            return network.loss(*network(to_input(_stacked(kept, first, second))).chunk(2))
        goals = to_input(np.concatenate([kept.goals[first], kept.goals[second]]))
        told = network.achieves(to_input(kept.observations[first]))
        wrong = functional.mse_loss(told, network.encoder.standardise(goals[: len(first)]))  # type: ignore[operator]
        return network.loss(*network(goals).chunk(2)) + wrong

    facts = {**dataclasses.asdict(config), "kind": "contrastive", "observations": list(rows.observations.shape)}
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=facts,
        description="train distance",
        progress=progress,
    )
    distance = ContrastiveDistance(network, rows.size, config)
    distance._calibrate(kept, held_out, seed)
    return distance


def _stacked(rows: Rows, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[Any]:
    return np.concatenate([rows.observations[first], rows.goals[second]])


def _hold_out(data: Experience, rows: Rows) -> tuple[Rows, Rows]:
    """The rows to train on and those to measure the noise on; all of them for both where there are few episodes."""
    episodes = data.rows_by_episode()
    begin = episodes[-(len(episodes) // 20)].start if len(episodes) >= 20 else 0
    kept, held_out = rows.part(slice(begin)), rows.part(slice(begin, None))
    return (kept, held_out) if kept.left.any() and held_out.left.any() else (rows, rows)


def _unit(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def train_contrastive(
    frames: Pictures,
    config: ContrastiveConfig | None = None,
    *,
    seed: int = 0,
    start: ContrastiveDistance | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> ContrastiveDistance:
    """Train on random exploration: (episodes, pictures, height, width, 3) uint8.

    `start` is a distance of the same architecture to go on from, for example one that was trained in another maze.
    """
    config = config or ContrastiveConfig()
    episodes, length, size = check_rollouts(frames, config.reach + 2)
    torch.manual_seed(seed)
    network = Contrast(config, size)
    if start is not None:
        copy_weights(network, start.network)

    def loss(random: np.random.Generator) -> Tensor:
        rows, first, second = draw_pairs(random, episodes, length, config)
        both = to_input(np.concatenate([frames[rows, first], frames[rows, second]]))
        return network.loss(*network(both).chunk(2))

    settings = {**dataclasses.asdict(config), "kind": "contrastive", "frames": list(frames.shape)}
    if start is not None:
        settings["start"] = digest(start.network)
    train_network(
        network,
        loss,
        config.iterations,
        seed=seed,
        learning_rate=config.learning_rate,
        checkpoint=checkpoint,
        settings=settings,
        description="train distance",
        progress=progress,
    )
    distance = ContrastiveDistance(network, size, config)
    distance.calibrate(frames, seed=seed)
    return distance


def draw_pairs(
    random: np.random.Generator, episodes: int, length: int, config: ContrastiveConfig
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Rollouts and two times in each: pairs close in time, of one rollout far from one another."""
    chosen = random.permutation(episodes)[: config.rollouts]
    stride = max(length // config.pairs, config.apart + config.reach)
    per_rollout = max(1, min(config.pairs, length // stride))
    spare = max(1, stride - config.apart - config.reach)
    phase = random.integers(max(1, length - per_rollout * stride + 1), size=(len(chosen), 1))
    slots = phase + np.arange(per_rollout) * stride
    first = slots + random.integers(spare, size=slots.shape)
    second = first + random.integers(1, config.reach + 1, size=slots.shape)
    over = np.maximum(second - (length - 1), 0)
    first, second = first - over, second - over
    swap = random.random(slots.shape) < 0.5
    first, second = np.where(swap, second, first), np.where(swap, first, second)
    return np.repeat(chosen, per_rollout), first.ravel(), second.ravel()


def draw_windows(embed: Callable[[Pictures], Floats], frames: Pictures, lags: int, samples: int, seed: int) -> Floats:
    """(n, lags + 1, e) embeddings of random stretches of rollouts, about `samples` in all; fewer lags in short ones."""
    episodes, length, _ = check_rollouts(frames, 2)
    random = np.random.default_rng(seed)
    lags = min(lags, length - 1)
    if lags < 1:
        raise InputError(f"a calibration over {lags} lags: expected at least 1")
    number = max(1, samples // lags)
    episode, first = random.integers(episodes, size=number), random.integers(length - lags, size=number)
    return np.stack([embed(frames[e, f : f + lags + 1]) for e, f in zip(episode, first, strict=True)])


def falling_curve(top: float, medians: Floats) -> tuple[Floats, Floats]:
    """Lags and a closeness that falls from each to the next: `top` at lag 0, then (l,) medians at lags 1 … l."""
    falling = np.minimum.accumulate(np.minimum(medians, top - 1e-4))
    keep = np.concatenate([[True], np.diff(falling) < -1e-4])  # np.interp needs them to differ
    lags = np.concatenate([[0], 1 + np.flatnonzero(keep)]).astype(np.float32)
    return lags, np.concatenate([[top], falling[keep]]).astype(np.float32)


def to_steps(closeness: Floats, levels: Floats, lags: Floats) -> Floats:
    """Steps for closeness of any shape, linear between `levels`, which fall, and the `lags` they stand for."""
    steps = np.full(closeness.shape, lags[-1], np.float32)
    near = closeness > levels[-1]  # most pairs of a table are not, and a search for each would be most of the work
    steps[near] = np.interp(-closeness[near], -levels, lags)
    return steps
