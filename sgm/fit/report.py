"""The report of an agent: its source, memory, results, plan, distance and settings, as an HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import sgm
from sgm.benchmarks.page import Facts, Figure, Figures, Note, Section, write_page
from sgm.benchmarks.results import read_arrays, read_json, write_arrays
from sgm.benchmarks.tables import NONE, Cell, Table

from . import figures
from .folder import MEMORY, SEEN, Record, evaluations
from .layout import Floats, Layout, lay_out, longest_plan, places_of
from .settings import used_by

_MOST_SEEN = 6_000  # largest number of observations that are drawn
_FACTS = {
    "observations": "observations",
    "episodes": "episodes",
    "shape": "observation shape",
    "actions": "action shape",
}


def keep_places(folder: Path, data: sgm.Experience) -> None:
    """Store the positions of the experience for figures, if they are known."""
    places = places_of(data[:: -(-len(data) // _MOST_SEEN)])
    if places is not None:
        write_arrays(folder / SEEN, {"places": places.astype(np.float32)})


def write_report(folder: Path) -> Path:
    """Draw the figures and write `report.html` from the folder of an agent; return its path."""
    page = _Page(Path(folder))
    sections = [page.summary(), page.success(), page.memory(), page.plan(), page.cleanup(), page.distance()]
    return write_page(page.folder, f"Sparse Graphical Memory: {page.source}", [*sections, page.made_with()])


class _Page:
    """The sections of the report of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fit = Record(folder)
        self.graph = sgm.SparseGraphicalMemory.load(folder / MEMORY, None)
        self.layout: Layout = lay_out(self.graph)
        self.seen: Floats | None = None
        if self.layout.true and (folder / SEEN).is_file():
            self.seen = read_arrays(folder, SEEN, "places")["places"].astype(np.float64)
        asked = read_json(folder / "settings.json") or {}
        self.asked: dict[str, Any] = asked if isinstance(asked, dict) else {}
        self.source = str(self.asked.get("source") or folder.name)

    def stage(self, name: str) -> dict[str, Any]:
        found = self.fit.stages.get(name)
        return found if isinstance(found, dict) else {}

    def summary(self) -> Section:
        seen, stats = self.stage("experience"), self.graph.stats()
        source = Facts({"source": seen.get("source") or self.source})  # too long for a column
        facts: dict[str, Any] = {
            label: _shown(seen[name]) for name, label in _FACTS.items() if seen.get(name) is not None
        }
        facts |= {
            "nodes": f"{stats.nodes:,}",
            "edges": f"{stats.edges:,}" + (f", {stats.removed_edges:,} removed" if stats.removed_edges else ""),
            "largest component": f"{stats.largest_component:,} nodes",
            "controller": "none" if not self.stage("controller") else f"{self.stage('controller').get('kind')}",
        }
        warnings = [Note(text, loud=True) for text in stats.warnings if "tried" not in text]
        return Section("Summary", [source, Facts(facts), *warnings])

    def success(self) -> Section:
        found = evaluations(self.folder)
        results = [(each, name, result) for each in found for name, result in each["methods"].items()]
        lines = [_result_line(each, name, result) for each, name, result in results]
        failures = [
            [Cell(each["env"]), Cell(name), Cell(reason), Cell(str(number))]
            for each, name, result in results
            for reason, number in result["reasons"].items()
        ]
        heads = ["Environment", "Method", "Success", "Episodes", "Steps to goal", "Cleanup steps", "Per action", "Seed"]
        parts: list[Any] = [Table(heads, lines)]
        if lines:
            parts.append(
                Note("The Wilson 95 % interval is in brackets. Steps to goal are those of successful episodes.")
            )
        parts.append(Table(["Environment", "Method", "Reason of failure", "Episodes"], failures))
        parts += [table for each in found if (table := _by_task(each)) is not None]
        return Section("Success", parts)

    def memory(self) -> Section:
        about = f"The memory; {self.layout.about}."
        if self.seen is not None:
            about += " Grey points are the positions of the experience."
        drawn = [
            Figure("memory", about, lambda path: figures.memory_map(path, self.graph, self.layout, self.seen),
                   wide=bool(len(self.graph.removed().source)))
        ]  # fmt: skip
        if self.has_images:
            text = "The memory with the images of some nodes; " + self.layout.about + "."
            drawn.append(
                Figure("images", text, lambda path: figures.image_map(path, self.graph, self.layout), wide=True)
            )
        why = self.stage("memory").get("why") or []
        return Section("The memory", [Figures(drawn), *(Note(str(reason)) for reason in why)])

    @property
    def has_images(self) -> bool:
        return self.graph.settings.keep_observations and self.graph.observations.ndim > 2

    def plan(self) -> Section:
        plan = longest_plan(self.graph)
        if plan is None:
            return Section("A plan", [])
        text = (
            f"From node {plan.nodes[0]} to node {plan.nodes[-1]}, nearly the two nodes farthest apart; "
            f"{self.layout.about}."
        )
        drawn = [Figure("plan", text, lambda path: figures.plan_map(path, self.graph, self.layout, self.seen, plan))]
        if self.has_images:
            titles, about = plan_titles(plan), "The images of the nodes of the same plan."
            shown = self.graph.observations[plan.nodes]
            drawn.insert(0, Figure("plan_images", about, lambda path: figures.strip(path, shown, titles), wide=True))
        return Section("A plan", [Figures(drawn)])

    def cleanup(self) -> Section:
        found = read_json(self.folder / "cleanup.json") or {}
        parts = found.get("parts") or []
        if not parts:
            return Section("Cleanup", [])
        text = f"{found['done']:,} steps in {found['settings']['env']}: edges that fail are removed."
        return Section("Cleanup", [Figures([Figure("cleanup", text, lambda path: figures.cleanup_curve(path, parts))])])

    def distance(self) -> Section:
        facts = self.stage("distance")
        noise, far = _steps(facts.get("noise")), _steps(facts.get("far"))
        shown = {"kind": facts.get("kind"), "noise over one step": noise, "clipped at": far}
        parts: list[Any] = [Facts({name: value for name, value in shown.items() if value}), *_quality(facts)]
        if curve := facts.get("curve"):
            limit = self.graph.settings.max_dist
            text = (
                "The learned distance over the steps between two observations of an episode. Episodes make detours, so "
                "a distance of fewer steps is not an error."
            )
            parts.append(Figures([Figure("distance", text, lambda path: figures.distance_curve(path, curve, limit))]))
        return Section("The distance", parts)

    def made_with(self) -> Section:
        record = self.fit.content
        seconds = {name: f"{facts['seconds']:.0f} s" for name, facts in self.fit.stages.items() if "seconds" in facts}
        known: dict[str, Any] = {name: record[name] for name in ("date", "machine") if name in record}
        command = Facts({"command": str(record.get("command") or "not recorded")})
        used = used_by(self.source) - {"source"}
        asked = {name: value for name, value in self.asked.items() if name in used and value not in (None, [], "")}
        return Section(
            "What was run",
            [command, Facts(asked), Facts(seconds, "Time of each stage"),
             Facts({**known, **(record.get("versions") or {})}, "Made with")],
        )  # fmt: skip


