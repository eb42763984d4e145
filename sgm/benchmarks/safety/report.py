"""A SafetyGym run folder as a page: the rooms, tables with the paper's numbers beside, figures and how to rerun.

What a run folder holds and what the fields of `results.json` mean: `docs/results.md`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sgm
from sgm.benchmarks import tables
from sgm.benchmarks.checks import COUNT, QUALITY, TEXT, Each, Several, check
from sgm.benchmarks.page import BROKEN, Gallery, band, document, facts, how, html_table, made_with, note, section, text
from sgm.benchmarks.results import find_file, read_array, read_arrays, read_json, require_own_files, write_text
from sgm.benchmarks.tables import Pooled, Row
from sgm.errors import printable

from . import drawings as pictures
from . import figures
from .figures import BEFORE, label
from .ground_truth import FALSE, edge_lengths
from .settings import METHODS, POLICIES
from .tables import (
    PAPER,
    Key,
    comparison_table,
    connected,
    known_mean,
    memory_table,
    pooled,
    quality_table,
    steps_table,
    success_table,
    threshold_table,
)

if TYPE_CHECKING:
    from sgm.envs.safety.layouts import Layout

CURVES = ("consptm", "uniform", "two-way", "both")  # of the figure of success
MEMORY = ("two-way", "both")  # the first of these that there is is drawn over the floor plan
DRAWN_POLICIES = ("first-failure", "belief")


def write_report(folder: Path) -> Path:
    """Draw `figures/*.png` and write `report.html` from what a run folder holds; parts may be missing."""
    folder = Path(folder)
    require_own_files(folder)
    results = tables.read_results(folder, "layout", "policy", "agent")
    what = f"{folder / 'results.json'}"
    check(results.get("quality"), Each(TEXT, QUALITY), what, "quality")
    check(results.get("settings"), {"layouts": Several(COUNT)}, what, "settings")
    path = folder / "report.html"
    write_text(path, _page(folder, results))
    return path


def console_table(rows: Iterable[Row]) -> str:
    """Success, and what the memories are, in columns of plain text."""
    rows = list(rows)
    return "\n\n".join(tables.columns(table) for table in (success_table(rows), memory_table(rows)))


# -- figures -----------------------------------------------------------------------------------------------------


class LayoutFiles:
    """What a run folder holds of one layout beside its numbers; whatever is missing is an SGMError that says so."""

    def __init__(self, folder: Path, layout: int) -> None:
        """Look into a run folder."""
        self.folder, self.number = folder, layout
        names = (path.name[4:] for path in folder.glob(f"layout{layout}/seed*"))
        self.seeds = sorted(int(name) for name in names if name.isdecimal())

    @property
    def layout(self) -> Layout:
        """The rooms."""
        from sgm.envs.safety.layouts import generate

        return generate(self.number)

    def name(self, seed: int, name: str) -> str:
        """A file of a seed, as the run folder has it."""
        return f"layout{self.number}/seed{seed}/{name}"

    def has(self, seed: int, name: str) -> bool:
        """Whether a seed has a file."""
        return (self.folder / self.name(seed, name)).is_file()

    def first(self, name: str) -> int:
        """The first seed whose folder has this file; the first seed at all if none has."""
        return next((seed for seed in self.seeds if self.has(seed, name)), min(self.seeds, default=0))

    def arrays(self, seed: int, name: str, *needed: str) -> dict[str, NDArray[Any]]:
        """The arrays of a seed's .npz file, all these among them."""
        return read_arrays(self.folder, self.name(seed, name), *needed)

    def whole(self, seed: int, name: str, otherwise: dict[str, Any]) -> dict[str, Any]:
        """The arrays of a seed's .npz file, or something else if it cannot be read."""
        try:
            return self.arrays(seed, name)
        except sgm.SGMError:
            return otherwise

    def places(self, seed: int, method: str) -> NDArray[Any]:
        """(V, 3) where the nodes of a method were seen."""
        return read_array(self.folder, self.name(seed, f"{method}/places.npy"))

    def edges(self, seed: int, method: str, stage: str = BEFORE) -> sgm.Edges:
        """The edges of a method's memory before cleanup, or after it by a policy."""
        name = "built.sgm" if stage == BEFORE else f"{stage}/memory.sgm"
        path = find_file(self.folder, self.name(seed, f"{method}/{name}"))
        return sgm.SparseGraphicalMemory.load(path, None).edges()

    def stages(self, seed: int, method: str) -> list[str]:
        """Before cleanup and the policies that are done with it, as far as their memories are there."""
        known = {BEFORE: "built.sgm", **{policy: f"{policy}/memory.sgm" for policy in POLICIES}}
        return [stage for stage, name in known.items() if self.has(seed, f"{method}/{name}")]


