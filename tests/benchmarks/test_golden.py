"""Short runs of the three benchmarks come out as recorded, to the last episode; see `golden.py`."""

from __future__ import annotations

import json
import warnings

import pytest

from tests.benchmarks import golden

NEEDED = {"point": ("torch",), "doom": ("torch", "vizdoom", "cv2"), "safety": ("torch", "mujoco", "threadpoolctl")}


@pytest.mark.parametrize("name", golden.COMMANDS)
def test_short_runs_come_out_as_recorded(name, tmp_path):
    for module in NEEDED[name]:
        pytest.importorskip(module)
    if name == "safety":
        from sgm.envs.safety import pool
        from sgm.envs.safety.worker import NoImages

        try:
            pool.check()
        except NoImages as error:
            pytest.skip(str(error))
    expected = json.loads((golden.DATA / f"{name}.json").read_text())
    if expected["arithmetic"] != golden.arithmetic():
        pytest.skip("this machine rounds differently from the one that the rows were recorded on")
    assert expected["commands"] == golden.COMMANDS[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nodes", category=UserWarning)  # so few jump over the target
        found = json.loads(json.dumps(golden.run(name, tmp_path / name)))
    for row, recorded in zip(found["rows"], expected["rows"], strict=True):
        assert row == recorded
    assert found["removed"] == expected["removed"]
