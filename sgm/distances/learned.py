"""Base of the distances learned from experience: training, calibration and files.

`regression`, `quasimetric`, `contrastive` and `sptm` add hyper-parameters, a network that compares two embeddings, and
an objective.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sgm.data.experience import Experience
from sgm.learning.embedding import BatchLoss, Embedded, train_embedding
from sgm.learning.pairs import Ints, Rows, as_rows, hold_out, settle
from sgm.learning.trained import Trained

from .calibration import Raw, noise_of

Floats = NDArray[np.float32]
# A function of (network, configuration) that returns a function of (rows, generator), which draws a batch and returns
# its loss, or its error on held-out episodes.
Objective = Callable[[Any, Any], BatchLoss]


class LearnedDistance(Embedded, Trained):
    """Steps from one observation to another; follows the Distance contract.

    Observations are images or vectors. Goals are observations too, unless the experience it was trained on has achieved
    goals of another shape: then distances are between goals, and an observation is represented by its achieved goal.

    A network embeds both and compares the embeddings; a calibration curve converts its output to steps. The curve maps
    the output for pairs `lags[i]` steps apart to `lags[i]` and is linear in between. Beyond its end the distance is
    `far` steps, which means "at least this far".

    Attributes:
        lags: (l,) steps, ascending; a subclass keeps the matching outputs of the network.
        noise: standard deviation of the distance to the next observation, steps, in episodes held out from training;
            NaN if it was not measured, as after training on rollouts.
    """

    kind: ClassVar[str]  # name for checkpoints: a checkpoint of another kind is refused
    defaults: ClassVar[tuple[Any, Any]]  # configurations for images and for vectors
    may_be_unknown = ("noise",)

    lags: Floats

    def __init__(self, network: Any, size: tuple[int, int], config: Any) -> None:
        """Make a distance from a trained network; a subclass sets the curve in use until it is calibrated."""
        super().__init__(network, size, config)
        self.noise = math.nan

    @property
    def far(self) -> float:
        """Largest distance, steps."""
        return float(self.lags[-1])

    def pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) and (n, e) to (n,) steps, row by row."""
        return self.steps(self._of_pairs(starts, goals))

    def calibrate_on(self, rows: Rows, seed: int = 0) -> None:
        """Measure the curve and the noise in episodes held out from training."""

        def raw(first: Ints, second: Ints) -> Floats:
            return self._of_pairs(self.embed(rows.observations[first]), self.embed_goal(rows.goals[second]))

        self._find_curve(raw, rows, seed)
        self.noise = noise_of(lambda first, second: self.steps(raw(first, second)), rows, seed)

    def steps(self, raw: Floats) -> Floats:
        """Convert outputs of the network, of any shape, to steps."""
        raise NotImplementedError

    def _of_pairs(self, starts: ArrayLike, goals: ArrayLike) -> Floats:
        """(n, e) starts and (n, e) goals to (n,) outputs of the network, row by row."""
        raise NotImplementedError

    def _find_curve(self, raw: Raw, rows: Rows, seed: int) -> None:
        """Set `lags` and the matching outputs, measured on pairs of these rows."""
        raise NotImplementedError


Learned = TypeVar("Learned", bound=LearnedDistance)


def fit(
    kind: type[Learned],
    data: Experience,
    config: Any,
    changes: dict[str, Any],
    objective: Objective,
    error: Objective | None = None,
    *,
    seed: int,
    device: str,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool,
) -> Learned:
    """Train the network of a distance on an objective, and calibrate it.

    Args:
        kind: class of the distance.
        data: experience to train and calibrate on.
        config: hyper-parameters; None: the defaults for images or for vectors.
        changes: hyper-parameters that differ from it, by name.
        objective: the loss that training minimises.
        error: the error on held-out episodes for early stopping; None: the objective.
        seed: seed of weights, batches and the pairs of the calibration.
        device: where to train.
        checkpoint: a file from which an interrupted training resumes.
        progress: show a progress bar.
    """
    rows = as_rows(data, changes.get("encoder", config.encoder if config else None))
    chosen = settle(rows, config, kind.defaults, changes)
    kept, held_out = hold_out(data, rows)
    torch.manual_seed(seed)
    network = kind.network_type(chosen, rows.size)
    network.measure(rows, seed)
    train_embedding(
        network,
        objective(network, chosen),
        kept,
        held_out,
        chosen,
        kind=kind.kind,
        seed=seed,
        device=device,
        checkpoint=checkpoint,
        progress=progress,
        error=None if error is None else error(network, chosen),
    )
    distance = kind(network, rows.size, chosen)
    distance.calibrate_on(held_out, seed)
    return distance