def draw_figures(files: LayoutFiles, rows: Sequence[Row]) -> Gallery:
    """Draw what the folder has of a layout; `rows` are those of it."""
    gallery = Gallery(files.folder)
    _draw_numbers(gallery, files, rows)
    _draw_memory(gallery, files)
    _draw_evidence(gallery, files)
    return gallery


def _draw_numbers(gallery: Gallery, files: LayoutFiles, rows: Sequence[Row]) -> None:
    groups = pooled(rows)
    curves = _curves(groups)
    seeds = max((item.seeds for items in groups.values() for item in items), default=1)
    quoted = _paper_marks(curves)
    paper = f" Hollow diamonds: the paper's values after {figures.PAPER_STEPS:,} steps." if quoted else ""
    gallery.add(
        f"success-layout{files.number}",
        f"Success against cleanup steps, a column for each cleanup policy: {band(seeds)} Below: the share of nodes in "
        f"the largest strongly connected part, mean over seeds; where it falls, cleanup cuts the memory apart.{paper}",
        lambda path: figures.success_curves(path, curves, quoted),
        wide=len({policy for policy, _ in curves}) > 1,
    )
    agent = next((key.agent for key in groups), "plain")
    gallery.add(
        f"reasons-layout{files.number}",
        f"Why: what is wrong with the memory of each method before and after cleanup, and success of the {agent} "
        f"agent; black: the paper's. False edges join places over {FALSE:g} m apart; red: how much would be connected "
        "without them, the best that cleanup can do. Misplaced: the node nearest to a "
        f"start or a goal by the learned distance was seen over {FALSE:g} m away from it; cleanup does not change "
        "that. Means over seeds.",
        lambda path: figures.reasons(path, _reasons(groups, agent)),
        wide=True,
    )
    gallery.add(
        f"lengths-layout{files.number}",
        "True lengths of the edges of each memory, all seeds together, before cleanup and after it. Right of the "
        f"dotted line, over {FALSE:g} m, an edge is false: its ends look alike and are not near each other.",
        lambda path: figures.edge_lengths(path, _lengths(files, rows)),
        wide=True,
    )


def _curves(groups: Mapping[Key, Sequence[Pooled]]) -> dict[tuple[str, str], list[figures.Curve]]:
    found: dict[tuple[str, str], list[figures.Curve]] = {}
    for key, items in groups.items():
        if key.method not in CURVES or len(items) < 2:
            continue
        low, high = zip(*(item.ci95 for item in items), strict=True)
        curve = figures.Curve(
            key.method, [item.cleanup_steps for item in items], [_mean_rate(item) for item in items], low, high,
            [connected(item) for item in items],
        )  # fmt: skip
        found.setdefault((printable(key.policy), printable(key.agent)), []).append(curve)
    return found


def _mean_rate(item: Pooled) -> float:
    return float(np.mean([row["successes"] / row["episodes"] for row in item.rows]))


def _paper_marks(curves: Mapping[tuple[str, str], Sequence[figures.Curve]]) -> dict[str, float]:
    """The paper's success after cleanup; its SGM is either of two methods of ours, and marked once."""
    methods = {curve.method for found in curves.values() for curve in found}
    chosen = methods - ({"both"} if "two-way" in methods else set())
    return {method: PAPER[method][1].value / 100 for method in chosen if method in PAPER}


def _reasons(groups: Mapping[Key, Sequence[Pooled]], agent: str) -> list[figures.Reasons]:
    methods = dict.fromkeys(key.method for key in groups if key.agent == agent)
    found = []
    for method in sorted(methods, key=METHODS.index):
        stages, misplaced = dict[str, figures.Stage](), dict[str, float]()
        for key, items in groups.items():
            if (key.method, key.agent) != (method, agent):
                continue
            for name, item in ((BEFORE, tables.stage(items, "initial")), (key.policy, tables.stage(items, "cleaned"))):
                if item is not None and name not in stages:
                    stages[name] = figures.Stage(
                        known_mean(item, "false_edges"), connected(item), _mean_rate(item), *item.ci95,
                        connected(item, "true_part"),
                    )  # fmt: skip
            for name in figures.MISPLACED:
                if (value := known_mean(items[0], f"false_{name}")) is not None:
                    misplaced.setdefault(name, value)
        paper = [quoted.value / 100 if quoted else np.nan for quoted in PAPER.get(method, ())]
        found.append(figures.Reasons(label(method), stages, misplaced, paper))
    return found


