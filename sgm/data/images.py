"""Experience from folders of images and from videos: walks, without actions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, MissingExtra, printable

from .experience import Experience

IMAGES = {".png", ".jpg", ".jpeg"}
VIDEOS = {".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif", ".m4v"}
_GREY = {"1", "L", "LA"}  # Pillow's modes
_COLOUR = {"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr"}
_SIDEWAYS = {5, 6, 7, 8}  # orientations of photographs that swap width and height
_ORIENTATION = 274  # the EXIF tag that says so


class _Frame(NamedTuple):
    """An image file, as its header describes it."""

    path: Path
    size: tuple[int, int]
    grey: bool


def from_images(
    folder: str | os.PathLike[str], size: int | tuple[int, int] | None = None, *, every: int = 1
) -> Experience:
    """Walks from a folder: each sub-folder of images is one, in the order of their names (2.png before 10.png).

    Images that are directly in the folder are one walk. Each video file is a walk too; a path to one is accepted in the
    place of a folder. There are no actions: a distance, a memory and plans need none, a controller does.

    Args:
        folder: with PNG or JPEG images, grey or colour, in sub-folders or not; or with videos.
        size: width and height to resize to, or one number for both; None: images must be of one size.
        every: keep each so many-th image; `steps` then tell how many lie between.

    Returns:
        Experience with (n, height, width) uint8 observations if all images are grey, else (n, height, width, 3).
    """
    root, wanted = Path(folder), _checked_size(size)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"every is {every!r}: expected a whole number, 1 or more")
    _require_pillow()
    walks = _walks(root)
    read: list[list[NDArray[np.uint8]] | list[_Frame]] = [
        list(_video_frames(walk, wanted, every)) if isinstance(walk, Path) else [_look(path) for path in walk[::every]]
        for walk in walks
    ]
    side, grey = _common(read, walks, wanted)
    lengths = [len(walk) for walk in read]
    observations = np.empty((sum(lengths), side[1], side[0], *(() if grey else (3,))), np.uint8)
    row = 0
    for walk in read:
        for frame in walk:
            values = frame if isinstance(frame, np.ndarray) else _pixels(frame.path, side, grey)
            observations[row] = values[..., None] if values.ndim == 2 and not grey else values
            row += 1
        walk.clear()
    steps = np.concatenate([np.arange(length) * every for length in lengths])
    source = f"images:{printable(root.name or str(root.resolve().name))}"
    return Experience(observations, np.repeat(np.arange(len(lengths)), lengths), steps=steps, source=source)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """A key that sorts numbers within names by their value."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


def _walks(root: Path) -> list[list[Path] | Path]:
    """Of each walk its image files in order, or its video file."""
    if root.is_file():
        if root.suffix.lower() not in VIDEOS:
            raise InputError(f"{root} is a file: expected a folder of images, or a video ({', '.join(sorted(VIDEOS))})")
        return [root]
    if not root.is_dir():
        raise InputError(f"{root} does not exist: expected a folder with images, or with a sub-folder for each walk")
    inside = sorted((path for path in root.iterdir() if not path.name.startswith(".")), key=_natural)
    folders = [path for path in inside if path.is_dir()]
    own = _walks_in(inside)
    if own and folders:
        raise InputError(
            f"{root} has images or videos and sub-folders ({folders[0].name}): expected one or the other; move the "
            "images into a sub-folder of their own"
        )
    walks = list(own)
    for folder in folders:
        found = _walks_in(sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=_natural))
        if not found:
            raise InputError(
                f"{folder} has no images: expected PNG or JPEG files, or a video, in each sub-folder; delete it, or "
                "give it as the folder if the walks are within it"
            )
        walks.extend(found)
    if not walks:
        names = ", ".join(path.name for path in inside[:5]) or "nothing"
        raise InputError(f"{root} has {printable(names)}: expected {', '.join(sorted(IMAGES | VIDEOS))} files")
    return walks


def _walks_in(paths: list[Path]) -> list[list[Path] | Path]:
    images = [path for path in paths if path.suffix.lower() in IMAGES and path.is_file()]
    videos = [path for path in paths if path.suffix.lower() in VIDEOS and path.is_file()]
    return [*([images] if images else []), *videos]


def _look(path: Path) -> _Frame:
    """Size and kind of an image, from its header."""
    with _opened(path) as image:
        width, height = image.size
        known = image.format != "PNG" or "exif" in image.info  # Pillow would decode a PNG to look for it at its end
        if known and image.getexif().get(_ORIENTATION) in _SIDEWAYS:
            width, height = height, width
        if image.mode not in _GREY | _COLOUR:
            raise InputError(f"{path} holds {image.mode} pixels: expected 8-bit grey or colour; convert it first")
        return _Frame(path, (width, height), image.mode in _GREY)


def _pixels(path: Path, size: tuple[int, int], grey: bool) -> NDArray[np.uint8]:
    from PIL import ImageOps

    with _opened(path) as image:
        try:
            upright: Any = ImageOps.exif_transpose(image).convert("L" if grey else "RGB")
        except (OSError, ValueError, SyntaxError) as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        return _resized(upright, size)


def _resized(image: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    from PIL import Image

    if image.size != size:
        image = image.resize(size, Image.Resampling.BOX if min(image.size) > min(size) else Image.Resampling.BILINEAR)
    return np.asarray(image)


def _opened(path: Path) -> Any:
    from PIL import Image

    try:
        return Image.open(path)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} is no image that can be read: {error}") from error


def _video_frames(path: Path, size: tuple[int, int] | None, every: int) -> Iterator[NDArray[np.uint8]]:
    """The frames of a video, (height, width) or (height, width, 3)."""
    try:
        import imageio.v3 as imageio
    except ModuleNotFoundError as error:
        raise MissingExtra("reading videos", "images", error) from error
    from PIL import Image

    number = 0
    try:
        for number, frame in enumerate(imageio.imiter(path)):
            if number % every == 0:
                pixels = np.asarray(frame, np.uint8)[..., :3]
                yield pixels if size is None else _resized(Image.fromarray(pixels), size)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise InputError(f"{path} is no video that can be read (after {number} frames): {error}") from error


def _common(read: list[Any], walks: list[Any], wanted: tuple[int, int] | None) -> tuple[tuple[int, int], bool]:
    """Width and height of all images, and whether all are grey; InputError that names the first one that differs."""
    first: tuple[Any, tuple[int, int]] | None = None
    all_grey = True
    for frames, walk in zip(read, walks, strict=True):
        if not frames:
            raise InputError(f"{walk} has no frames: expected 1 or more; delete it")
        for frame in frames:
            video = isinstance(frame, np.ndarray)
            name, size = (walk, frame.shape[1::-1]) if video else (frame.path, frame.size)
            all_grey &= frame.ndim == 2 if video else frame.grey
            first = first or (name, size)
            if wanted is None and size != first[1]:
                raise InputError(
                    f"{name} is {size[0]} × {size[1]}, {first[0]} is {first[1][0]} × {first[1][1]}: expected images of "
                    "one size, or size=(width, height) to resize them to"
                )
    assert first is not None
    return wanted or first[1], all_grey


def _checked_size(size: Any) -> tuple[int, int] | None:
    sides = (size, size) if isinstance(size, int) else size
    if sides is None:
        return None
    if not (
        isinstance(sides, (tuple, list)) and len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    ):
        raise InputError(f"size is {size!r}: expected (width, height) in pixels, one number for both, or None")
    return sides[0], sides[1]


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("reading images", "images", error) from error
