"""A Doom run folder as a page: the maze, tables with the paper's numbers beside, figures and how to rerun.

What a run folder holds and what the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks import tables
from sgm.benchmarks.checks import QUALITY, check
from sgm.benchmarks.page import Gallery, band, document, facts, how, html_table, made_with, note, section, shown
from sgm.benchmarks.results import find_file, read_array, read_arrays, read_json, require_own_files, write_text
from sgm.benchmarks.tables import NONE, Cell, Pooled, Row, Table, label, share, three_digits
from sgm.envs.doom.wad import DoomMap
from sgm.errors import printable

from . import figures

EPISODE_STEPS = 200  # unless the settings say otherwise
REFERENCE = ("reference", "reference_frame", "steps", "steps_window", "threshold")
ALIAS = ("alias", "alias_frames", "alias_steps", "alias_apart")
STRIP = ("strip", "strip_frames", "strip_goal")
LEVELS = {"easy": "Easy", "medium": "Medium", "hard": "Hard"}
MEMORIES = ("sptm", "sptm+sgm", "ours")
CLEANED = ("sptm+sgm", "ours", "ours-random-goals")
# By method and cleanup steps: overall success, and that of the levels. Table 2 of the paper, ± from its Table 1; the
# dense oracle from its appendix.
PAPER = {
    ("random", 0): Cell("30.5 %", "58.0 / 21.5 / 12.0"),
    ("controller", 0): Cell("42.7 %", "75.0 / 34.5 / 18.5"),
    ("sptm", 0): Cell("39.3 ± 4.0 %", "70.0 / 34.0 / 14.0"),
    ("dense", 0): Cell("55.0 ± 6.4 %", "75 / 55 / 35"),
    ("sptm+sgm", 54_000): Cell("55.3 %", "88.0 / 52.0 / 26.0"),
    ("sptm+sgm", 114_000): Cell("60.7 ± 4.0 %", "92.0 / 64.0 / 26.0"),
}
PAPER_CURVES = {"sptm+sgm": ((54_000, 0.553), (114_000, 0.607))}

_Key = tuple[str, str, str, int]


def write_report(folder: Path) -> Path:
    """Draw `figures/*.png` and write `report.html` from what a run folder holds; parts may be missing."""
    folder = Path(folder)
    require_own_files(folder)
    results = tables.read_results(folder)
    check(results.get("quality"), QUALITY, f"{folder / 'results.json'}", "quality")
    path = folder / "report.html"
    write_text(path, _page(folder, results))
    return path


def console_table(rows: Iterable[Row]) -> str:
    """The main table in columns of plain text."""
    return tables.columns(main_table(rows))


# -- tables ------------------------------------------------------------------------------------------------------


def main_table(rows: Iterable[Row]) -> Table:
    """One line for each method and number of cleanup steps: success by level, the paper's, and what it cost."""
    rows = list(rows)
    pooled = tables.pool(rows)
    levels = _by_level(rows)
    several = len({item.environment for item in pooled}) > 1
    heads = [
        *(["Environment"] if several else []), "Method", "Cleanup steps", "Seeds × episodes", *LEVELS.values(),
        "Overall", "Paper", "Nodes", "Edges", "False edges", "ms per action",
    ]  # fmt: skip
    cleaned = {(item.environment, item.method) for item in pooled if item.phase != "initial"}
    lines = []
    for item in pooled:
        steps = f"{item.cleanup_steps:,}" if (item.environment, item.method) in cleaned else NONE
        lines.append([
            *([Cell(item.environment)] if several else []),
            Cell(label(item.method)),
            Cell(steps),
            Cell(tables.episodes_text(item)),
            *(tables.success_cell(levels[level].get(_key(item))) for level in LEVELS),
            tables.success_cell(item),
            PAPER.get((item.method, item.cleanup_steps), Cell(NONE)),
            Cell(tables.rounded(item.nodes)),
            Cell(tables.rounded(item.edges)),
            Cell(share(tables.mean(row.get("false_edges") for row in item.rows))),
            Cell(tables.milliseconds(item.seconds_per_action)),
        ])  # fmt: skip
    return Table(heads, lines)


