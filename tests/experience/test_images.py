"""Folders of images and videos become walks."""

from __future__ import annotations

import numpy as np
import pytest

import sgm
from sgm.data import from_images, load, save
from tests.experience.test_files import equal

Image = pytest.importorskip("PIL.Image")
FFMPEG = pytest.mark.filterwarnings("ignore::ResourceWarning")  # imageio leaves the pipes of its ffmpeg to Python


def picture(path, value, shape=(6, 8, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape, value, np.uint8)).save(path)


def firsts(data):
    return data.observations.reshape(len(data), -1)[:, 0].tolist()


def test_sub_folders_are_walks_in_natural_order(tmp_path):
    for walk, values in (("walk10", (7, 8)), ("walk2", (1, 2, 3))):
        for number, value in enumerate(values):
            picture(tmp_path / "in" / walk / f"{number * 9 + 1}.png", value)  # 1, 10, 19: as text 10 stands before 2
    picture(tmp_path / "in" / "walk2" / "2.PNG", 9)
    (tmp_path / "in" / "walk2" / ".hidden.png").write_text("not looked at")
    (tmp_path / "in" / "walk2" / "notes.txt").write_text("not looked at")
    data = from_images(tmp_path / "in")
    assert firsts(data) == [1, 9, 2, 3, 7, 8] and data.episodes.tolist() == [0, 0, 0, 0, 1, 1]
    assert data.observations.shape == (6, 6, 8, 3) and data.observations.dtype == np.uint8 and data.actions is None
    assert data.source == "images:in"
    save(data, tmp_path / "walks.npz")
    assert equal(load(tmp_path / "walks.npz"), data)


def test_images_in_the_folder_itself_are_one_walk_and_can_be_thinned(tmp_path):
    for number in range(11):
        picture(tmp_path / f"frame{number}.jpg", 20 * number, (6, 8))
    data = from_images(tmp_path, every=5)
    assert data.observations.shape == (3, 6, 8) and data.steps.tolist() == [0, 5, 10]
    assert np.abs(np.array(firsts(data)) - [0, 100, 200]).max() <= 2  # JPEG


def test_grey_images_become_colour_only_beside_colour_ones(tmp_path):
    picture(tmp_path / "a.png", 5, (6, 8))
    assert from_images(tmp_path).observations.shape == (1, 6, 8)
    picture(tmp_path / "b.png", 9, (6, 8, 4))
    data = from_images(tmp_path)
    assert data.observations.shape == (2, 6, 8, 3) and (data.observations[0] == 5).all()


def test_mixed_sizes_are_named_and_resized_on_request(tmp_path):
    picture(tmp_path / "a" / "1.png", 5)
    picture(tmp_path / "b" / "1.png", 9, (12, 10, 3))
    with pytest.raises(sgm.InputError, match=r"b/1.png is 10 × 12, .*a/1.png is 8 × 6: expected images of one size"):
        from_images(tmp_path)
    assert from_images(tmp_path, size=(4, 3)).observations.shape == (2, 3, 4, 3)
    assert firsts(from_images(tmp_path, size=5)) == [5, 9]


def test_photographs_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[:, :4] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    seen = from_images(tmp_path).observations
    assert seen.shape == (1, 8, 6, 3) and (seen[0, :4] == 255).all() and (seen[0, 4:] == 0).all()


@FFMPEG
def test_videos_are_walks(tmp_path):
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((32, 48, 3), value, np.uint8) for value in (10, 80, 150, 220)]
    (tmp_path / "one").mkdir()
    imageio.imwrite(tmp_path / "one" / "walk.mp4", np.stack(frames), fps=4, macro_block_size=1)
    for number, frame in enumerate(frames):
        (tmp_path / "two").mkdir(exist_ok=True)
        imageio.imwrite(tmp_path / "two" / f"{number}.png", frame)
    data = from_images(tmp_path)
    assert data.episodes.tolist() == [0] * 4 + [1] * 4 and data.observations.shape == (8, 32, 48, 3)
    assert np.abs(data.observations[:4].astype(int) - data.observations[4:]).max() < 8
    alone = from_images(tmp_path / "one" / "walk.mp4", size=(12, 8), every=2)
    assert alone.observations.shape == (2, 8, 12, 3) and alone.steps.tolist() == [0, 2]


