"""One memory file, two processes: a robot writes it while another process plans on it. Takes a few seconds.

The robot's process owns the file: every call that has returned is on disk, whatever happens to the process afterwards.
Any number of other processes may load the file meanwhile; a second writer is refused.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sgm


class Euclid:
    """Steps of length 1 in the plane."""

    fingerprint = "euclid-v1"

    def embed(self, observations):
        """(n, 2) positions are their own embeddings."""
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        """(n, 2) and (m, 2) to (n, m) steps."""
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


def write(path: str, rounds: int) -> None:
    """The robot: explore a little, try some edges, and again."""
    random = np.random.default_rng(0)
    with sgm.SparseGraphicalMemory.open(path, Euclid(), tau_a=3.0, tau_p=1.5, max_dist=5.0, k=5) as memory:
        for _ in range(rounds):
            memory.extend(random.uniform(0, 30, (100, 2)))
            edges = memory.edges()
            tried = random.integers(len(edges.source), size=3)
            memory.record_many(edges.source[tried], edges.target[tried], random.random(3) < 0.5)
            time.sleep(0.1)


def main(rounds: int = 20, path: Path | None = None) -> sgm.SparseGraphicalMemory:
    """Start the robot in a process of its own, and plan on its memory as it grows."""
    path = path or Path(tempfile.mkdtemp()) / "live.sgm"
    robot = subprocess.Popen([sys.executable, __file__, str(path), str(rounds)])
    while robot.poll() is None:
        if path.exists():
            try:
                memory = sgm.SparseGraphicalMemory.load(path, Euclid())
                print(memory, f"{memory.plan([1, 1], [28, 28]).length:.1f} steps across the room")
            except (sgm.StoreError, sgm.NoPath) as error:  # the file is new, or holds too little yet
                print(error)
        time.sleep(0.3)
    if robot.returncode:
        raise RuntimeError(f"the robot's process ended with {robot.returncode}")
    memory = sgm.SparseGraphicalMemory.load(path, Euclid())
    print("at the end:", memory)
    return memory


if __name__ == "__main__":
    if len(sys.argv) == 3:
        write(sys.argv[1], int(sys.argv[2]))
    else:
        main()
