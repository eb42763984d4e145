"""The files of learned distances: the names of their formats and arrays never change."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors")

from sgm.distances.contrastive import ContrastiveConfig, ContrastiveDistance  # noqa: E402
from sgm.distances.learned import LearnedDistance  # noqa: E402
from sgm.distances.quasimetric import QuasimetricConfig, QuasimetricDistance  # noqa: E402
from sgm.distances.regression import RegressionConfig, RegressionDistance  # noqa: E402
from sgm.distances.sptm import ClosenessConfig, ClosenessDistance  # noqa: E402
from sgm.learning.loop import save_network  # noqa: E402

# Class, configuration, name of the format, and of the array beside the lags, in files of every version.
FILES = [
    (RegressionDistance, RegressionConfig, "sgm-regression-1", "levels"),
    (QuasimetricDistance, QuasimetricConfig, "sgm-quasimetric-1", "levels"),
    (ContrastiveDistance, ContrastiveConfig, "sgm-contrastive-1", "cosines"),
    (ClosenessDistance, ClosenessConfig, "sgm-closeness-1", "logits"),
]
LAGS = np.array([0, 2, 7], np.float32)


def untrained(kind: type[LearnedDistance], config: type) -> LearnedDistance:
    torch.manual_seed(0)
    settings = config(encoder="mlp", width=8, embedding=8)
    return kind(kind.network_type(settings, (3, 0)), (3, 0), settings)


def contents(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Metadata and arrays of a safetensors file."""
    with safetensors.safe_open(path, framework="np") as file:
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


@pytest.mark.parametrize(("kind", "config", "file_format", "values"), FILES)
@pytest.mark.parametrize("noise", [0.5, math.nan])
def test_files_of_earlier_versions_are_read_and_written_as_they_were(
    kind, config, file_format, values, noise, tmp_path: Path
):
    distance = untrained(kind, config)
    curve = np.array([0, 1, 4] if values == "levels" else [4, 1, 0], np.float32)
    calibration = {"lags": LAGS, values: curve}
    if not math.isnan(noise):
        calibration["noise"] = np.array([noise], np.float32)
    old, new = tmp_path / "old.safetensors", tmp_path / "new.safetensors"
    save_network(old, file_format, distance.network, (3, 0), distance.config, {"by": "hand"}, calibration=calibration)
    loaded = kind.load(old)
    np.testing.assert_array_equal(loaded.lags, LAGS)
    np.testing.assert_array_equal(getattr(loaded, values), curve)
    np.testing.assert_equal(loaded.noise, noise)
    assert loaded.far == 7 and loaded.fingerprint != distance.fingerprint
    loaded.save(new, {"by": "hand"})
    assert contents(new) == contents(old)
