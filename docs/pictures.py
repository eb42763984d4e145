"""The picture of the inspector in the tutorial about a false edge: `python docs/pictures.py` (needs Chromium)."""

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


def main() -> None:
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
