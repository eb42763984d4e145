"""The networks of a benchmark: trained once, shipped with the package, judged once."""

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
    """Train and save a network unless its file is there; an interrupted training resumes from a checkpoint beside it.

    Args:
        piece: whose network it is.
        path: the file.
        what: is trained, in words.
        train: from the path of the checkpoint to the network.
        save: writes the network; None: `network.save(path, facts)`, with facts about how it was made.
        facts: more of these.
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
        seconds = round(time.monotonic() - begin)  # of the last, uninterrupted part
        network.save(path, {**provenance(piece.command), "settings": settings, **facts, "seconds": seconds})
    checkpoint.unlink(missing_ok=True)


def learn_once(piece: Piece, folder: Path, kinds: Mapping[str, Any], train: Callable[[Piece, Path], None]) -> list[Any]:
    """The networks that come with the package, or those in a folder, of which those that are missing are trained.

    Args:
        piece: whose networks they are; `settings.pretrained` chooses.
        folder: where they are kept.
        kinds: their classes by name.
        train: trains what is not in the folder.
    """
    if piece.settings.pretrained:
        return shipped(piece.benchmark.name, kinds)
    if not all((folder / f"{name}.safetensors").exists() for name in kinds):
        train(piece, folder)
    return load_networks(folder, kinds)


def load_networks(folder: Path, kinds: Mapping[str, Any], prefix: str = "") -> list[Any]:
    """The networks of these classes in a folder, by name."""
    return [kind.load(folder / f"{prefix}{name}.safetensors") for name, kind in kinds.items()]


def shipped(benchmark: str, kinds: Mapping[str, Any]) -> list[Any]:
    """The networks of a benchmark that come with the package."""
    with as_file(files("sgm") / "weights") as folder:
        for name in kinds:
            if not (folder / f"{benchmark}-{name}.safetensors").exists():
                raise sgm.SGMError(
                    f"{benchmark}-{name}.safetensors is missing: train from scratch, sgm run {benchmark} --train"
                )
        return load_networks(folder, kinds, f"{benchmark}-")


def judge_once(piece: Piece, folder: Path, judge: Callable[[], dict[str, Any]]) -> None:
    """Write quality.json, how good the networks in a folder are, unless it is there, and say so."""
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
    """What `evaluate_distance` found, ready for JSON, with what is accepted at each recall by its name."""
    found: dict[str, Any] = quality.asdict()
    accepted = {str(item.pop("recall")): item for item in found.pop("accepted")}
    return {**found, "precision": accepted}
