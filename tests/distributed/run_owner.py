"""An owner to be killed: python -m tests.distributed.run_owner FOLDER STEPS SEED [BACKEND]; its memory is live."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.distributed.world import ENV, HOW, JournalingCrew, agent, build


def main() -> None:
    folder, steps, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with build(folder / "memory.sgm") as memory:
        how = {**HOW, "backend": sys.argv[4] if len(sys.argv) > 4 else "multiprocessing", "order": "arrival"}
        crew = JournalingCrew(agent(memory), ENV, folder, workers=2, seed=seed, turns=4, **how)
        with crew:
            print("begun", flush=True)
            print(crew.run(steps), flush=True)


if __name__ == "__main__":
    main()
