"""The notebooks of the site run, and show what they show."""

from __future__ import annotations

import json
import re

import pytest

from tests.test_site import DOCS, module

pytest.importorskip("nbclient")
notebooks = module(DOCS / "notebooks.py")

QUICK = ["tutorials/first-memory", "tutorials/false-edge", "explanation/cleanup"]  # run as they are, outputs compared
SMALL = {  # run with less of everything
    "tutorials/own-environment": (
        ("gymnasium_robotics", "torch"),
        {"STEPS": 2_000, "ITERATIONS": 10, "EPISODES": 2, "ROBOTS": 4},
    ),
    "tutorials/image-walk": (("torch", "PIL"), {"WALKS": 8, "LENGTH": 30, "ITERATIONS": 10}),
    "tutorials/million": ((), {"OBSERVATIONS": 10_000, "BLOCK": 500}),
    "explanation/guarantee": (("torch", "ogbench"), {"ITERATIONS": 20, "OBSERVATIONS": 200}),
}


def test_every_notebook_is_run_by_a_test():
    assert sorted([*QUICK, *SMALL]) == notebooks.names()


@pytest.mark.parametrize("name", [*QUICK, *SMALL])
def test_outputs_are_kept_small_and_without_what_differs_from_run_to_run(name):
    path = DOCS / f"{name}.ipynb"
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert path.stat().st_size < 150_000
    code = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs, "the notebook has not been run: make notebooks"
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert all(cell["execution_count"] is None for cell in code)
    assert not re.search(r"/(tmp|home|root|work)/", json.dumps(outputs))


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_notebook_prints_what_it_is_kept_with(name):
    pytest.importorskip("matplotlib")
    assert notebooks.text(notebooks.run(name)) == notebooks.text(notebooks.read(name))


@pytest.mark.parametrize("name", SMALL)
def test_a_longer_notebook_runs_with_less_of_everything(name):
    needs, parameters = SMALL[name]
    for package in ("matplotlib", *needs):
        pytest.importorskip(package)
    assert notebooks.text(notebooks.run(name, **parameters))
