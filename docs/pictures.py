"""Pictures of the site that no run makes: `python docs/pictures.py` (needs Chromium).

They are the inspector in the tutorial about a false edge, and the two directions of two-way consistency.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import notebooks
from PIL import Image
from playwright.sync_api import sync_playwright

NAME = "tutorials/false-edge"


def memory_of_the_tutorial(folder: Path) -> tuple[Path, int, int]:
    """The memory file that the first cell of the tutorial writes, and the start and goal of its plan."""
    cells = [cell.source for cell in notebooks.read(NAME).cells if cell.cell_type == "code"]
    program = "\n".join([*cells[:2], "print(f'\\nENDS {start} {goal}')"])
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True)
    found = re.search(r"ENDS (\d+) (\d+)", done.stdout)
    assert found is not None
    return folder / "posters.sgm", int(found[1]), int(found[2])


def two_way() -> None:
    """Why both directions matter: a pit that a robot falls into in one step, and climbs out of in twelve.

    States are the cells of a floor, and steps are counted along shortest paths. The state beside the pit is a node; the
    question is whether the bottom of the pit may be merged into it.
    """
    import matplotlib.pyplot as plt
    import numpy as np
    from scipy.sparse import lil_matrix
    from scipy.sparse.csgraph import shortest_path

    width, height, pit, beside, climb = 13, 9, (8, 4), (7, 4), 12
    cells = [(x, y) for y in range(height) for x in range(width)]
    row = {cell: number for number, cell in enumerate(cells)}
    steps = lil_matrix((len(cells), len(cells)))
    for x, y in cells:
        for neighbour in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if neighbour in row:
                steps[row[x, y], row[neighbour]] = climb if (x, y) == pit else 1
    table = shortest_path(steps.tocsr())
    nodes = [cell for cell in cells if cell != pit]  # the pit is a new observation, and no node yet
    kept = [row[cell] for cell in nodes]
    leaving = np.abs(table[row[beside], kept] - table[row[pit], kept])
    coming = np.abs(table[kept, row[beside]] - table[kept, row[pit]])

    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.5), layout="constrained")
    titles = (
        f"as starting points: $C_{{out}}$ = {leaving.max():.0f} steps",
        f"as goals: $C_{{in}}$ = {coming.max():.0f} steps",
    )
    for axis, values, title in zip(axes, (leaving, coming), titles, strict=True):
        drawn = axis.scatter(*zip(*nodes, strict=True), c=values, cmap="YlOrRd", vmin=0, vmax=climb + 2, s=110)
        drawn.set_edgecolor("0.55")
        axis.scatter(*pit, marker="s", s=230, color="0.15")
        axis.scatter(*beside, s=150, facecolors="none", edgecolors="tab:blue", linewidths=2.5)
        axis.annotate("$s_2$", pit, ha="center", va="center", color="white", fontsize=12)
        axis.annotate("$s_1$", beside, (-18, -16), textcoords="offset points", color="tab:blue", fontsize=14)
        axis.set(title=title, aspect="equal", xticks=[], yticks=[])
        axis.spines[:].set_color("0.7")
    figure.colorbar(drawn, ax=axes, label="difference, steps", shrink=0.85)
    target = notebooks.HERE / "explanation" / "two-way.png"
    figure.savefig(target, dpi=110)
    Image.open(target).convert("RGB").quantize(96).save(target, optimize=True)
    print(target, target.stat().st_size)


def main() -> None:
    """Make all pictures."""
    two_way()
    inspector()


def inspector() -> None:
    """Open the memory in the inspector, ask for the plan, and keep what is seen."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        place = Path(folder) / "tutorial"  # the page shows its name
        place.mkdir()
        path, start, goal = memory_of_the_tutorial(place)
        command = [sys.executable, "-m", "sgm", "inspect", str(path), "--no-browser", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                lines = (re.search(r"http://[\d.]+:\d+", line) for line in server.stdout)
                address = next(found.group() for found in lines if found)
                browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1100, "height": 720})
                page.goto(f"{address}/#from={start}&to={goal}")
                page.wait_for_selector("#waypoints")
                page.wait_for_timeout(3000)
                shot = Path(folder) / "shot.png"
                page.screenshot(path=str(shot))
                browser.close()
            finally:
                server.terminate()
        target = notebooks.HERE / f"{NAME}-map.png"
        Image.open(shot).convert("RGB").quantize(96).save(target, optimize=True)
        print(target, target.stat().st_size)


if __name__ == "__main__":
    main()