def _lengths(files: LayoutFiles, rows: Sequence[Row]) -> dict[str, dict[str, NDArray[np.float64]]]:
    """True lengths of edges by method and stage, all seeds together."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for method in sorted({row["method"] for row in rows}, key=METHODS.index):
        parts: dict[str, list[NDArray[np.float64]]] = {}
        for seed in files.seeds:
            for stage in files.stages(seed, method):
                lengths = edge_lengths(files.edges(seed, method, stage), files.places(seed, method))
                parts.setdefault(stage, []).append(lengths)
        found[method] = {stage: np.concatenate(lengths) for stage, lengths in parts.items()}
    return found


def _draw_memory(gallery: Gallery, files: LayoutFiles) -> None:
    """The memory of the first method and seed that there is."""
    known = [(method, seed) for method in (*MEMORY, *METHODS) for seed in files.seeds if files.stages(seed, method)]
    if not known:
        return
    method, seed = known[0]
    stages = files.stages(seed, method)
    after = [stage for stage in stages if stage in DRAWN_POLICIES] or stages[1:2]

    def draw(path: Path) -> None:
        drawn = [(BEFORE, files.edges(seed, method))]
        drawn += [(f"after cleanup, {policy}", files.edges(seed, method, policy)) for policy in after]
        pictures.memory_stages(path, files.layout, files.places(seed, method), drawn)

    gallery.add(
        f"memory-layout{files.number}",
        f"{label(method)}, seed {seed}: the memory over the floor plan before and after cleanup. Red: false edges, "
        f"over {FALSE:g} m long. Hollow: nodes outside the largest strongly connected part. Edges are drawn straight, "
        "though the way along them need not be.",
        draw,
        wide=True,
    )


def _draw_evidence(gallery: Gallery, files: LayoutFiles) -> None:
    seed = files.first("evidence.npz")
    if files.has(seed, "evidence.npz") and "reference" in (data := files.whole(seed, "evidence.npz", {"reference": 0})):
        gallery.add(
            f"similarity-layout{files.number}",
            "Pictures that pass the perceptual check with a reference and those that pass the two-way check, the most "
            f"alike first, with how far away and how much turned they were taken, seed {seed}. Framed and crossed: "
            f"false ones, over {FALSE:g} m away.{_sampled(data)}",
            lambda path: pictures.similarity(path, files.layout, files.arrays(seed, "evidence.npz", "reference_pose")),
            wide=True,
        )
    last = files.first("episode.json")
    if files.has(last, "episode.json"):
        gallery.add(
            f"episode-layout{files.number}",
            f"An episode with cleanup, seed {last}: the robot cannot pass an edge (crossed out), removes it and plans "
            "anew. Small numbers: steps. Background: nodes and true edges of the memory.",
            lambda path: _draw_episode(path, files, last),
            wide=True,
        )


def _sampled(data: Mapping[str, Any]) -> str:
    """How often matches are false over many references; nothing if that cannot be read."""
    try:
        texts = [
            f"{100 * false / passed:.1f} % of {passed:,} pass the {name} check falsely"
            for name in ("perceptual", "two-way")
            if f"{name}_sample" in data
            for passed, false in [(int(count) for count in data[f"{name}_sample"])]
            if passed
        ]
        return f" Over {int(data['references']):,} random references: {', '.join(texts)}." if texts else ""
    except BROKEN:  # the figure itself says what is wrong
        return ""


def _draw_episode(path: Path, files: LayoutFiles, seed: int) -> None:
    trace = read_json(find_file(files.folder, files.name(seed, "episode.json")))
    method = trace["method"]
    if method not in METHODS:
        raise sgm.StoreError(f"episode.json is of method {reprlib.repr(method)}; accepted: {', '.join(METHODS)}")
    pictures.episode(path, files.layout, files.places(seed, method), files.edges(seed, method), trace)


# -- the page ----------------------------------------------------------------------------------------------------

_SUCCESS_NOTE = (
    "Success, the mean over seeds and, of several, its standard error; below it the Wilson 95 % interval over "
    "the pooled episodes of all seeds, and successes of episodes. All methods meet the same starts and goals. Paper: "
    "Emmons et al., NeurIPS 2020, success without and with 1,000,000 steps of cleanup; it does not say what its ± is, "
    "and released neither code nor weights nor rooms of this benchmark: figures to compare with, not to reproduce to "
    "the digit. Its SGM merges by both criteria, its ablation names two-way alone. Policy: what makes cleanup give up "
    "an edge; first-failure is the paper's. Agent: plain forgets what failed, persistent avoids it for the rest of the "
    "episode."
)
_MEMORY_NOTE = (
    "Means over seeds, without (w/o) and with (w/) cleanup. False: the share of edges that join places over "
    f"{FALSE:g} m apart. Connected: the share of nodes in the largest strongly connected part; but for false: "
    "without the false edges, before cleanup, which is the best that cleanup can do. Wrong starts and "
    f"goals: the share of those whose nearest node by the learned distance was seen over {FALSE:g} m away."
)
_THRESHOLD_NOTE = (
    "Chosen by node count and connectivity from the buffer alone, the same way for every criterion; no outcome of "
    "navigation was looked at. Order: 0 is that of the buffer, others were drawn because the count jumped over its "
    "target or the graph was not connected. Off target: the closest count that was found."
)
_COMPARED_NOTE = (
    "How much higher the success of two-way consistency is, percentage points, with the 95 % interval of Agresti and "
    "Min (2005) for outcomes of the same tasks. The interval is over episodes; seeds may differ by more."
)
_QUALITY_NOTE = (
    "On rollouts that the distance was not trained on. AUC: pairs a few steps apart against pairs many steps apart. At "
    "a recall of truly near pairs across rollouts: the share of accepted pairs that are near, and that are over "
    f"{FALSE:g} m apart. c and T scale exp(−(f − c) / T) to steps; the medians are those of the calibration."
)


def _page(folder: Path, results: dict[str, Any]) -> str:
    rows: list[Row] = results["rows"]
    asked = (results.get("settings") or {}).get("layouts") or ()
    layouts = sorted({row["layout"] for row in rows} or {layout for layout in asked if layout is not None})
    files = [LayoutFiles(folder, layout) for layout in layouts]
    thresholds = {name: choice for name, choice in (results.get("thresholds") or {}).items() if choice}
    compared = comparison_table(rows)
    quality = {name: judged for name, judged in (results.get("quality") or {}).items() if judged}
    parts = [
        section("The rooms", "".join(_rooms(each).html() for each in files)),
        section("What was run", how(results) + facts(results.get("agent") or {})),
        section("Results", _results(rows) + note(_SUCCESS_NOTE)) if rows else "",
        section("The memories", html_table(memory_table(rows)) + note(_MEMORY_NOTE)) if rows else "",
        section("Thresholds", html_table(threshold_table(thresholds)) + note(_THRESHOLD_NOTE)) if thresholds else "",
        section("The distance", html_table(quality_table(quality)) + note(_QUALITY_NOTE)) if quality else "",
        *(_figures(each, [row for row in rows if row["layout"] == each.number], len(files)) for each in files),
        section("Two-way against the others", html_table(compared) + note(_COMPARED_NOTE)) if compared.lines else "",
        section("Success by cleanup steps and seed", html_table(steps_table(rows))) if rows else "",
        section("Made with", facts(made_with(results))),
    ]  # fmt: skip
    return document(rows, parts)


def _results(rows: Sequence[Row]) -> str:
    """A table for each agent."""
    agents = dict.fromkeys(key.agent for key in pooled(rows))
    found = {agent: success_table(row for row in rows if row["agent"] == agent) for agent in agents}
    return "".join(f"<h3>{text(agent.capitalize())} agent</h3>\n{html_table(table)}" for agent, table in found.items())


def _figures(files: LayoutFiles, rows: Sequence[Row], layouts: int) -> str:
    title = "Figures" if layouts == 1 else f"Figures, layout {files.number}"
    return section(title, draw_figures(files, rows).html()) if rows else ""


def _rooms(files: LayoutFiles) -> Gallery:
    """The floor plan, with views if there are any."""
    gallery, seed = Gallery(files.folder), files.first("evidence.npz")
    data = files.whole(seed, "evidence.npz", {})
    seen = " Right: what the robot sees at the numbered places." if "views" in data else ""
    gallery.add(
        f"rooms-layout{files.number}",
        f"Layout {files.number} from above: walls with the colours of what they wear, pillars, hazards in pink.{seen}",
        lambda path: pictures.rooms(path, files.layout, data.get("views", ()), data.get("view_poses", ())),
        wide="views" in data,
    )
    return gallery