@FFMPEG
def test_wrong_folders_and_files_are_named(tmp_path):
    with pytest.raises(sgm.InputError, match="nowhere does not exist"):
        from_images(tmp_path / "nowhere")
    with pytest.raises(sgm.InputError, match="has nothing: expected .avi"):
        from_images(tmp_path)
    picture(tmp_path / "a" / "1.png", 5)
    (tmp_path / "empty").mkdir()
    with pytest.raises(sgm.InputError, match="empty has no images.*delete it"):
        from_images(tmp_path)
    (tmp_path / "empty" / "1.png").write_text("no image")
    with pytest.raises(sgm.InputError, match="empty/1.png is no image"):
        from_images(tmp_path)
    Image.fromarray(np.zeros((6, 8), np.uint16)).save(tmp_path / "empty" / "1.png")
    with pytest.raises(sgm.InputError, match="holds I;16 pixels: expected 8-bit"):
        from_images(tmp_path)
    whole = (tmp_path / "a" / "1.png").read_bytes()
    (tmp_path / "empty" / "1.png").write_bytes(whole[:-30])
    with pytest.raises(sgm.InputError, match="empty/1.png cannot be read"):
        from_images(tmp_path)
    picture(tmp_path / "2.png", 5)
    with pytest.raises(sgm.InputError, match=r"and sub-folders \(a\)"):
        from_images(tmp_path)
    (tmp_path / "a" / "walk.mp4").write_text("no video")
    with pytest.raises(sgm.InputError, match="walk.mp4 is no video"):
        from_images(tmp_path / "a" / "walk.mp4")
    with pytest.raises(sgm.InputError, match="1.png is a file"):
        from_images(tmp_path / "a" / "1.png")
    for wrong in ((0, 3), (3,), "large"):
        with pytest.raises(sgm.InputError, match="size is"):
            from_images(tmp_path / "a", size=wrong)


def test_grey_and_transparent_animations_are_walks(tmp_path):
    pytest.importorskip("imageio.v3")
    frames = [np.full((6, 9), value, np.uint8) for value in (0, 90, 255)]
    first, *others = [Image.fromarray(frame) for frame in frames]
    first.save(tmp_path / "walk.gif", save_all=True, append_images=others)
    data = from_images(tmp_path)
    assert data.observations.shape[:3] == (3, 6, 9)
    assert [np.unique(frame).tolist() for frame in data.observations] == [[0], [90], [255]]


def test_large_experience_is_mapped_to_a_file_and_equal(tmp_path, monkeypatch):
    for number in range(5):
        picture(tmp_path / f"{number}.png", 40 * number, (6, 8, 4))
    small = from_images(tmp_path)
    assert small.observations.base is None and small.observations.shape == (5, 6, 8, 3)
    monkeypatch.setattr("sgm.data.images.LARGE", 5 * 6 * 8 * 3 - 1)
    large = from_images(tmp_path)
    assert isinstance(large.observations.base, np.memmap) and equal(large, small)


def test_a_disk_that_is_too_small_is_told(tmp_path, monkeypatch):
    picture(tmp_path / "1.png", 5)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sgm.data.images.LARGE", 10)
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(sgm.InputError, match=r"1 images need 0.0 GB in .*No space left.*TMPDIR"):
        from_images(tmp_path)


def test_frames_of_a_video_are_never_all_decoded_beside_the_result(tmp_path, monkeypatch):
    """At most one frame is alive at a time, besides the array."""
    import weakref

    alive, most = weakref.WeakSet(), [0]

    class Frame(np.ndarray):
        pass

    def frames(path):
        for value in range(20):
            frame = np.full((4, 4, 3), value, np.uint8).view(Frame)
            alive.add(Holder(frame))
            most[0] = max(most[0], len(alive))
            yield frame

    class Holder:
        def __init__(self, frame):
            frame.holder = self

    imageio = pytest.importorskip("imageio.v3")
    monkeypatch.setattr(imageio, "imiter", frames)
    (tmp_path / "walk.mp4").write_text("decoded by the function above")
    data = from_images(tmp_path)
    assert firsts(data) == list(range(20)) and most[0] <= 2
