"""Encoders of pictures: their shapes, and that inference is what was trained."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from sgm.errors import InputError  # noqa: E402
from sgm.learning.encoders import (  # noqa: E402
    Standardised,
    check_pictures,
    check_rollouts,
    check_vectors,
    digest,
    for_inference,
    make_encoder,
    run,
    to_input,
)


def pictures(count: int, size: tuple[int, int] = (16, 12), channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size[1], size[0], channels), np.uint8)


def unlike_new(network: torch.nn.Module) -> torch.nn.Module:
    """The same with normalisation that does something, as after training."""
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for values in (module.weight.data, module.running_var):
                values.uniform_(0.5, 2)
            for values in (module.bias.data, module.running_mean):
                values.normal_()
    return network.eval()


@pytest.mark.parametrize("kind", ["small", "resnet18"])
@pytest.mark.parametrize("size", [(16, 12), (33, 17)])
def test_folded_inference_is_the_network_in_eval_mode(kind, size):
    network = unlike_new(make_encoder(kind, 3, size, 7, width=4))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.inference_mode():
        expected = network(to_input(pictures(5, size))).numpy()
    result = run(for_inference(network), pictures(5, size), batch=2)
    assert result.shape == (5, 7) and result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-4 * np.abs(expected).max())
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_resnet18_is_the_published_one():
    network = make_encoder("resnet18", 3, (160, 120), 512)
    assert sum(p.numel() for p in network[:-1].parameters()) == 11_176_512  # torchvision's without its classifier
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, 120, 160)).shape == (2, 512)
        assert network[:-3](torch.zeros(1, 3, 120, 160)).shape == (1, 512, 4, 5)


def test_the_small_encoder_tells_where_in_the_picture_something_is():
    torch.manual_seed(0)
    network = for_inference(unlike_new(make_encoder("small", 9, (80, 60), 5)))
    empty = np.zeros((2, 60, 80, 9), np.uint8)
    empty[0, 20:28, 8:16] = empty[1, 20:28, 40:48] = 255
    left, right = run(network, empty)
    assert np.abs(left - right).max() > 1e-3


def test_pixels_become_numbers_from_minus_one_to_one():
    result = to_input(np.array([[[[0, 51, 255]]]], np.uint8))
    np.testing.assert_allclose(result.flatten(), [-1, -0.6, 1], atol=1e-6)


def test_read_only_and_strided_pictures_and_no_pictures_are_fine():
    network = for_inference(make_encoder("small", 3, (16, 12), 4, width=2))
    frozen = pictures(6)
    frozen.setflags(write=False)
    np.testing.assert_allclose(run(network, frozen[::2]), run(network, frozen)[::2], atol=1e-5)
    assert run(network, frozen[:0]).shape == (0, 4)


def test_wrong_names_sizes_and_types_say_what_is_expected():
    with pytest.raises(InputError, match="'resnet'.*'small' or 'resnet18'"):
        make_encoder("resnet", 3, (16, 12), 4)
    for wrong in (pictures(2, (12, 16)), pictures(2).astype(float), pictures(2)[0], pictures(2, channels=4)):
        with pytest.raises(InputError, match=r"\(n, 12, 16, 3\)"):
            check_pictures(wrong, (16, 12))
    for wrong in (pictures(2), pictures(2)[None].astype(float), pictures(0)[None], 3):
        with pytest.raises(InputError, match="episodes, images, height, width, 3"):
            check_rollouts(wrong, 1)
    with pytest.raises(InputError, match="2 images: expected at least 5"):
        check_rollouts(pictures(2)[None], 5)
    assert check_rollouts(pictures(2)[None], 2) == (1, 2, (16, 12))


def test_grey_images_and_images_of_floats_are_taken_as_colour_images():
    grey = pictures(2, channels=1)
    expected = np.repeat(grey, 3, axis=3)
    for images in (grey, grey[..., 0], (grey / 255).astype(np.float32), expected / 255):
        np.testing.assert_array_equal(check_pictures(images, (16, 12)), expected)


def test_vectors_are_flattened_and_must_be_as_many_finite_numbers():
    vectors = check_vectors(np.ones((3, 2, 2)), 4)
    assert vectors.shape == (3, 4) and vectors.dtype == np.float32
    assert check_vectors(pictures(2), 576).dtype == np.uint8
    with pytest.raises(InputError, match=r"goals are float64 of shape \(3, 5\): expected numbers \(n, 4\)"):
        check_vectors(np.ones((3, 5)), 4, "goals")
    with pytest.raises(InputError, match="not finite"):
        check_vectors([[np.nan, 0.0]], 2)


@pytest.mark.parametrize("shape", [(4,), (3, 12, 16)])
def test_inputs_are_standardised_and_what_does_not_vary_stays_finite(shape):
    inputs = 5 + 3 * torch.randn(2000, *shape, generator=torch.Generator().manual_seed(0))
    inputs[:, 0] = 7
    network = Standardised(shape, torch.nn.Identity())
    assert torch.equal(network(inputs), inputs)
    network.measure(inputs)
    result = network(inputs)
    assert torch.isfinite(result).all() and abs(float(result.mean())) < 0.01
    assert float(result[:, 1:].std()) == pytest.approx(1, abs=0.3)


def test_the_digest_is_of_weights_and_arrays():
    torch.manual_seed(0)
    a, b = (make_encoder("small", 3, (16, 12), 4, width=2) for _ in range(2))
    digests = {digest(a), digest(b), digest(a, np.zeros(2)), digest(a, np.ones(2))}
    assert len(digests) == 4 and digest(a) in digests


def test_a_missing_framework_is_named_with_the_extra_that_has_it():
    code = "import sys; sys.modules['torch'] = None; import sgm.learning.encoders"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "sparse-graphical-memory[learn]" in result.stderr
