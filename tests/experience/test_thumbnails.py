"""Thumbnails: the mean of what they stand for, small enough for every node."""

from __future__ import annotations

import numpy as np
import pytest

from sgm.data.thumbnails import ROOM, are_images, side_for, size_within, thumbnails


def test_a_pixel_is_the_mean_of_its_area():
    image = np.random.default_rng(0).integers(0, 256, (1, 64, 128, 3), dtype=np.uint8)
    small = thumbnails(image, 32)
    assert small.shape == (1, 16, 32, 3) and small.dtype == np.uint8
    exact = image.reshape(1, 16, 4, 32, 4, 3).mean(axis=(2, 4))
    assert np.abs(small - exact).max() <= 0.51


def test_grey_images_and_floats_become_three_colours():
    grey = np.random.default_rng(0).random((2, 30, 20), np.float32)
    small = thumbnails(grey, 64)
    assert small.shape == (2, 30, 20, 3) and (small[..., 0] == small[..., 2]).all()
    assert np.abs(small[..., 0] - grey * 255).max() <= 0.51
    assert (thumbnails(grey[..., None], 64) == small).all()


def test_nothing_is_made_larger_and_sides_that_do_not_divide_work():
    assert size_within((60, 80), 64) == (48, 64) and size_within((10, 20), 64) == (10, 20)
    flat = np.full((3, 37, 53, 3), 200, np.uint8)
    assert (thumbnails(flat, 24) == 200).all()


@pytest.mark.parametrize(("number", "side"), [(100, 64), (900, 64), (2_000, 48), (5_000, 32), (50_000, 24)])
def test_many_thumbnails_are_smaller(number, side):
    assert side_for(number, (64, 64, 3)) == side
    height, width = size_within((64, 64), side)
    assert number * height * width * 3 <= ROOM or side == 24


def test_tables_of_numbers_are_no_images():
    assert are_images(np.zeros((5, 20, 20, 3), np.uint8)) and are_images(np.zeros((5, 20, 20)))
    for other in (
        np.zeros((5, 20)),
        np.zeros((5, 4, 84, 84), np.uint8),
        np.full((5, 20, 20), 7.0),
        np.zeros((5, 3, 3)),
    ):
        assert not are_images(other)
