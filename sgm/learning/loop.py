"""The training loop with its checkpoints, and the files of trained networks.

A run that resumes from a checkpoint ends with the same weights as one that was never interrupted. The file of a network
has its weights, configuration and calibration, and says how it was made.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sgm.errors import InputError, StoreError
from sgm.progress import progress_bar

from .device import resolve_device
from .tensors import read_tensors, write_tensors

_FORMAT = "sgm-fit-checkpoint-1"
_WARM_UP = 0.03  # share of the iterations in which the learning rate rises
CHECKS = 20  # how often a training is checked on held-out data, at most

Loss = Callable[[np.random.Generator], Tensor]
Config = TypeVar("Config")
Network = TypeVar("Network", bound=nn.Module)


def train_network(
    network: nn.Module,
    loss: Loss,
    iterations: int,
    *,
    seed: int,
    learning_rate: float = 1e-3,
    weight_decay: float = 1e-4,
    checkpoint: Path | None = None,
    checkpoint_every: int = 200,
    settings: dict[str, Any] | None = None,
    description: str = "train",
    progress: bool = True,
    device: str | torch.device = "cpu",
    validate: Callable[[], Tensor] | None = None,
    check_every: int = 0,
    patience: int = 0,
) -> list[float]:
    """Train a network with AdamW and return the loss of every iteration.

    The learning rate rises linearly at first and then falls along a cosine. The network is on the CPU afterwards. It
    has the last weights, or with `patience` those of the check with the least held-out loss; a training that resumes
    from a checkpoint keeps the same ones.

    Args:
        network: the network, trained in place.
        loss: draws a batch with the generator it is given and returns the loss of it.
        iterations: number of updates.
        seed: seed of the batches; each iteration has a generator of its own.
        learning_rate: the highest learning rate.
        weight_decay: of AdamW.
        checkpoint: file to write checkpoints to; training resumes from it if it exists.
        checkpoint_every: iterations between checkpoints.
        settings: facts that must be equal for training to resume from a checkpoint.
        description: label of the progress bar.
        progress: show a progress bar.
        device: where to train, by name; see `resolve_device`. `loss` and `validate` put their batches there.
        validate: the loss on held-out data, always the same batches; None: there is none.
        check_every: iterations between calls of `validate`; 0: 20 checks at most. The last weights are checked too.
        patience: checks in a row without a new least held-out loss after which training stops early; the weights of the
            least one are kept. 0: nothing is checked, training never stops early, and the last weights are kept. That
            is better where the held-out loss is flat or noisy: its least value is then a matter of chance, and often
            from before the learning rate has fallen.

    Raises:
        InputError: the checkpoint is of another training, or there is no such device.
        StoreError: the file is not a checkpoint.
        FloatingPointError: the loss is NaN or infinite.
    """
    if iterations < 0 or checkpoint_every < 1:
        raise InputError(
            f"{iterations} iterations, a checkpoint every {checkpoint_every}: expected 0 or more, 1 or more"
        )
    network.to(resolve_device(device))
    optimizer = torch.optim.AdamW(network.parameters(), learning_rate, weight_decay=weight_decay, foreach=True)
    every = check_every or max(1, math.ceil(iterations / CHECKS))
    checks = _Checks(network, validate if patience else None, every, patience)
    facts = json.dumps({"iterations": iterations, "seed": seed, **checks.facts(), **(settings or {})}, sort_keys=True)
    run = _Run(network, optimizer, checks, facts)
    if checkpoint is not None and checkpoint.exists():
        run.read(checkpoint)
    network.train()
    last = time.monotonic()
    with progress_bar(
        shown=progress, total=iterations, initial=run.done, desc=description, unit="it", leave=False
    ) as bar:
        while run.done < iterations and not checks.stopped:
            rate = learning_rate * _schedule(run.done / iterations)
            run.update(loss, rate, np.random.default_rng([seed, run.done]))
            if time.monotonic() - last > 1:
                last = time.monotonic()
                bar.set_postfix(loss=f"{np.mean(run.losses[-100:]):.3f}", **checks.shown(), refresh=False)
            bar.update()
            finished = run.done == iterations
            checks.after(run.done, finished)
            if checkpoint is not None and (run.done % checkpoint_every == 0 or finished or checks.stopped):
                run.write(checkpoint)
    checks.restore_best()
    network.to("cpu").eval()
    return run.losses


class _Checks:
    """Losses on held-out data during a training, and the weights of the least one.

    Attributes:
        history: the loss of every check so far.
        best: weights at the check with the least loss.
    """

    def __init__(self, network: nn.Module, validate: Callable[[], Tensor] | None, every: int, patience: int) -> None:
        for name, value, least in (("check_every", every, 1), ("patience", patience, 0)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(f"{name} is {value!r}: expected a whole number, {least} or more")
        self.network, self.validate, self.every, self.patience = network, validate, every, patience
        self.history: list[float] = []
        self.best: dict[str, Tensor] = {}

    @property
    def stopped(self) -> bool:
        """Whether the last `patience` checks found no lower loss."""
        return bool(self.patience) and len(self.history) - 1 - self._argmin() >= self.patience

    def after(self, iterations: int, last: bool) -> None:
        """Check after `iterations` iterations, if a check is due."""
        if self.validate is None or (iterations % self.every and not last):
            return
        self.network.eval()
        with torch.no_grad():
            self.history.append(float(self.validate()))
        self.network.train()
        if self._argmin() == len(self.history) - 1:
            self.best = {name: value.detach().clone() for name, value in self.network.state_dict().items()}

    def restore_best(self) -> None:
        """Give the network its best weights, if there were checks."""
        if self.best:
            self.network.load_state_dict(self.best)

    def facts(self) -> dict[str, int]:
        """What must be equal for a training to resume."""
        return {} if self.validate is None else {"check_every": self.every, "patience": self.patience}

    def shown(self) -> dict[str, str]:
        """For the progress bar."""
        return {"held_out": f"{self.history[-1]:.3f}"} if self.history else {}

    def _argmin(self) -> int:
        """The check with the least loss, the first one of equals; a NaN is never the least."""
        if not self.history:
            return -1
        return int(np.argmin(np.where(np.isnan(self.history), np.inf, self.history)))


class _Run:
    """State of a training, as stored in a checkpoint.

    Attributes:
        losses: the loss of every iteration so far.
        facts: what must be equal for a training to resume, as JSON.
    """

    def __init__(self, network: nn.Module, optimizer: torch.optim.Optimizer, checks: _Checks, facts: str) -> None:
        self.network, self.optimizer, self.checks, self.facts = network, optimizer, checks, facts
        self.losses: list[float] = []

    @property
    def done(self) -> int:
        """Number of iterations so far."""
        return len(self.losses)

    def update(self, loss: Loss, learning_rate: float, random: np.random.Generator) -> None:
        """Update the weights by the loss of one batch."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        value = loss(random)
        number = float(value.detach())
        if not math.isfinite(number):
            raise FloatingPointError(f"the loss is {number} at iteration {self.done}: lower the learning rate")
        self.losses.append(number)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        self.optimizer.step()

    def write(self, path: Path) -> None:
        """Write a checkpoint."""
        tensors = {f"network.{name}": value.cpu().contiguous() for name, value in self.network.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors.update({f"adam.{number}.{name}": value.cpu().contiguous() for name, value in state.items()})
        tensors |= {f"best.{name}": value.cpu().contiguous() for name, value in self.checks.best.items()}
        tensors["losses"] = torch.tensor(self.losses)
        if self.checks.history:
            tensors["checks"] = torch.tensor(self.checks.history, dtype=torch.float64)
        write_tensors(path, tensors, {"format": _FORMAT, "facts": self.facts, "iteration": str(self.done)})

    def read(self, path: Path) -> None:
        """Resume from a checkpoint; InputError if it is of another training."""
        tensors, metadata = read_tensors(path, _FORMAT)
        if metadata["facts"] != self.facts:
            raise InputError(
                f"{path} is of another training: it has {metadata['facts']}, this one {self.facts}; remove it to begin "
                "anew"
            )
        self.network.load_state_dict(_named(tensors, "network."))
        self.checks.best = _named(tensors, "best.")
        self.checks.history = tensors["checks"].tolist() if "checks" in tensors else []
        state: dict[int, dict[str, Tensor]] = {}
        parameters = list(self.network.parameters())
        for name, value in _named(tensors, "adam.").items():
            number, key = name.split(".")
            like = parameters[int(number)]
            # In the memory format of the parameter, as AdamW makes it: an update of mixed ones takes six times as long.
            state.setdefault(int(number), {})[key] = torch.empty_like(like).copy_(value) if value.ndim else value
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.losses = tensors["losses"].tolist()


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select tensors by a prefix of their names, and remove the prefix."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def copy_weights(network: nn.Module, start: nn.Module) -> None:
    """Copy the weights of another network of the same architecture."""
    try:
        network.load_state_dict(start.state_dict())
    except RuntimeError as error:
        raise InputError(f"start has another architecture than what is to be trained: {error}") from None


def _schedule(share: float) -> float:
    """Learning rate after this share of the iterations, relative to the peak."""
    if share < _WARM_UP:
        return (share + 1e-3) / (_WARM_UP + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (share - _WARM_UP) / (1 - _WARM_UP))) * 0.99 + 0.01


