"""A memory from images only: walks in folders, without actions and positions; then plans between images.

A camera moves through three rooms and takes images of the floor from above. Each walk is a folder of PNG files. A
distance is learned from the order of the images, the memory is built with settings chosen from the data, and a plan
between two images is written as a strip of the images along the path.

    pip install 'sparse-graphical-memory[learn,images]'
    python examples/image_walk.py

This takes about two minutes on one core. The same as a command, with a report:
sgm fit images:runs/image_walk/walks --out agent
"""

import argparse
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import sgm
from sgm.distances import regression

WIDTH, HEIGHT, VIEW, STEP = 336, 192, 48, 5.0  # size of the world, of the camera's view and of a step, pixels
ROOMS = ((112, 60, 92), (224, 100, 132))  # walls between the rooms: x, and top and bottom of the door, pixels


def paint_world(seed: int = 0) -> Image.Image:
    """Draw three rooms with a floor of coloured spots, from above."""
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
    """Whether a position is not in a wall."""
    inside = 12 < x < WIDTH - 12 and 12 < y < HEIGHT - 12
    return inside and all(abs(x - wall) > 8 or top + 4 < y < bottom - 4 for wall, top, bottom in ROOMS)


def look(world: Image.Image, x: float, y: float) -> Image.Image:
    """Take the image at a position: its surroundings, 32 × 32 pixels."""
    half = VIEW / 2
    view = world.crop((round(x - half), round(y - half), round(x + half), round(y + half)))
    return view.resize((32, 32), Image.Resampling.BOX)


def write_walks(folder: Path, walks: int, length: int, seed: int = 0) -> None:
    """Write a sub-folder of images for each walk, which starts at a random position and turns at random."""
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
    print(f"{time.monotonic() - begin:.0f} s in total: the images along the path are in {folder / 'plan.png'}")
    return plan


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/image_walk"), help="folder for the images and the plan"
    )
    parser.add_argument("--walks", type=int, default=40, help="number of walks")
    parser.add_argument("--length", type=int, default=120, help="images of a walk")
    parser.add_argument("--iterations", type=int, default=2_000, help="updates of the distance")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
