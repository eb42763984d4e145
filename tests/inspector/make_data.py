"""Small memories of the three benchmarks, from short runs of the real thing, for tests of the inspector.

`python -m tests.inspector.make_data [point] [doom] [safety]` makes them anew in tests/data/inspector: NAME.sgm with
NAME.floor.json, NAME.episodes.npz and NAME.guarantee.json beside it. Images are made smaller and some attributes left
out, so that the files are small; everything else is as the run left it.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import sgm
from sgm.cli import main
from sgm.data.thumbnails import Images, thumbnails
from sgm.navigation.beside import EPISODES, FLOOR, GUARANTEE, Episode, read_episodes, write_episodes

DATA = Path(__file__).parents[1] / "data"
OUT = DATA / "inspector"
# The weights of PointEnv are those of the golden rows, so nothing is trained.
COMMANDS = {
    "point": "--iterations 100 --methods sorb+sgm --buffer-size 300 --episodes 12 --agents 20 --cleanup-steps 4000 "
    "--checkpoints 4000",
    "doom": "--pretrained --quick --methods sptm+sgm --buffer-episodes 2 --buffer-steps 130 --episode-steps 60 "
    "--tasks 3 --cleanup-steps 6000 --checkpoints 6000",
    "safety": "--pretrained --quick --workers 1 --methods two-way --policies first-failure --candidates 800 --nodes 90 "
    "--robots 20 --episode-steps 100 --cleanup-steps 6000 --checkpoints 6000",
}
LEFT_OUT = ("image", "embedding", "frame")
SIDE = {"doom": 24, "safety": 28}  # pixels of the longer side of thumbnails
IN_EPISODES = 24
EVALUATED, CLEANED = 6, 4


def make(name: str) -> None:
    """Run a benchmark, and keep the memory of its one method."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / name
        if name == "point":
            (out / "seed0").mkdir(parents=True)
            shutil.copy(DATA / "golden" / "point.safetensors", out / "seed0" / "weights.safetensors")
        assert main(["run", name, *COMMANDS[name].split(), "--no-progress", "--out", str(out)]) == 0
        (path,) = out.rglob("memory.sgm")
        memory = sgm.SparseGraphicalMemory.load(path, None)
        for attribute in set(LEFT_OUT) & set(memory.attributes):
            del memory.attributes[attribute]
        if name in SIDE:
            memory.attributes["thumbnail"] = coarse(thumbnails(memory.attributes["thumbnail"], SIDE[name]))
        OUT.mkdir(exist_ok=True)
        memory.save(OUT / f"{name}.sgm")
        for beside in (FLOOR, GUARANTEE):
            shutil.copy(path.with_name(beside), OUT / f"{name}.{beside}")
        (OUT / f"{name}.{EPISODES}").unlink(missing_ok=True)
        write_episodes(OUT / f"{name}.{EPISODES}", chosen(read_episodes(path)))
    print(name, memory, {file.name: file.stat().st_size for file in sorted(OUT.glob(f"{name}.*"))})


def chosen(episodes: list[Episode]) -> list[Episode]:
    """A few of each kind, first those in which an edge failed or the goal was reached, with smaller images."""
    found = []
    for kind, number in (("evaluation", EVALUATED), ("cleanup", CLEANED)):
        mine = [episode for episode in episodes if episode.kind == kind]
        mine.sort(key=lambda episode: (not episode.cuts, not episode.success, episode.gave_up is None))
        found += [*dict.fromkeys([*mine[: number - 1], *[each for each in mine if each.success][:1], *mine])][:number]
    return [dataclasses.replace(episode, images=smaller(episode)) for episode in found]


def coarse(images: Images) -> Images:
    """Images of 16 shades a colour, which take half of the room."""
    return np.asarray(images // 16 * 17, np.uint8)


def smaller(episode: Episode) -> dict[int, Images]:
    """Its images with fewer pixels."""
    return {step: coarse(thumbnails(image[None], IN_EPISODES)[0]) for step, image in episode.images.items()}


if __name__ == "__main__":
    for benchmark in sys.argv[1:] or COMMANDS:
        make(benchmark)