def save_network(
    path: str | os.PathLike[str],
    file_format: str,
    network: nn.Module,
    size: tuple[int, int],
    config: Any,
    facts: dict[str, Any] | None = None,
    *,
    integers: dict[str, int] | None = None,
    calibration: dict[str, NDArray[np.float32]] | None = None,
    notes: dict[str, str] | None = None,
) -> None:
    """Write a trained network as a safetensors file.

    Args:
        path: where to write it.
        file_format: name and version of the format; `load_network` checks them.
        network: the trained network.
        size: (width, height) of an image, pixels.
        config: a dataclass of hyper-parameters.
        facts: how the network was made; anything that JSON can hold.
        integers: further arguments of the function that makes the network.
        calibration: arrays by name, found after training.
        notes: further texts by name, which `read_tensors` gives back as metadata.
    """
    tensors = {name: value.contiguous() for name, value in network.state_dict().items()}
    tensors |= {f"calibration.{name}": torch.from_numpy(array) for name, array in (calibration or {}).items()}
    metadata = {**(notes or {}), **{name: str(value) for name, value in (integers or {}).items()}}
    metadata |= {"format": file_format, "size": json.dumps(size), "config": json.dumps(dataclasses.asdict(config))}
    write_tensors(path, tensors, {**metadata, "made": json.dumps(facts or {})})


def load_network(
    path: str | os.PathLike[str],
    file_format: str,
    config_type: Callable[..., Config],
    make: Callable[..., Network],
    *,
    integers: Sequence[str] = (),
    calibration: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> tuple[Network, tuple[int, int], Config, list[NDArray[np.float32]]]:
    """Read what `save_network` wrote: network, (width, height), configuration and calibration.

    `make(config, size, *integers)` makes a network of the same architecture. The arrays named in `optional` come after
    the others; of those that are not in the file, NaN. StoreError if the file is anything else.
    """
    tensors, metadata = read_tensors(path, file_format)
    try:
        config = config_type(**json.loads(metadata["config"]))
        width, height = json.loads(metadata["size"])
        arrays = [tensors.pop(f"calibration.{name}").numpy() for name in calibration]
        nothing = torch.full((1,), torch.nan)
        arrays += [tensors.pop(f"calibration.{name}", nothing).numpy() for name in optional]
        network = make(config, (width, height), *(int(metadata[name]) for name in integers))
        network.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StoreError(
            f"{path} has format {file_format!r}, but other contents than this version's: {error}"
        ) from error
    return network.eval(), (width, height), config, arrays
