"""Experience from folders of images and from videos: walks, without actions."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError, MissingExtra, printable

from .experience import Experience

IMAGES = {".png", ".jpg", ".jpeg"}
VIDEOS = {".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif", ".m4v"}
LARGE = 2**30  # bytes of images above which they are mapped to a file
_GREY = {"1", "L", "LA"}  # Pillow's modes
_COLOUR = {"RGB", "RGBA", "P", "PA", "CMYK", "YCbCr"}
_SIDEWAYS = {5, 6, 7, 8}  # orientations of photographs that swap width and height
_ORIENTATION = 274  # the EXIF tag that says so


class _Frame(NamedTuple):
    """Size and type of an image file, from its header."""

    path: Path
    size: tuple[int, int]
    grey: bool


class _Video(NamedTuple):
    """Size, type and number of the frames of a video file, from decoding it once."""

    path: Path
    size: tuple[int, int]
    grey: bool
    frames: int


def from_images(
    folder: str | os.PathLike[str],
    size: int | tuple[int, int] | None = None,
    *,
    every: int = 1,
    skip_empty: bool = False,
) -> Experience:
    """Walks from a folder: each sub-folder of images is one, in the order of their names (2.png before 10.png).

    Images that are directly in the folder are one walk. Each video file is a walk too; a path to one is accepted in the
    place of a folder. There are no actions: a distance, a memory and plans need none, a controller does.

    Images are decoded one by one into one array. If it is larger than `LARGE` bytes, it is not in memory but mapped to
    a temporary file, which is deleted when the array is. Videos are decoded twice: to count their frames, and to keep
    them.

    Args:
        folder: with PNG or JPEG images, grey or colour, in sub-folders or not; or with videos. Transparency is dropped.
        size: width and height to resize to, or one number for both; None: images must be of one size.
        every: keep every n-th image; `steps` then tell how many lie between.
        skip_empty: leave out sub-folders without images beside others, see `empty_folders`; otherwise they are refused.

    Returns:
        Experience with (n, height, width) uint8 observations if all images are grey, else (n, height, width, 3).
    """
    root, wanted = Path(folder), _checked_size(size)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InputError(f"every is {every!r}: expected a whole number, 1 or more")
    _require_pillow()
    walks = [
        [_count(walk, every)] if isinstance(walk, Path) else [_look(path) for path in walk[::every]]
        for walk in _walks(root, empty_folders(root) if skip_empty else [])
    ]
    side, grey = _common([part for walk in walks for part in walk], wanted)
    lengths = [sum(part.frames if isinstance(part, _Video) else 1 for part in walk) for walk in walks]
    observations = _room((sum(lengths), side[1], side[0], *(() if grey else (3,))))
    row = 0
    for part in (part for walk in walks for part in walk):
        for values in _decoded(part, side, grey, every):
            observations[row] = values[..., None] if values.ndim == 2 and not grey else values
            row += 1
    steps = np.concatenate([np.arange(length) * every for length in lengths])
    source = f"images:{printable(root.name or str(root.resolve().name))}"
    return Experience(observations, np.repeat(np.arange(len(lengths)), lengths), steps=steps, source=source)


def _room(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Allocate an uninitialised uint8 array; a large one is mapped to an anonymous temporary file."""
    needed = int(np.prod(shape, dtype=object))
    if needed <= LARGE:
        return np.empty(shape, np.uint8)
    with tempfile.TemporaryFile() as file:
        try:
            # Otherwise a full disk would end the process in the middle of the work.
            os.posix_fallocate(file.fileno(), 0, needed)
        except OSError as error:
            raise InputError(
                f"{shape[0]:,} images need {needed / 1e9:.1f} GB in {tempfile.gettempdir()}: {error}; give "
                "size= or every= to keep less, or set TMPDIR to a folder on a larger disk"
            ) from error
        return np.memmap(file, np.uint8, "r+", shape=shape)


def _natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key that orders numbers within names by value."""
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


def empty_folders(root: Path) -> list[Path]:
    """Sub-folders without images or videos of their own, if others have some."""
    if not root.is_dir():
        return []
    folders = sorted((path for path in root.iterdir() if path.is_dir() and path.name[0] != "."), key=_natural)
    empty = [path for path in folders if not _walks_in(list(path.iterdir()))]
    return empty if len(empty) < len(folders) else []


def _walks(root: Path, left_out: Sequence[Path]) -> list[list[Path] | Path]:
    """List the image files of each walk in order, or its video file."""
    if root.is_file():
        if root.suffix.lower() not in VIDEOS:
            raise InputError(f"{root} is a file: expected a folder of images, or a video ({', '.join(sorted(VIDEOS))})")
        return [root]
    if not root.is_dir():
        raise InputError(f"{root} does not exist: expected a folder with images, or with a sub-folder for each walk")
    inside = sorted((path for path in root.iterdir() if not path.name.startswith(".")), key=_natural)
    folders = [path for path in inside if path.is_dir() and path not in left_out]
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
    """Read size and type of an image from its header."""
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


def _count(path: Path, every: int) -> _Video:
    """Count the frames of a video that are kept, and read their size and type."""
    frames = 0
    shape: tuple[int, ...] = ()
    for frame in _frames(path, every):
        if frames and frame.shape != shape:
            raise InputError(f"{path} has frames of shapes {shape} and {frame.shape}: expected one size")
        frames, shape = frames + 1, frame.shape
    if not frames:
        raise InputError(f"{path} has no frames: expected 1 or more; delete it")
    return _Video(path, (shape[1], shape[0]), len(shape) == 2, frames)


def _decoded(part: _Frame | _Video, size: tuple[int, int], grey: bool, every: int) -> Iterator[NDArray[np.uint8]]:
    """Yield the images of a file, resized to one size."""
    if isinstance(part, _Frame):
        yield _pixels(part.path, size, grey)
        return
    from PIL import Image

    number = 0
    for number, frame in enumerate(_frames(part.path, every), 1):
        if number <= part.frames:
            yield frame if part.size == size else _resized(Image.fromarray(frame), size)
    if number != part.frames:
        raise InputError(f"{part.path} had {part.frames} frames and now {number}: it was changed while it was read")


def _frames(path: Path, every: int) -> Iterator[NDArray[np.uint8]]:
    """Every n-th frame of a video, (height, width) or (height, width, 3)."""
    try:
        import imageio.v3 as imageio
    except ModuleNotFoundError as error:
        raise MissingExtra("reading videos", "images", error) from error
    number = 0
    try:
        for number, frame in enumerate(imageio.imiter(path)):
            if number % every == 0:
                pixels = np.asarray(frame, np.uint8)
                yield pixels[..., :3] if pixels.ndim == 3 else pixels
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise InputError(f"{path} is no video that can be read (after {number} frames): {error}") from error


def _common(parts: Sequence[_Frame | _Video], wanted: tuple[int, int] | None) -> tuple[tuple[int, int], bool]:
    """Width and height of all images, and whether all are grey; InputError that names the first one that differs."""
    first = parts[0]
    for part in parts:
        if wanted is None and part.size != first.size:
            raise InputError(
                f"{part.path} is {part.size[0]} × {part.size[1]}, {first.path} is {first.size[0]} × {first.size[1]}: "
                "expected images of one size, or size=(width, height) to resize them to"
            )
    return wanted or first.size, all(part.grey for part in parts)


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
