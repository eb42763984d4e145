"""Networks of a benchmark: train them once or load the shipped ones, and measure their quality once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import sgm

from .base import Piece
from .provenance import provenance
from .results import read_quality, write_json


def train_once(
    piece: Piece,
    path: Path,
    what: str,
    train: Callable[[Path], Any],
    save: Callable[[Any], None] | None = None,
    **facts: Any,
) -> None:
    """Train and save a network unless its file exists; interrupted training resumes from a checkpoint beside the file.

    Args:
        piece: the piece that uses the network.
        path: file of the network.
        what: description of the network, for the progress message.
        train: path of the checkpoint to the trained network.
        save: writes the network; None: `network.save(path, facts)`, with facts about the training.
        facts: further facts to store.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    piece.say(f"training the {what}")
    begin, checkpoint = time.monotonic(), path.with_stem(f"{path.stem}-checkpoint")
    network = train(checkpoint)
    if save is not None:
        save(network)
    else:
        settings = dataclasses.asdict(piece.settings)
        seconds = round(time.monotonic() - begin)  # since the last interruption
        network.save(path, {**provenance(piece.command), "settings": settings, **facts, "seconds": seconds})
    checkpoint.unlink(missing_ok=True)


def learn_once(piece: Piece, folder: Path, kinds: Mapping[str, Any], train: Callable[[Piece, Path], None]) -> list[Any]:
    """Load the networks shipped with the package, or those in a folder, after training the missing ones.

    Args:
        piece: the piece that uses them; `settings.pretrained` selects the shipped networks.
        folder: folder of trained networks.
        kinds: classes of the networks by name.
        train: trains the networks that the folder does not hold.
    """
    if piece.settings.pretrained:
        return shipped(piece.benchmark.name, kinds)
    if not all((folder / f"{name}.safetensors").exists() for name in kinds):
        train(piece, folder)
    return load_networks(folder, kinds)


def load_networks(folder: Path, kinds: Mapping[str, Any], prefix: str = "") -> list[Any]:
    """Load the networks of these classes from a folder, in the same order."""
    return [kind.load(folder / f"{prefix}{name}.safetensors") for name, kind in kinds.items()]


def shipped(benchmark: str, kinds: Mapping[str, Any]) -> list[Any]:
    """Load the networks of a benchmark that are shipped with the package."""
    with as_file(files("sgm") / "weights") as folder:
        for name in kinds:
            if not (folder / f"{benchmark}-{name}.safetensors").exists():
                raise sgm.SGMError(
                    f"{benchmark}-{name}.safetensors is missing: train from scratch with sgm run {benchmark} --train"
                )
        return load_networks(folder, kinds, f"{benchmark}-")


def judge_once(piece: Piece, folder: Path, judge: Callable[[], dict[str, Any]]) -> None:
    """Measure the quality of the networks in a folder, write quality.json and print it, unless the file exists."""
    if read_quality(folder) is not None:
        return
    judged = judge()
    write_json(folder / "quality.json", judged)
    distance = judged["distance"]
    false = [
        f"{item['false']:.1%} false at {float(recall):.0%} recall" for recall, item in distance["precision"].items()
    ]
    parts = [f"distance: AUC {distance['auc']:.3f}", *(f"across rollouts {text}" for text in false)]
    if fitted := distance.get("calibration"):
        parts.append(f"c = {fitted['c']:.2f}, T = {fitted['T']:.2f}")
    if "controller" in judged:
        parts.append(f"controller: {judged['controller']['accuracy']['1']:.0%} at 1 step")
    piece.say(", ".join(parts))


def by_recall(quality: Any) -> dict[str, Any]:
    """Result of `evaluate_distance` as JSON values, with precision by recall."""
    found: dict[str, Any] = quality.asdict()
    accepted = {str(item.pop("recall")): item for item in found.pop("accepted")}
    return {**found, "precision": accepted}
