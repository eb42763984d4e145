"""Compare runs that split their environment steps differently between exploration and cleanup.

`python -m sgm.benchmarks.doom.splits RUN [RUN ...] --out FOLDER` writes splits.md and splits.png. The runs are made
with `sgm run doom --budget STEPS --exploration SHARE --out RUN`, one for each share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import sgm
from sgm.benchmarks import plots, tables
from sgm.benchmarks.runs import RunFolder
from sgm.benchmarks.tables import Cell, Pooled, Table, success_cell

from .figures import LEVELS, by_level

COLOURS = ("#1d6b8f", "#2a9d4a", "#c2570c", "#8a5aa8", "#5f6670", "#b8860b")


class Split(NamedTuple):
    """A stage of a run, and the environment steps of exploration before it."""

    environment: str
    label: str
    explored: int
    stage: Pooled

    @property
    def steps(self) -> int:
        """Environment steps of exploration and cleanup."""
        return self.explored + self.stage.cleanup_steps


def find_splits(runs: Sequence[RunFolder]) -> list[Split]:
    """Stages of all methods with a memory in the runs; SGMError if there are none."""
    found = []
    for run in runs:
        if any(not row["environment"].startswith("doom:") for row in run.rows):
            raise sgm.SGMError(f"{run.folder} is not a run of the ViZDoom benchmark: give folders of sgm run doom")
        episodes, steps = run.settings.get("buffer_episodes"), run.settings.get("buffer_steps")
        if not isinstance(episodes, int) or not isinstance(steps, int):
            raise sgm.SGMError(f"{run.folder}/results.json has no buffer_episodes, the amount of exploration")
        for item in tables.pool(run.rows):
            if item.rows[0].get("nodes"):
                found.append(Split(item.environment, item.group.label, episodes * steps, item))
    if not found:
        raise sgm.SGMError("no method with a memory was run")
    return sorted(found, key=lambda split: (split.environment, split.label, split.explored, split.stage.cleanup_steps))


def splits_table(splits: Sequence[Split]) -> Table:
    """Table with a line for each stage: environment steps, and success by level."""
    heads = ["Environment", "Method", "Explored", "Cleanup", "Environment steps", "Seeds × episodes"]
    heads += [*(level.capitalize() for level in LEVELS), "Overall"]
    lines = []
    for split in splits:
        levels = [success_cell(next(iter(by_level(split.stage.rows, level)), None)) for level in LEVELS]
        numbers = [f"{number:,}" for number in (split.explored, split.stage.cleanup_steps, split.steps)]
        texts = [split.environment, split.label, *numbers, tables.episodes_text(split.stage)]
        lines.append([*map(Cell, texts), *levels, success_cell(split.stage)])
    return Table(heads, lines)


def draw(path: Path, splits: Sequence[Split]) -> None:
    """Plot success against environment steps, a curve for each method and amount of exploration."""
    curves: dict[tuple[str, str], list[plots.Curve]] = {}
    groups: dict[tuple[str, str, int], list[Split]] = {}
    for split in splits:
        groups.setdefault((split.environment, split.label, split.explored), []).append(split)
    names = list(dict.fromkeys(f"{label}, {explored:,} explored" for _, label, explored in groups))
    for (environment, label, explored), stages in groups.items():
        name = f"{label}, {explored:,} explored"
        colour = COLOURS[names.index(name) % len(COLOURS)]
        curve = plots.curve([split.stage for split in stages], name, colour)
        moved = curve._replace(steps=[split.steps for split in stages])
        curves.setdefault((environment, ""), []).append(moved)
    plots.success_curves(path, curves, "environment steps, exploration and cleanup")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: write splits.md and splits.png."""
    parser = argparse.ArgumentParser(prog="python -m sgm.benchmarks.doom.splits", description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run of sgm run doom")
    parser.add_argument("--out", type=Path, required=True, help="folder for splits.md and splits.png")
    options = parser.parse_args(arguments)
    try:
        splits = find_splits([RunFolder.read(folder) for folder in options.runs])
        table = splits_table(splits)
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "splits.md").write_text(tables.markdown(table) + "\n")
        draw(options.out / "splits.png", splits)
    except sgm.SGMError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(tables.columns(table))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
