"""Data for the figures of a SafetyGym run: views, images that pass a check, one episode with a detour."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks.base import Piece
from sgm.benchmarks.engine import rollout
from sgm.benchmarks.map_plots import main_cut
from sgm.benchmarks.results import read_arrays, read_choice, write_arrays, write_json
from sgm.benchmarks.seeds import Purpose
from sgm.envs.safety.layouts import Layout
from sgm.memory.criteria import within
from sgm.memory.settings import Settings
from sgm.navigation import Trace

from .ground_truth import FALSE

SHOWN = 12  # images that are shown for a check
HANDFUL = 6  # matches that a reference image must have
VIEWS = 8
SAMPLE = 200  # reference images over which false matches are counted
CHECKS = {"perceptual": ("perceptual", "both"), "two-way": ("two-way", "both")}  # and the methods with their thresholds
EPISODE = ("two-way", "both", "incoming", "outgoing", "perceptual", "uniform", "consptm")

Floats = NDArray[np.float32]


class Passed(NamedTuple):
    """Images of the buffer that pass a check with a reference image.

    Attributes:
        rows: (n,) rows of the buffer, the most similar first.
        false: (n,) bool, whether each was taken over 1.2 m away.
    """

    rows: NDArray[np.int64]
    false: NDArray[np.bool_]


def sources(folder: Path) -> list[str]:
    """Methods whose memories the figure data of a piece uses; the data is out of date when they change."""
    found = {name: _first(folder, methods, "choice.json") for name, methods in CHECKS.items()}
    return [*(method or "" for method in found.values()), _first(folder, EPISODE, "built.sgm") or ""]


def is_written(folder: Path) -> bool:
    """Whether the figure data of a piece is stored and belongs to its current memories."""
    if not (folder / "images.npz").exists():
        return False
    return read_arrays(folder, "images.npz", "sources")["sources"].tolist() == sources(folder)


def write(piece: Piece) -> None:
    """Write episode.json and images.npz into a piece's folder."""
    random = np.random.default_rng(piece.seed_for(Purpose.CHOICES))
    if method := _first(piece.folder, EPISODE, "built.sgm"):
        write_json(piece.folder / "episode.json", _episode(piece, method))
    content = {"sources": np.array(sources(piece.folder)), **_views(piece, random), **_similar(piece, random)}
    write_arrays(piece.folder / "images.npz", content)


def _first(folder: Path, methods: tuple[str, ...], name: str) -> str | None:
    return next((method for method in methods if (folder / method / name).exists()), None)


def _built(piece: Piece, method: str) -> sgm.SparseGraphicalMemory:
    """Load the memory of a method before cleanup, with the paper's policy."""
    return piece.load(piece.folder / method / "built.sgm", "first-failure")


def _views(piece: Piece, random: np.random.Generator) -> dict[str, Any]:
    """A few images of the buffer, taken far from each other."""
    places = piece.buffer["odometry"][:, :3]
    chosen = [int(random.integers(len(places)))]
    while len(chosen) < min(VIEWS, len(places)):
        gaps = np.linalg.norm(places[:, None, :2] - places[chosen, :2], axis=2).min(axis=1)
        chosen.append(int(gaps.argmax()))
    return {"views": piece.buffer["frames"][chosen], "view_poses": places[chosen]}


# -- images that pass a check ----------------------------------------------------------------------------------


class Perceptual:
    """Perceptual check: ‖φ − φ'‖ (Eq. 4) between images of the buffer."""

    def __init__(self, features: Floats, tau_p: float, strict: bool) -> None:
        """Check (n, f) features against the threshold τ_p."""
        self.features, self.limit, self.strict = features, tau_p, strict

    def gaps(self, reference: int) -> Floats:
        """(n,) gaps to all images."""
        return np.linalg.norm(self.features - self.features[reference], axis=1)


class TwoWay:
    """Two-way check: the larger of C_out and C_in (Eq. 1 and 2) between images, with a reference as the candidate.

    As in building, but over the nodes of the finished memory: with scope "memory" all nodes, the candidate included;
    with "neighbors" the nodes within MaxDist of it (a candidate without neighbours matches nothing). The compared image
    is not a node.
    """

    def __init__(self, steps: Floats, nodes: NDArray[np.int64], settings: Settings) -> None:
        """Take (n, n) distances between images, and the (V,) images that are nodes."""
        self.ways, self.nodes, self.settings = (steps, steps.T), nodes, settings
        self.limit, self.strict = settings.tau_a, settings.strict

    def gaps(self, reference: int) -> Floats:
        """(n,) gaps to all images."""
        worst = np.zeros(len(self.ways[0]), np.float32)
        compared = np.zeros(len(worst), np.int64)
        for steps in self.ways:
            chosen = np.union1d(self.nodes, reference)
            if self.settings.scope == "neighbors":
                chosen = chosen[within(steps[reference, chosen], self.settings) & (chosen != reference)]
            gaps = np.abs(steps[:, chosen] - steps[reference, chosen])
            gaps[chosen, np.arange(len(chosen))] = 0
            worst = np.maximum(worst, gaps.max(axis=1, initial=0))
            compared += len(chosen)
            compared[chosen] -= 1
        return np.where(compared > 0, worst, np.float32(np.inf))


