"""Your own asymmetric distance, with a memory file that survives a crash. It takes a second.

A robot walks clockwise in a ring corridor; each step counterclockwise costs three. The program builds a memory in a
live file, plans, finds that an edge of the plan does not work, and plans again. docs/own-distance.md explains the
settings.
"""

import tempfile
from pathlib import Path

import numpy as np

import sgm


class Corridor:
    """Steps in a ring corridor of 60 steps; observations are positions along it."""

    fingerprint = "corridor-v1"  # a memory file can only be opened with a distance of the same fingerprint

    def embed(self, observations):
        """(n,) positions to (n, 1) embeddings."""
        return np.asarray(observations, np.float32).reshape(-1, 1)

    def __call__(self, starts, goals):
        """(n, 1) and (m, 1) embeddings to (n, m) steps."""
        clockwise = (goals[:, 0] - starts[:, :1]) % 60
        return np.minimum(clockwise, 3 * ((60 - clockwise) % 60))


def main(path: Path | None = None, observations: int = 2_000) -> sgm.SparseGraphicalMemory:
    """Build, plan, fail twice, plan again, and read the file back."""
    path = path or Path(tempfile.mkdtemp()) / "corridor.sgm"
    seen = np.random.default_rng(0).uniform(0, 60, observations)
    settings = {"tau_a": 3.0, "tau_p": 1.0, "max_dist": 6.0, "k": 4, "policy": "second-failure"}
    with sgm.SparseGraphicalMemory.open(path, Corridor(), **settings) as memory:
        report = memory.extend(seen)
        print(f"{report.added} nodes for {observations:,} observations")
        plan = memory.plan(5.0, 40.0)
        print(plan)
        # The controller tries the third edge twice and fails both times: it is removed, in memory and in the file.
        u, v = plan.nodes[2], plan.nodes[3]
        memory.record(u, v, reached=False)
        memory.record(u, v, reached=False)
        print(memory.plan(5.0, 40.0))

    again = sgm.SparseGraphicalMemory.load(path, Corridor())
    print(again)
    print(again.certificate(seen, pairs=200))
    return again


if __name__ == "__main__":
    main()
