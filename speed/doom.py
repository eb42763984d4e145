"""Speed of the ViZDoom benchmark: building the memory from 20,100 frames, and cleanup with one engine and many.

python -m speed.doom --out results/doom-speed
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from sgm.benchmarks.base import Piece
from sgm.benchmarks.doom.benchmark import BENCHMARK, CLEANUP_EPISODE, compare
from sgm.benchmarks.doom.settings import DoomSettings
from sgm.benchmarks.seeds import Purpose
from sgm.envs.doom.env import explore
from sgm.navigation import Cleaner
from speed.report import Report


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for bench.json and bench.md")
    parser.add_argument("--engines", type=int, default=16, help="engines at once (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few steps, to test that it runs")
    options = parser.parse_args()
    report = Report("speed.doom")
    small = {"buffer_episodes": 5, "buffer_steps": 50} if options.quick else {}
    steps = {1: 100, options.engines: 500} if options.quick else {1: 3_000, options.engines: 30_000}
    rates: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for engines, taken in steps.items():
            settings = DoomSettings(pretrained=True, engines=engines, **small)
            piece = Piece(BENCHMARK, settings, {"seed": 0}, Path(folder) / str(engines), progress=False)
            _ = piece.networks
            if engines == 1:
                seed = piece.seed_for(Purpose.BUFFER)
                explored = explore(piece.env, settings.buffer_episodes, settings.buffer_steps, seed)
                parts = {"threads": torch.get_num_threads(), "frames": len(explored.poses.reshape(-1, 3))}
                begin = time.perf_counter()
                buffer = compare(piece, explored)
                parts["embed_and_compare_s"] = time.perf_counter() - begin
                piece.buffer = buffer
                begin = time.perf_counter()
                memory = piece.build("sptm+sgm")
                parts["build_s"] = time.perf_counter() - begin
                total = parts["embed_and_compare_s"] + parts["build_s"]
                verdict = "yes" if total < 60 else "NO"
                report.add("Building the memory", **parts, total_s=total, nodes=len(memory), under_a_minute=verdict)
            piece.buffer = buffer
            navigator = piece.make_agent("ours", piece.build("ours"), clean=True)
            piece.env.max_episode_steps = None
            cleaner = Cleaner(
                navigator, piece.env, seed=2, options={"goals": None}, goals="active", episode_steps=CLEANUP_EPISODE
            )
            cleaner.run(5 * engines)
            result = cleaner.run(taken)
            rates[engines] = result.steps / result.seconds
            holds = "" if engines == 1 else ("yes" if rates[engines] >= 500 else "NO")
            report.add(
                "Cleanup",
                engines=engines,
                steps_per_second=rates[engines],
                ratio=rates[engines] / rates[1],
                at_least_500=holds,
            )
            piece.close()
    if options.out:
        report.write(options.out)


if __name__ == "__main__":
    main()
