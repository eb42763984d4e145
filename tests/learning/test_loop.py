"""Training: it learns, a run can be stopped anywhere, and its files are what they should be."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

from sgm.errors import InputError, StoreError  # noqa: E402
from sgm.learning.encoders import make_encoder, to_input  # noqa: E402
from sgm.learning.loop import CHECKS, load_network, save_network, train_network  # noqa: E402

SIZE = (16, 12)


class Stopped(Exception):
    """What a run is stopped by."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Of the network below."""

    width: int = 4


def make_network(config: Config, size: tuple[int, int], out: int) -> nn.Module:
    return make_encoder("small", 3, size, out, width=config.width)


def train(iterations: int = 12, stop_before: int | None = None, seed: int = 3, **options):
    """Train to tell bright pictures from dark ones; a network, its losses."""
    torch.manual_seed(0)
    network = make_network(Config(), SIZE, 1)
    calls = 0

    def loss(random: np.random.Generator) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == stop_before:
            raise Stopped
        bright = random.integers(0, 2, 8)
        pictures = random.integers(0, 128, (8, 12, 16, 3)) + 64 * bright[:, None, None, None]
        logits = network(to_input(pictures.astype(np.uint8)))[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(bright).float())

    losses = train_network(network, loss, iterations, seed=seed, progress=False, **options)
    return network, losses


def test_the_loss_falls():
    network, losses = train(40)
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    assert not network.training


@pytest.mark.parametrize("stop_before", [4, 7, 10])
def test_a_run_that_was_stopped_ends_as_one_that_was_not_bit_by_bit(tmp_path: Path, stop_before: int):
    network, losses = train()
    checkpoint = tmp_path / "run.ck"
    with pytest.raises(Stopped):
        train(stop_before=stop_before, checkpoint=checkpoint, checkpoint_every=3)
    resumed, resumed_losses = train(checkpoint=checkpoint, checkpoint_every=3)
    assert resumed_losses == losses
    for name, value in network.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_finished_run_is_read_and_not_trained_again(tmp_path: Path):
    checkpoint = tmp_path / "run.ck"
    _, losses = train(checkpoint=checkpoint)
    _, again = train(checkpoint=checkpoint, stop_before=1)
    assert again == losses


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path):
    checkpoint = tmp_path / "run.ck"
    train(checkpoint=checkpoint, settings={"width": 4})
    for other in ({"seed": 4}, {"iterations": 13}, {"settings": {"width": 5}}):
        with pytest.raises(InputError, match="another training.*remove it"):
            train(**{"checkpoint": checkpoint, "settings": {"width": 4}, **other})
    checkpoint.write_bytes(b"no safetensors")
    with pytest.raises(StoreError, match="not a safetensors file"):
        train(checkpoint=checkpoint)


def test_a_loss_that_is_no_number_stops_the_run():
    weight = nn.Linear(1, 1)
    with pytest.raises(FloatingPointError, match="nan at iteration 0"):
        train_network(weight, lambda _: weight(torch.zeros(1)).sum() * torch.nan, 5, seed=0, progress=False)
    with pytest.raises(InputError, match="-1 iterations"):
        train_network(weight, lambda _: weight(torch.zeros(1)).sum(), -1, seed=0)


def test_a_network_comes_back_from_its_file(tmp_path: Path):
    path, network = tmp_path / "net.safetensors", make_network(Config(3), SIZE, 5)
    lags = np.arange(3, dtype=np.float32)
    save_network(path, "form-1", network, SIZE, Config(3), {"seed": 7}, integers={"out": 5}, calibration={"lags": lags})
    back, size, config, (read,) = load_network(
        path, "form-1", Config, make_network, integers=("out",), calibration=("lags",)
    )
    assert size == SIZE and config == Config(3) and not back.training
    np.testing.assert_array_equal(read, lags)
    for name, value in network.state_dict().items():
        assert torch.equal(value, back.state_dict()[name]), name


def test_a_file_of_anything_else_is_a_store_error(tmp_path: Path):
    path = tmp_path / "net.safetensors"
    read = {"file_format": "form-1", "config_type": Config, "make": make_network, "integers": ("out",)}
    with pytest.raises(StoreError, match="does not exist"):
        load_network(path, **read)
    network = make_network(Config(), SIZE, 5)
    save_network(path, "form-2", network, SIZE, Config(), integers={"out": 5})
    with pytest.raises(StoreError, match="'form-2': expected 'form-1'"):
        load_network(path, **read)
    good = {"format": "form-1", "size": json.dumps(SIZE), "config": '{"width": 4}', "out": "5"}
    tensors = load_file(path)
    save_file(tensors, path, good)
    load_network(path, **read)
    for wrong in ({"size": "[16]"}, {"config": '{"depth": 4}'}, {"config": "{"}, {"out": "6"}, {"out": "x"}):
        save_file(tensors, path, {**good, **wrong})
        with pytest.raises(StoreError, match="other contents"):
            load_network(path, **read)
    save_file(tensors, path, good)
    with pytest.raises(StoreError, match="other contents"):
        load_network(path, calibration=("lags",), **read)


