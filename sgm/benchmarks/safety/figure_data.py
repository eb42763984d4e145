"""What the figures of a SafetyGym run are drawn from: views, images that pass a check, one episode with a detour."""

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

SHOWN = 12  # images that pass a check
HANDFUL = 6  # of them are enough to choose a reference
VIEWS = 8
SAMPLE = 200  # references over which false matches are counted
CHECKS = {"perceptual": ("perceptual", "both"), "two-way": ("two-way", "both")}  # and whose thresholds they take
EPISODE = ("two-way", "both", "incoming", "outgoing", "perceptual", "uniform", "consptm")

Floats = NDArray[np.float32]


class Passed(NamedTuple):
    """Which images of the buffer pass a check with a reference.

    Attributes:
        rows: of the buffer, the most alike first.
        false: (n,) bool, which of them were taken over 1.2 m away.
    """

    rows: NDArray[np.int64]
    false: NDArray[np.bool_]


def sources(folder: Path) -> list[str]:
    """The methods whose memories the data of a piece's figures is from; it is out of date when they change."""
    found = {name: _first(folder, methods, "choice.json") for name, methods in CHECKS.items()}
    return [*(method or "" for method in found.values()), _first(folder, EPISODE, "built.sgm") or ""]


def is_written(folder: Path) -> bool:
    """Whether the data of a piece's figures is there, from the memories that there are now."""
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
    """The memory of a method before cleanup, with the paper's policy."""
    return piece.load(piece.folder / method / "built.sgm", "first-failure")


def _views(piece: Piece, random: np.random.Generator) -> dict[str, Any]:
    """A few images of the buffer from places far from each other."""
    places = piece.buffer["odometry"][:, :3]
    chosen = [int(random.integers(len(places)))]
    while len(chosen) < min(VIEWS, len(places)):
        gaps = np.linalg.norm(places[:, None, :2] - places[chosen, :2], axis=2).min(axis=1)
        chosen.append(int(gaps.argmax()))
    return {"views": piece.buffer["frames"][chosen], "view_poses": places[chosen]}


# -- images that pass a check ----------------------------------------------------------------------------------


class Perceptual:
    """‖φ − φ'‖ (Eq. 4) between images of the buffer."""

    def __init__(self, features: Floats, tau_p: float, strict: bool) -> None:
        """Take (n, f) features."""
        self.features, self.limit, self.strict = features, tau_p, strict

    def gaps(self, reference: int) -> Floats:
        """(n,) gaps to all images."""
        return np.linalg.norm(self.features - self.features[reference], axis=1)


class TwoWay:
    """The larger of C_out and C_in (Eq. 1 and 2) between images, with a reference as the candidate.

    As in building, but over the nodes of the finished memory: with scope "memory" all of them, the candidate included,
    with "neighbors" those within MaxDist of it, and a candidate without any matches nothing. The image in question is
    no node.
    """

    def __init__(self, steps: Floats, nodes: NDArray[np.int64], settings: Settings) -> None:
        """Take (n, n) distances between images, and (V,) which of them are nodes."""
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
    """What passes a check with a reference, itself apart; (n, 2 or more) places judge."""
    gaps = check.gaps(reference)
    inside = gaps < check.limit if check.strict else gaps <= check.limit
    inside[reference] = False
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(gaps[rows], kind="stable")]
    return Passed(rows, np.hypot(*(places[rows, :2] - places[reference, :2]).T) > FALSE)


def _similar(piece: Piece, random: np.random.Generator) -> dict[str, Any]:
    """One reference with a handful of matches by each check, and how often matches are false over many references."""
    places = piece.buffer["odometry"]
    checks = {name: check for name in CHECKS if (check := _check(piece, name)) is not None}
    if not checks:
        return {}
    references = random.permutation(len(places))[:SAMPLE]
    found = {name: [passed(check, int(row), places) for row in references] for name, check in checks.items()}
    fewest = np.min([[len(item.rows) for item in items] for items in found.values()], axis=0)
    # The first of a random order that has enough: nobody chose it for being right or wrong.
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
    """A check with the threshold that was chosen for it; None if none was."""
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
    """Episodes of an agent that cleans as it goes, by the paper's rule; the one that shows best what a detour is."""
    from sgm.envs.safety.env import Tasks

    memory, layout = _built(piece, method), piece.world
    tasks = Tasks.draw(layout, piece.settings.robots, piece.seed_for(Purpose.EPISODE))
    agent = piece.make_agent(method, memory, clean=True)
    traces = rollout(agent, piece.env, tasks, traces=len(tasks.starts)).traces
    told = [_told(trace, memory.attributes["pose"], layout) for trace in traces]
    best = max(told, key=_clarity)
    return {"method": method, "start": best["observations"][0], **best}


def _told(trace: Trace, places: NDArray[Any], layout: Layout) -> dict[str, Any]:
    """A trace with what is true of its cuts: length of the edge, m, and whether a wall or a pillar is in the way."""
    content = trace.asdict()
    for cut in content["cuts"]:
        ends = places[[cut["u"], cut["v"]], :2].astype(np.float64)
        between = ends[0] + np.linspace(0, 1, 50)[:, None] * (ends[1] - ends[0])
        cut["length"] = float(np.hypot(*(ends[1] - ends[0])))
        cut["blocked"] = bool((layout.distance(between) <= 0).any())
    return content


def _clarity(told: dict[str, Any]) -> tuple[Any, ...]:
    """How well an episode shows an edge that fails and a second plan that works; more is better."""
    cuts, plans = told["cuts"], told["plans"]
    if not cuts:
        return (False,)
    main = main_cut(cuts)
    replanned = any(plan["step"] >= main["step"] for plan in plans)
    travelled = main["step"] > 0 and len(told["observations"]) - main["step"] > 10
    clear = (main["blocked"], len(cuts) == 1 and len(plans) == 2, travelled)
    return (True, told["success"] and replanned, len(cuts) <= 2, *clear, -len(plans), main["length"])
