"""Short runs of all three benchmarks, whose rows must stay the same: every method, policy, agent and phase.

`python -m tests.benchmarks.golden` records them anew, which only a declared change of behaviour does.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.cli import main

DATA = Path(__file__).parents[1] / "data" / "golden"
_POINT = "--iterations 100 --episodes 20 --buffer-size 400 --cleanup-steps 3000 --checkpoints 1000 --agents 20"
_DOOM = "--pretrained --quick --methods random controller sptm dense sptm+sgm ours ours-random-goals"
_SAFETY = "--pretrained --quick --workers 1"
_CRITERIA = "--methods consptm uniform perceptual incoming outgoing two-way both --policies first-failure"
_POLICIES = "--methods two-way --policies second-failure belief guarded"
COMMANDS = {"point": [_POINT], "doom": [_DOOM], "safety": [f"{_SAFETY} {_CRITERIA}", f"{_SAFETY} {_POLICIES}"]}
_CLOCK = ("seconds_per_action", "cleanup_seconds")


def run(name: str, out: Path) -> dict[str, Any]:
    """Run a benchmark into a folder; its rows without times, and the edges that cleanup removed from each memory."""
    if name == "point":  # thirty thousand iterations of training are too long for a test
        (out / "seed0").mkdir(parents=True)
        shutil.copy(DATA / "point.safetensors", out / "seed0" / "weights.safetensors")
    for command in COMMANDS[name]:
        assert main(["run", name, *command.split(), "--no-progress", "--out", str(out)]) == 0
    rows = json.loads((out / "results.json").read_text())["rows"]
    memories = sorted(out.rglob("memory.sgm"))
    removed = {
        "/".join(path.parent.relative_to(out).parts): len(sgm.SparseGraphicalMemory.load(path, None).removed().source)
        for path in memories
    }
    return {"rows": [{key: row[key] for key in row if key not in _CLOCK} for row in rows], "removed": removed}


def arithmetic() -> str:
    """A fingerprint of how this machine rounds, whatever the number of threads: rows are the same only where it is."""
    import torch

    random = np.random.default_rng(0)
    one, other = random.standard_normal((2, 24, 24)).astype(np.float32)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        image, kernel = torch.from_numpy(one[None, None]), torch.from_numpy(other[None, None, :3, :3].copy())
        parts = [one @ other, np.exp(one), np.sin(other.astype(np.float64))]
        parts += [(image[0, 0] @ torch.from_numpy(other)).numpy(), torch.conv2d(image, kernel).numpy()]
    finally:
        torch.set_num_threads(threads)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()[:16]


def record() -> None:
    """Write the golden rows."""
    for name in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(name, Path(folder) / name)
        content = {"commands": COMMANDS[name], "arithmetic": arithmetic(), **found}
        (DATA / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    record()