def scripted(values: list[float], **options):
    """A weight that grows by training, whose held-out losses are these; the network, and how many updates it took."""
    torch.manual_seed(0)
    network, asked = nn.Linear(1, 1), iter(values)
    losses = train_network(
        network,
        lambda _: -network(torch.ones(1, 1)).sum(),
        20,
        seed=0,
        progress=False,
        validate=lambda: torch.tensor(next(asked)),
        check_every=2,
        **options,
    )
    return network, len(losses)


def test_training_stops_after_checks_without_improvement_and_keeps_the_best_weights():
    falling = [float(9 - check) for check in range(10)]
    assert scripted(falling, patience=2)[1] == 20
    best, updates = scripted([5, 3, 4, 3, 9, 9, 9, 9, 9, 9], patience=2)
    assert updates == 8  # the second check was the best one, the fourth was as good: no improvement
    patient, updates = scripted([5, 3, 4, 3, 9, 9, 9, 9, 9, 9], patience=10)
    assert updates == 20 and torch.equal(patient.weight, best.weight)
    assert not torch.equal(scripted(falling, patience=10)[0].weight, best.weight)
    assert torch.equal(scripted([5, 3, float("nan"), 4, 9, 9, 9, 9, 9, 9], patience=2)[0].weight, best.weight)


def test_without_patience_training_goes_to_its_end_and_keeps_the_last_weights():
    last, updates = scripted([])  # nothing is asked
    assert updates == 20
    assert torch.equal(scripted([float(9 - check) for check in range(10)], patience=10)[0].weight, last.weight)


@pytest.mark.parametrize("iterations", [1, 19, 20, 39, 41, 60])
def test_there_are_at_most_twenty_checks_so_that_a_patience_of_twenty_never_stops(iterations):
    network, asked = nn.Linear(1, 1), []

    def held_out() -> torch.Tensor:
        asked.append(1)
        return torch.tensor(float(len(asked)))  # the first check stays the best

    options = {"seed": 0, "progress": False, "validate": held_out, "patience": CHECKS}
    losses = train_network(network, lambda _: network(torch.ones(1, 1)).sum(), iterations, **options)
    assert len(losses) == iterations and 1 <= len(asked) <= CHECKS == 20


@pytest.mark.parametrize("checkpoint_every", [1, 3, 8])
def test_a_resumed_training_stops_where_an_uninterrupted_one_does(tmp_path: Path, checkpoint_every: int):
    """The held-out loss has its least value before the interruption."""

    def run(stop_before: int | None = None, **options):
        torch.manual_seed(0)
        network, calls = nn.Linear(1, 1), 0

        def loss(random: np.random.Generator) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls == stop_before:
                raise Stopped
            return -network(torch.full((1, 1), 1 + random.random())).sum()

        def held_out() -> torch.Tensor:
            return (network.weight.detach() - begin - 0.006).abs().sum()

        begin = network.weight.detach().clone()
        losses = train_network(
            network, loss, 60, seed=0, progress=False, validate=held_out, check_every=2, patience=4, **options
        )
        return network, losses

    network, losses = run()
    assert 10 < len(losses) < 60
    options = {"checkpoint": tmp_path / "run.ck", "checkpoint_every": checkpoint_every}
    with pytest.raises(Stopped):
        run(len(losses) - 1, **options)
    for _ in range(2):  # the second time there is nothing left to do
        resumed, resumed_losses = run(**options)
        assert resumed_losses == losses and torch.equal(resumed.weight, network.weight)
    with pytest.raises(InputError, match="another training"):
        train_network(nn.Linear(1, 1), lambda _: None, 60, seed=0, checkpoint=tmp_path / "run.ck")
    with pytest.raises(InputError, match="patience is -1"):
        train_network(nn.Linear(1, 1), lambda _: None, 60, seed=0, patience=-1)


@pytest.mark.parametrize("patience", [-1, 1.5, True])
def test_patience_is_a_whole_number(patience):
    with pytest.raises(InputError, match=f"patience is {patience}: expected a whole number, 0 or more"):
        train_network(nn.Linear(1, 1), lambda _: None, 1, seed=0, patience=patience, progress=False)
