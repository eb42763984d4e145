"""The memory in ten lines: build, plan, report a failure, plan around it. It takes a second."""

import numpy as np

import sgm


class Euclid:
    """Your own distance: embed an observation once, compare embeddings cheaply. It need not be symmetric."""

    def embed(self, observations):
        """(n, 2) positions are their own embeddings."""
        return np.asarray(observations, np.float32)

    def __call__(self, starts, goals):
        """(n, 2) and (m, 2) to (n, m) steps of length 1."""
        return np.linalg.norm(starts[:, None] - goals, axis=-1)


def main(observations: int = 2_000) -> sgm.SparseGraphicalMemory:
    """Build a memory of a square room, 30 × 30 steps, and plan across it twice."""
    memory = sgm.SparseGraphicalMemory(Euclid(), tau_a=3.0, tau_p=1.5, max_dist=5.0, k=5)
    memory.extend(np.random.default_rng(0).uniform(0, 30, (observations, 2)))
    print(memory)
    plan = memory.plan([1, 1], [28, 28])  # waypoints for the controller
    print(plan)
    memory.record(plan.nodes[2], plan.nodes[3], reached=False)  # the controller failed: the edge is removed
    print(memory.plan([1, 1], [28, 28]))  # the next plan avoids it
    return memory


if __name__ == "__main__":
    main()