def seed_table(rows: Sequence[Row]) -> Table:
    """Overall success of each seed beside that of all seeds."""
    seeds = sorted({row["seed"] for row in rows})
    lines = []
    for item in tables.pool(rows):
        mine = {row["seed"]: row["successes"] / row["episodes"] for row in item.rows}
        each = [Cell(tables.percent(mine[seed]) if seed in mine else NONE) for seed in seeds]
        lines.append([Cell(label(item.method)), Cell(f"{item.cleanup_steps:,}"), *each, tables.success_cell(item)])
    return Table(["Method", "Cleanup steps", *(f"Seed {seed}" for seed in seeds), "Pooled"], lines)


def _by_level(rows: Sequence[Row]) -> dict[str, dict[_Key, Pooled]]:
    """Rows pooled over seeds as if each level were all there is."""
    found = {}
    for level in LEVELS:
        known = [(row, (row.get("levels") or {}).get(level) or {}) for row in rows]
        alone = [{**row, **result} for row, result in known if result.get("episodes")]
        found[level] = {_key(item): item for item in tables.pool(alone)}
    return found


def _key(item: Pooled) -> _Key:
    return item.environment, item.method, item.phase, item.cleanup_steps


# -- figures -----------------------------------------------------------------------------------------------------


class RunFiles:
    """What a run folder holds beside its numbers; whatever is missing or damaged is an SGMError that says so."""

    def __init__(self, folder: Path) -> None:
        """Look into a run folder."""
        self.folder = folder

    @cached_property
    def map(self) -> DoomMap:
        """The map of the run."""
        return DoomMap.read(find_file(self.folder, "map.wad"))

    @property
    def seeds(self) -> list[int]:
        """The seeds that have a folder."""
        names = (path.name[4:] for path in self.folder.glob("seed*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def first(self, name: str) -> int:
        """The first seed whose folder has this file; the first seed at all if none has."""
        return next((seed for seed in self.seeds if (self.home(seed) / name).is_file()), min(self.seeds, default=0))

    def home(self, seed: int) -> Path:
        """The folder of a seed."""
        return self.folder / f"seed{seed}"

    def find(self, name: str, seed: int) -> Path:
        """A file of a seed that must be there."""
        return find_file(self.folder, f"seed{seed}/{name}")

    def poses(self, seed: int) -> NDArray[np.float64]:
        """(n, 3) x, y and heading of the frames of a seed's buffer."""
        return read_array(self.folder, f"seed{seed}/poses.npy").astype(np.float64)

    def arrays(self, name: str, seed: int, *needed: str) -> dict[str, NDArray[Any]]:
        """The arrays of a seed's .npz file, all these among them."""
        return read_arrays(self.folder, f"seed{seed}/{name}", *needed)

    def memory(self, seed: int, method: str) -> sgm.SparseGraphicalMemory:
        """A seed's memory of a method."""
        return sgm.SparseGraphicalMemory.load(self.find(f"{method}/memory.sgm", seed), None)


def draw_figures(files: RunFiles, rows: Sequence[Row], limit: int = EPISODE_STEPS) -> Gallery:
    """Draw what the folder has data for, the map apart; episodes end after `limit` steps."""
    gallery = Gallery(files.folder)
    _draw_numbers(gallery, files, rows, limit)
    _draw_pictures(gallery, files)
    _draw_memories(gallery, files, {row["method"] for row in rows})
    _draw_one_episode(gallery, files)
    return gallery


def _draw_numbers(gallery: Gallery, files: RunFiles, rows: Sequence[Row], limit: int) -> None:
    pooled = tables.pool(rows)
    curves = _curves([item for item in pooled if item.method in CLEANED])
    seeds = max((item.seeds for item in pooled if item.method in CLEANED), default=1)
    paper = " Hollow diamonds: the paper's values." if any(curve.paper for curve in curves) else ""
    gallery.add(
        "success",
        f"Success against cleanup steps, all levels together: {band(seeds)}{paper}",
        lambda path: figures.success_curves(path, curves),
    )
    gallery.add(
        "steps",
        "Steps to the goal, the mean over successful episodes: the bar over all of them, the marks over those of a "
        "level. A method that only reaches what is near looks fast here: compare marks, and read success beside it.",
        lambda path: figures.steps_to_goal(path, _bars(pooled, rows), limit),
    )
    seed = files.first("lengths.npz")
    gallery.add(
        "lengths",
        f"True lengths of the edges after each stage, seed {seed}: edges that join frames over {figures.FALSE:.0f} map "
        "units apart (right of the dotted line) are false, they promise a way that is not there. What matters is which "
        "share of a stage's edges is false. Of the dense graph two million edges at most are counted.",
        lambda path: figures.edge_lengths(path, files.arrays("lengths.npz", seed)),
    )


def _draw_pictures(gallery: Gallery, files: RunFiles) -> None:
    seed = files.first("pictures.npz")

    def drawn_by(draw: Callable[..., None], *needed: str) -> Callable[[Path], None]:
        return lambda path: draw(path, files.map, files.poses(seed), files.arrays("pictures.npz", seed, *needed))

    gallery.add(
        "heat",
        f"Steps from one picture (left) to every frame of the buffer by the metric, seed {seed}; dark: close. Second: "
        "from single frames. Third: from windows of frames around either end, which together must look close. Right: "
        "the frames within the threshold for an edge, blue where that is true, red crosses where they are over "
        f"{figures.FALSE:.0f} map units away. Where frames overlap, the closest is on top.",
        drawn_by(figures.heat_map, *REFERENCE),
        wide=True,
    )
    gallery.add(
        "strip",
        f"What there is to see along one plan, seed {seed}: the pictures of waypoints in order, and the goal's at the "
        "end; above, where the waypoints are and which way they look.",
        drawn_by(figures.waypoint_strip, *STRIP),
        wide=True,
    )
    gallery.add(
        "alias",
        f"Two pictures that the metric takes for close and that were taken far apart, seed {seed}: an edge between "
        "such frames is false, and only trying it tells.",
        drawn_by(figures.alias, *ALIAS),
        wide=True,
    )


def _draw_memories(gallery: Gallery, files: RunFiles, methods: set[str]) -> None:
    for method in (name for name in MEMORIES if name in methods):
        seed = files.first(f"{method}/memory.sgm")
        gallery.add(
            f"memory-{method.replace('+', '-')}",
            f"{label(method)}, seed {seed}: the memory over the map before the k-nearest filter, after it and, where "
            f"there was any, after cleanup. Light blue: edges that may be true; purple: false ones, over "
            f"{figures.FALSE:.0f} map units long; dashed red: those that cleanup removed.",
            partial(_draw_memory, files=files, seed=seed, method=method),
            wide=True,
        )


def _draw_memory(path: Path, files: RunFiles, seed: int, method: str) -> None:
    figures.memory_stages(path, files.map, files.poses(seed), files.memory(seed, method))


def _draw_one_episode(gallery: Gallery, files: RunFiles) -> None:
    seed = files.first("episode.json")
    gallery.add(
        "episode",
        f"One episode of ours, seed {seed}: the way the agent took, its first plan and its last one, over the "
        "nodes and true edges of its memory.",
        lambda path: _draw_episode(path, files, seed),
        wide=True,
    )


def _draw_episode(path: Path, files: RunFiles, seed: int) -> None:
    trace = read_json(files.find("episode.json", seed))
    figures.episode(path, files.map, files.poses(seed), files.memory(seed, "ours"), trace)


def _curves(pooled: Sequence[Pooled]) -> list[figures.Curve]:
    groups = tables.by_method(pooled)
    several = len({environment for environment, _ in groups}) > 1
    found = []
    for (environment, method), items in groups.items():
        low, high = zip(*(item.ci95 for item in items), strict=True)
        steps, rates = zip(*((item.cleanup_steps, item.rate) for item in items), strict=True)
        name = f"{label(method)}, {printable(environment)}" if several else label(method)
        paper = [point for point in PAPER_CURVES.get(method, ()) if point[0] <= steps[-1]]
        found.append(figures.Curve(name, figures.METHOD[method], steps, rates, low, high, paper))
    return found


def _bars(pooled: Sequence[Pooled], rows: Sequence[Row]) -> list[figures.Bar]:
    """The last stage of each method that reached a goal."""
    levels = _by_level(rows)
    found = []
    for items in tables.by_method(pooled).values():
        last = tables.last_stages(items)[-1]
        if last.mean_steps is None:
            continue
        known = {level: levels[level][_key(last)].mean_steps for level in LEVELS if _key(last) in levels[level]}
        means = {level: steps for level, steps in known.items() if steps is not None}
        after = f"\n{last.cleanup_steps:,} cleanup steps" if last.cleanup_steps else ""
        colour = figures.METHOD.get(last.method, figures.FAINT)
        found.append(figures.Bar(label(last.method) + after, colour, last.mean_steps, means))
    return found


# -- the page ----------------------------------------------------------------------------------------------------

_RESULTS_NOTE = (
    "Success with the Wilson 95 % interval over the pooled episodes of all seeds, for starts up to 200 (easy), 400 "
    "(medium) and 600 map units (hard) from the goal; all methods meet the same starts and goals. False edges: the "
    "share that joins places over 200 map units apart. Paper: overall success, and easy / medium / hard below it, of "
    "Emmons et al., NeurIPS 2020, who released neither code nor weights nor data of this benchmark: figures to compare "
    "with, not to reproduce to the digit."
)


def _page(folder: Path, results: dict[str, Any]) -> str:
    rows: list[Row] = results["rows"]
    files, limit = RunFiles(folder), (results.get("settings") or {}).get("episode_steps", EPISODE_STEPS)
    maze = Gallery(folder)
    caption = "The maze from above: dark lines are walls, light ones can be crossed."
    maze.add("map", caption, lambda path: figures.floor_plan(path, files.map))
    parts = [
        section("The maze", maze.html()),
        section("What was run", how(results) + facts(results.get("agent") or {})),
        section("Results", html_table(main_table(rows)) + note(_RESULTS_NOTE) + _lost(rows)) if rows else "",
        section("The metric and the controller", _quality(results.get("quality") or {})),
        section("Comparison", _comparison(results.get("comparison"))),
        section("Figures", draw_figures(files, rows, limit).html()),
        section("Success by seed", html_table(seed_table(rows))) if rows else "",
        section("Failures and steps to goal", html_table(tables.stage_table(tables.pool(rows)))) if rows else "",
        section("Made with", facts(made_with(results))),
    ]
    return document(rows, parts)


def _lost(rows: Sequence[Row]) -> str:
    """Episodes without an engine, said aloud."""
    lost = sum(row.get("lost_engines") or 0 for row in rows)
    if not lost:
        return ""
    return f"<p><strong>{lost:,} engines died during evaluation; their episodes count as failures.</strong></p>\n"


def _quality(quality: Mapping[str, Any]) -> str:
    """Of the distance and of the controller; what else is known as it is."""
    distance, controller = (dict(quality.get(name) or {}) for name in ("distance", "controller"))
    rest = {name: value for name, value in quality.items() if name not in ("distance", "controller")}
    parts = [
        ("Distance, on rollouts it was not trained on", _distance_quality(distance)),
        ("Controller, actions guessed right", _controller_quality(controller)),
        ("Judged on", shown(rest)),
    ]
    return "".join(f"<h3>{title}</h3>\n{content}" for title, content in parts if content)


def _distance_quality(distance: dict[str, Any]) -> str:
    """The share of false pairs at each recall, and the flattering AUC."""
    accepted = distance.pop("precision", None) or {}
    heads = ["Recall of truly near pairs", "Threshold, steps", "Accepted: truly near", "Accepted: over 200 units apart"]
    lines = [
        [
            Cell(f"{100 * float(recall):g} %"),
            Cell(three_digits(entry.get("threshold"))),
            Cell(share(entry.get("precision"))),
            Cell(share(entry.get("false_share", entry.get("false")))),
        ]
        for recall, entry in sorted(accepted.items(), key=lambda item: float(item[0]))
        if entry
    ]
    if distance.get("auc") is not None:
        distance["auc"] = f"{distance['auc']:.3f}, close pairs against far ones of the same rollout"
    return (html_table(Table(heads, lines)) if lines else "") + shown(distance)


def _controller_quality(controller: dict[str, Any]) -> str:
    """How often the action is right, by how far ahead the goal is."""
    accuracy = controller.pop("accuracy", None) or {}
    line = [Cell("Accuracy"), *(Cell(share(value)) for value in accuracy.values())]
    return (html_table(Table(["Goal so many steps ahead", *accuracy], [line])) if accuracy else "") + shown(controller)


def _comparison(comparison: Any) -> str:
    """A list of records, or records by name, as a table; anything else as it is."""
    if isinstance(comparison, Mapping) and all(isinstance(entry, Mapping) for entry in comparison.values()):
        comparison = [{"": name, **entry} for name, entry in comparison.items()]
    if not comparison:
        return ""
    if isinstance(comparison, list) and all(isinstance(entry, Mapping) for entry in comparison):
        heads = list(dict.fromkeys(name for entry in comparison for name in entry))
        lines = [[Cell(three_digits(entry.get(name))) for name in heads] for entry in comparison]
        return html_table(Table(heads, lines))
    return facts(comparison if isinstance(comparison, dict) else {"comparison": comparison})