Check = Perceptual | TwoWay


def passed(check: Check, reference: int, places: NDArray[Any]) -> Passed:
    """Images that pass a check with a reference, except itself; (n, 2 or more) true positions tell which are false."""
    gaps = check.gaps(reference)
    inside = gaps < check.limit if check.strict else gaps <= check.limit
    inside[reference] = False
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(gaps[rows], kind="stable")]
    return Passed(rows, np.hypot(*(places[rows, :2] - places[reference, :2]).T) > FALSE)


def _similar(piece: Piece, random: np.random.Generator) -> dict[str, Any]:
    """A reference with a few matches by each check, and the counts of false matches over many references."""
    places = piece.buffer["odometry"]
    checks = {name: check for name in CHECKS if (check := _check(piece, name)) is not None}
    if not checks:
        return {}
    references = random.permutation(len(places))[:SAMPLE]
    found = {name: [passed(check, int(row), places) for row in references] for name, check in checks.items()}
    fewest = np.min([[len(item.rows) for item in items] for items in found.values()], axis=0)
    # The first in random order with enough matches, so that it is not chosen for being right or wrong.
    place = int(np.argmax(np.minimum(fewest, HANDFUL)))
    reference = int(references[place])
    content: dict[str, Any] = {
        "reference": piece.buffer["frames"][reference],
        "reference_pose": places[reference, :3],
        "references": len(references),
    }
    for name, items in found.items():
        mine, shown = items[place], items[place].rows[:SHOWN]
        gap = places[shown, :3] - places[reference, :3]
        content |= {
            f"{name}_images": piece.buffer["frames"][shown],
            f"{name}_poses": places[shown, :3],
            f"{name}_apart": np.hypot(gap[:, 0], gap[:, 1]),
            f"{name}_turned": np.degrees(np.abs(np.arctan2(np.sin(gap[:, 2]), np.cos(gap[:, 2])))),
            f"{name}_passed": [len(mine.rows), int(mine.false.sum())],
            f"{name}_sample": [sum(len(item.rows) for item in items), sum(int(item.false.sum()) for item in items)],
            f"{name}_limit": checks[name].limit,
        }
    return content


def _check(piece: Piece, name: str) -> Check | None:
    """Check with the threshold that was chosen for it; None if none was chosen."""
    method = _first(piece.folder, CHECKS[name], "choice.json")
    choice = read_choice(piece.folder / method) if method else None
    if method is None or choice is None:
        return None
    settings = Settings.fromdict(choice["settings"])
    frames, found = piece.buffer["frames"], piece.networks
    if name == "perceptual":
        return Perceptual(np.asarray(found.features(frames), np.float32), settings.tau_p, settings.strict)
    memory = _built(piece, method)
    embeddings = memory.embed(frames)
    return TwoWay(found.distance(embeddings, embeddings), memory.attributes["frame"], settings)


# -- one episode -------------------------------------------------------------------------------------------------


def _episode(piece: Piece, method: str) -> dict[str, Any]:
    """Run episodes with cleanup by the paper's policy, and keep the one that shows a detour most clearly."""
    from sgm.envs.safety.env import Tasks

    memory, layout = _built(piece, method), piece.world
    tasks = Tasks.draw(layout, piece.settings.robots, piece.seed_for(Purpose.EPISODE))
    agent = piece.make_agent(method, memory, clean=True)
    traces = rollout(agent, piece.env, tasks, traces=len(tasks.starts)).traces
    told = [_told(trace, memory.attributes["pose"], layout) for trace in traces]
    best = max(told, key=_clarity)
    return {"method": method, "start": best["observations"][0], **best}


def _told(trace: Trace, places: NDArray[Any], layout: Layout) -> dict[str, Any]:
    """Add ground truth about removed edges to a trace: length, m, and whether a wall or a pillar blocks the edge."""
    content = trace.asdict()
    for cut in content["cuts"]:
        ends = places[[cut["u"], cut["v"]], :2].astype(np.float64)
        between = ends[0] + np.linspace(0, 1, 50)[:, None] * (ends[1] - ends[0])
        cut["length"] = float(np.hypot(*(ends[1] - ends[0])))
        cut["blocked"] = bool((layout.distance(between) <= 0).any())
    return content


def _clarity(told: dict[str, Any]) -> tuple[Any, ...]:
    """Sort key: how clearly an episode shows an edge that fails and a second plan that works; larger is better."""
    cuts, plans = told["cuts"], told["plans"]
    if not cuts:
        return (False,)
    main = main_cut(cuts)
    replanned = any(plan["step"] >= main["step"] for plan in plans)
    travelled = main["step"] > 0 and len(told["observations"]) - main["step"] > 10
    clear = (main["blocked"], len(cuts) == 1 and len(plans) == 2, travelled)
    return (True, told["success"] and replanned, len(cuts) <= 2, *clear, -len(plans), main["length"])