def plan_titles(plan: sgm.Plan) -> list[str]:
    """Titles of the images of a plan's nodes: the node, and the steps from the start to it."""
    so_far = plan.start_distance + np.concatenate([[0.0], np.cumsum(plan.steps)])
    return [f"{node} · {steps:.0f} steps" for node, steps in zip(plan.nodes, so_far, strict=True)]


def _quality(facts: Mapping[str, Any]) -> list[Any]:
    """Table of the share of far pairs that the distance accepts as near; [] if it was not measured."""
    quality = facts.get("quality") or {}
    lines = [
        [Cell(f"{each['recall']:.0%}"), Cell(f"{each['threshold']:.1f} steps"), Cell(f"{each['false']:.2%}")]
        for each in quality.get("accepted") or []
    ]
    if not lines:
        return []
    by_place = quality.get("judged_by") == "positions"
    unit = "map units" if by_place else "steps of an episode"
    episodes = "held out from training" if quality.get("held_out") else "of the training data, because there are few"
    text = (
        f"Evaluated by {'true positions' if by_place else 'the steps between observations of an episode'}, on episodes "
        f"{episodes}. Near is "
        f"up to {quality.get('near', 0):.3g} {unit}, far is over {quality.get('far', 0):.3g}. False pairs are far but "
        "accepted as near, such as edges through walls."
    )
    if not by_place:
        text += " Episodes that return to an earlier place also count as false."
    return [Table(["Near pairs accepted", "Up to a distance of", "False among accepted"], lines), Note(text)]


def _result_line(each: Mapping[str, Any], name: str, result: Mapping[str, Any]) -> list[Cell]:
    """Row of the table of results."""
    low, high = result["ci95"]
    return [
        Cell(each["env"], ", ".join(f"{key}={value}" for key, value in (each.get("env_args") or {}).items())),
        Cell(name),
        Cell(f"{result['success_rate']:.1%}", f"[{low:.1%}, {high:.1%}]"),
        Cell(f"{result['episodes']:,}"),
        Cell(NONE if result["mean_steps"] is None else f"{result['mean_steps']:.0f}"),
        Cell(NONE if name != "agent" else f"{each['cleanup_steps']:,}"),
        Cell(f"{1000 * result['seconds_per_action']:.2f} ms"),
        Cell(str(each["seed"])),
    ]


def _by_task(each: Mapping[str, Any]) -> Table | None:
    results = {name: result["by_task"] for name, result in each["methods"].items() if result.get("by_task")}
    if not results:
        return None
    tasks = list(dict.fromkeys(task for result in results.values() for task in result))
    lines = [[Cell(name), *(Cell(_share(result.get(task))) for task in tasks)] for name, result in results.items()]
    return Table(["Task", *tasks], lines, f"{each['env']} by task")


def _share(result: Mapping[str, int] | None) -> str:
    return NONE if not result else f"{100 * result['successes'] / result['episodes']:.0f} %"


def _steps(value: Any) -> str | None:
    return None if value is None else f"{value:.3g} steps"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " × ".join(map(str, value)) or "one number"
    return f"{value:,}" if isinstance(value, int) else str(value)
