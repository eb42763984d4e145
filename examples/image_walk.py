"""A memory from images alone: walks in folders, no actions, no positions; then plans between images.

Somebody walks through three rooms and takes pictures from above of what is around. Each walk is a folder of PNG files.
A distance is learned from the order of the pictures, the memory is built with settings chosen from the data, and a plan
between two pictures is written as a strip of the pictures on the way.

    pip install 'sparse-graphical-memory[learn,images]'
    python examples/image_walk.py

takes about two minutes on one core. As a command, with a page: sgm fit images:runs/image_walk/walks --out agent
"""

import argparse
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import sgm
from sgm.distances import regression

WIDTH, HEIGHT, VIEW, STEP = 336, 192, 48, 5.0  # pixels of the world, of what is seen, and of a step
ROOMS = ((112, 60, 92), (224, 100, 132))  # walls between the rooms: x, and from where to where the door is


def paint_world(seed: int = 0) -> Image.Image:
    """Three rooms with a floor of coloured blots, seen from above."""
    random = np.random.default_rng(seed)
    colours = random.integers(60, 230, (HEIGHT // 16, WIDTH // 16, 3), dtype=np.uint8)
    world = Image.fromarray(colours).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(world)
    pen.rectangle((0, 0, WIDTH - 1, HEIGHT - 1), outline=(20, 20, 20), width=6)
    for x, top, bottom in ROOMS:
        pen.rectangle((x - 3, 0, x + 3, top), fill=(20, 20, 20))
        pen.rectangle((x - 3, bottom, x + 3, HEIGHT), fill=(20, 20, 20))
    return world


def is_free(x: float, y: float) -> bool:
    """Whether one can stand there."""
    inside = 12 < x < WIDTH - 12 and 12 < y < HEIGHT - 12
    return inside and all(abs(x - wall) > 8 or top + 4 < y < bottom - 4 for wall, top, bottom in ROOMS)


def look(world: Image.Image, x: float, y: float) -> Image.Image:
    """The picture that is taken there: what is around, 32 × 32 pixels."""
    half = VIEW / 2
    view = world.crop((round(x - half), round(y - half), round(x + half), round(y + half)))
    return view.resize((32, 32), Image.Resampling.BOX)


def write_walks(folder: Path, walks: int, length: int, seed: int = 0) -> None:
    """A sub-folder of pictures for each walk, which begins somewhere and turns now and then."""
    world, random = paint_world(), np.random.default_rng(seed)
    for walk in range(walks):
        (folder / f"walk{walk}").mkdir(parents=True, exist_ok=True)
        x, y, heading = 0.0, 0.0, random.uniform(0, 2 * np.pi)
        while not is_free(x, y):
            x, y = random.uniform(0, WIDTH), random.uniform(0, HEIGHT)
        for frame in range(length):
            look(world, x, y).save(folder / f"walk{walk}" / f"{frame}.png")
            heading += random.normal(0, 0.25)
            while not is_free(x + STEP * np.cos(heading), y + STEP * np.sin(heading)):
                heading = random.uniform(0, 2 * np.pi)
            x, y = x + STEP * np.cos(heading), y + STEP * np.sin(heading)


def main(
    folder: Path = Path("runs/image_walk"), walks: int = 40, length: int = 120, iterations: int = 2_000, seed: int = 0
) -> sgm.Plan:
    """Write the walks, learn, build, plan from one end of the world to the other, and write the strip."""
    begin = time.monotonic()
    write_walks(folder / "walks", walks, length, seed)
    data = sgm.data.from_images(folder / "walks")
    print(data)

    distance = regression.train(data, iterations=iterations, seed=seed)
    print(f"{time.monotonic() - begin:.0f} s: distance trained, noise {distance.noise:.2f} steps")

    choice = sgm.choose(data, distance, seed=seed)
    print(choice)

    world = paint_world()
    start, goal = (np.asarray(look(world, *place)) for place in ((40, 150), (300, 40)))
    plan = choice.memory.plan(start, goal)
    print(plan)
    strip = np.concatenate([start, *plan.waypoints, goal], axis=1)
    Image.fromarray(strip).resize((4 * strip.shape[1], 4 * strip.shape[0]), 0).save(folder / "plan.png")
    print(f"{time.monotonic() - begin:.0f} s in all: the pictures on the way are in {folder / 'plan.png'}")
    return plan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/image_walk"), help="where pictures and plan are written"
    )
    parser.add_argument("--walks", type=int, default=40, help="walks")
    parser.add_argument("--length", type=int, default=120, help="pictures of a walk")
    parser.add_argument("--iterations", type=int, default=2_000, help="updates of the distance")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
