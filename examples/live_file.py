"""One memory file, two processes: a robot writes it while another process plans on it. It takes a few seconds.

The process of the robot owns the file: the changes of every call that has returned are on disk, even if the process is
killed afterwards. Any number of other processes may load the file meanwhile; a second writer gets an error.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sgm


class Euclid:
    """Euclidean distance in the plane; a step has length 1."""

    fingerprint = "euclid-v1"

    def embed(self, observations):
        """(n, 2) positions are their own embeddings."""
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        """(n, 2) and (m, 2) to (n, m) steps."""
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


def write(path: str, rounds: int) -> None:
    """Run the robot: explore, try some edges, and repeat."""
    random = np.random.default_rng(0)
    with sgm.SparseGraphicalMemory.open(path, Euclid(), tau_a=3.0, tau_p=1.5, max_dist=5.0, k=5) as memory:
        for _ in range(rounds):
            memory.extend(random.uniform(0, 30, (100, 2)))
            edges = memory.edges()
            tried = random.integers(len(edges.source), size=3)
            memory.record_many(edges.source[tried], edges.target[tried], random.random(3) < 0.5)
            time.sleep(0.1)


def main(rounds: int = 20, path: Path | None = None) -> sgm.SparseGraphicalMemory:
    """Start the robot in another process, and plan on its memory while it grows."""
    path = path or Path(tempfile.mkdtemp()) / "live.sgm"
    robot = subprocess.Popen([sys.executable, __file__, str(path), str(rounds)])
    while robot.poll() is None:
        if path.exists():
            try:
                memory = sgm.SparseGraphicalMemory.load(path, Euclid())
                print(memory, f"{memory.plan([1, 1], [28, 28]).length:.1f} steps across the room")
            except (sgm.StoreError, sgm.NoPath) as error:  # the file is new, or the memory is still too small
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
