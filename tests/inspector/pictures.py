"""The pictures of the inspector in README and docs.

`python -m tests.inspector.pictures [POINT] [IMAGES] --out results/inspector`: POINT is the memory file of map and why,
IMAGES one with thumbnails, of edge and suspects; by default those of the tests.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from sgm.benchmarks.provenance import provenance
from tests.inspector.browser import DATA, Page, chromium, inspected, load

SIZE = {"width": 1280, "height": 800}
MOST = 200_000  # bytes of a file
EXACT = 96


def longest_why(page: Page, nodes: int) -> tuple[int, int]:
    """Of many pairs of nodes, the one whose plan is longest by causes of being so."""
    script = """async nodes => {
        let best = [0, 0, -1];
        for (let i = 0; i < 400; i++) {
            const [from, to] = [(i * 37) % nodes, (i * 91 + 13) % nodes];
            if (from === to) continue;
            const why = await (await fetch(`/api/why?from=${from}&to=${to}`)).json();
            const size = why.chosen && !why.same ? why.difference + why.chosen.nodes.length : -1;
            if (size > best[2]) best = [from, to, size];
        }
        return best;
    }"""
    start, goal, _ = page.tab.evaluate(script, nodes)
    return start, goal


def save(page: Page, path: Path) -> None:
    """The window as a PNG of 256 colours."""
    from PIL import Image

    page.tab.wait_for_timeout(400)
    picture = Image.open(io.BytesIO(page.tab.screenshot())).convert("RGB")
    picture.quantize(palette=palette(picture), dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < MOST, f"{path} has {path.stat().st_size} bytes: expected fewer than {MOST}"


def palette(picture: Any) -> Any:
    """An image with 256 colours: the most frequent ones as they are, and others that cover the rest."""
    from PIL import Image

    colours = sorted(picture.getcolors(picture.width * picture.height), reverse=True)[:EXACT]
    exact = [value for _, colour in colours for value in colour]
    rest = picture.quantize(256 - len(colours), method=Image.Quantize.MAXCOVERAGE).getpalette()
    made = Image.new("P", (1, 1))
    made.putpalette((exact + rest)[: 3 * 256])
    return made


def source(path: Path) -> dict[str, str]:
    """The file, and the command of the run that left it, without the folder it was told to write to."""
    runs = [folder / "results.json" for folder in path.parents if (folder / "settings.json").exists()]
    if not runs:
        return {"file": str(path), "made_by": "python -m tests.inspector.make_data"}
    command = json.loads(runs[0].read_text(encoding="utf-8"))["command"]
    return {"file": str(path), "made_by": re.sub(r" --out \S+", "", command)}


def main() -> None:
    """Make the four pictures and say what made them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("point", nargs="?", type=Path, default=DATA / "point.sgm")
    parser.add_argument("images", nargs="?", type=Path, default=DATA / "safety.sgm")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        version = browser.version
        with inspected(browser, given.point, viewport=SIZE) as page:
            start, goal = longest_why(page.open(), len(load(given.point)))
            save(page.open(f"from={start}&to={goal}&colour=evidence"), given.out / "map.png")
            save(page.open(f"screen=why&from={start}&to={goal}"), given.out / "why.png")
        with inspected(browser, given.images, viewport=SIZE) as page:
            gone = load(given.images).removed()
            save(page.open(f"screen=edge&edge={gone.source[0]}-{gone.target[0]}"), given.out / "edge.png")
            save(page.open("screen=suspects&suspect=0&colour=evidence"), given.out / "suspects.png")
    made = provenance("python -m tests.inspector.pictures " + shlex.join(sys.argv[1:]))
    made["versions"]["chromium"] = version
    made["memories"] = {"map, why": source(given.point), "edge, suspects": source(given.images)}
    (given.out / "run.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
