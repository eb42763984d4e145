"""Statistics of a memory, and warnings about values that look wrong."""

from __future__ import annotations

import dataclasses
import html
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from sgm.errors import printable

from .attributes import describe
from .events import EventLog
from .graph import Graph
from .nodes import Nodes
from .planner import Planner
from .settings import Settings

ENOUGH_TO_JUDGE = 200  # fewest observations for a warning that hardly any were merged
_HARDLY_MERGED = 0.95  # share of nodes among the observations above which hardly any were merged


@dataclasses.dataclass(frozen=True)
class Stats:
    """Statistics of a memory.

    Attributes:
        observations: number of observations given so far.
        nodes: number of nodes.
        merged: number of observations merged into an existing node.
        edges: number of edges that plans may use.
        filtered_edges: number of edges that the k-nearest filter leaves out.
        removed_edges: number of edges that cleanup removed.
        guarded_edges: number of edges that the policy gave up and the guard keeps.
        spare_edges: number of edges added by the guard or `bridge`, except those removed since.
        components: number of strongly connected components.
        largest_component: number of nodes in the largest of them.
        untested_share: share of `edges` that were never tried; None without edges.
        median_edge: median weight of `edges`, steps; None without edges.
        longest_edge: greatest weight of `edges`, steps; None without edges.
        tries: number of recorded tries.
        successes: number of tries that reached their target.
        failures: number of tries that did not.
        events: number of events logged so far.
        events_kept: number of events that are still stored one by one.
        embedding_size: size of an embedding.
        feature_size: size of a feature vector.
        observation: dtype and shape of the stored observations; None if they are not stored.
        attributes: dtype and shape of each attribute, by name.
        index: how the nodes near an observation are found. "every node" computes all distances; "cells", "cover tree"
            and "brute force" are exact indexes over the embeddings. "… nearest candidates" is not exact: only so many
            nodes are compared, found by an exact index or by "usearch".
        bytes: RAM used, without the cached plans, bytes.
        file: path of the file of a live memory; None if the memory is not live.
        file_bytes: size of that file with its log, bytes.
        warnings: sentences about values that look wrong.
    """

    observations: int
    nodes: int
    merged: int
    edges: int
    filtered_edges: int
    removed_edges: int
    guarded_edges: int
    spare_edges: int
    components: int
    largest_component: int
    untested_share: float | None
    median_edge: float | None
    longest_edge: float | None
    tries: int
    successes: int
    failures: int
    events: int
    events_kept: int
    embedding_size: int
    feature_size: int
    observation: str | None
    attributes: dict[str, str]
    index: str
    bytes: int
    file: str | None
    file_bytes: int | None
    warnings: tuple[str, ...]

    def asdict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {**dataclasses.asdict(self), "warnings": list(self.warnings)}

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values as text for a table, without the warnings."""
        values = [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)]
        named = [(name.replace("_", " "), value) for name, value in values if name != "warnings"]
        return [(name, shown(name, value)) for name, value in named if value not in (None, {})]

    def __str__(self) -> str:
        """A table, then the warnings."""
        width = max(len(name) for name, _ in self.rows())
        lines = [f"{name:<{width}}  {value}" for name, value in self.rows()]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def measure(
    nodes: Nodes,
    graph: Graph,
    planner: Planner,
    log: EventLog,
    settings: Settings,
    tries: int,
    file: Path | None,
    index: str,
    held: int,
) -> Stats:
    """Compute the statistics of a memory.

    Args:
        nodes: its nodes.
        graph: its graph.
        planner: its planner.
        log: its event log.
        settings: its settings.
        tries: number of recorded tries.
        file: path of its file; None if it is not live.
        index: description of its index.
        held: RAM used, bytes.
    """
    standing = np.flatnonzero(planner.standing())
    weights = graph.weights(standing)
    evidence = graph.evidence.known()
    components, largest = planner.components() if len(nodes) else (0, 0)
    tried = evidence.edge[(evidence.successes > 0) | (evidence.failures > 0)]
    untested = np.count_nonzero(~np.isin(standing, tried))
    kept = nodes.observation
    removed = int(np.count_nonzero(graph.removed()))
    given = int(np.count_nonzero(nodes.assignment.values >= 0))
    return Stats(
        observations=len(nodes.assignment),
        nodes=len(nodes),
        merged=given - len(nodes),
        edges=len(standing),
        filtered_edges=len(graph) - removed - len(standing),
        removed_edges=removed,
        guarded_edges=int(np.count_nonzero(evidence.guarded)),
        spare_edges=int(np.count_nonzero(evidence.spare & ~evidence.removed)),
        components=components,
        largest_component=largest,
        untested_share=round(untested / len(standing), 4) if len(standing) else None,
        median_edge=round(float(np.median(weights)), 4) if len(standing) else None,
        longest_edge=round(float(weights.max()), 4) if len(standing) else None,
        tries=tries,
        successes=int(evidence.successes.sum(dtype=np.int64)),
        failures=int(evidence.failures.sum(dtype=np.int64)),
        events=len(log),
        events_kept=len(log) - log.folded,
        embedding_size=nodes.embedding.shape[1],
        feature_size=nodes.feature.shape[1],
        observation=None if kept is None else f"{kept.dtype} {kept.shape[1:]}",
        attributes=describe(nodes),
        index=index,
        bytes=held,
        file=None if file is None else str(file),
        file_bytes=None if file is None else bytes_on_disk(file),
        warnings=tuple(look_at(len(nodes), given, settings, len(standing), largest)),
    )


def look_at(number: int, given: int, settings: Settings, edges: int, largest: int, *, asked: bool = False) -> list[str]:
    """Return warnings, one sentence each, about a memory that is probably not what the user wants.

    Args:
        number: number of nodes.
        given: number of observations that are nodes or were merged.
        settings: settings of the memory.
        edges: number of edges that plans may use.
        largest: number of nodes in the largest strongly connected component.
        asked: whether the user asked for this number of nodes.
    """
    found = []
    few_merged = number == given > 1 or (given >= ENOUGH_TO_JUDGE and number > _HARDLY_MERGED * given)
    if few_merged and not asked and settings.criterion not in ("none", "uniform"):
        merged = "nothing was merged" if number == given else "hardly anything was merged"
        found.append(
            f"{merged}: {given:,} observations are {number:,} nodes. Raise tau_p "
            f"({settings.tau_p:g}) or tau_a ({settings.tau_a:g}), or let choose_threshold do it."
        )
    if not edges and number > 1:
        found.append(
            f"no edge can be used, so nothing can be planned: none was within max_dist={settings.max_dist:g}, or all "
            "were removed. Raise max_dist, or give episodes, whose consecutive observations are joined."
        )
    elif 2 * largest < number:
        found.append(
            f"the largest strongly connected component has {largest:,} of {number:,} nodes: most pairs of nodes have "
            "no path. Raise max_dist or k, give episodes (their consecutive observations are joined), explore more, "
            "or restore() removed edges."
        )
    return found


def bytes_on_disk(path: Path) -> int:
    """Size of a memory file with its write-ahead log, bytes."""
    total = 0
    for name in (path, path.with_name(path.name + "-wal")):
        if os.path.exists(name):
            total += os.path.getsize(name)
    return total


def shown(name: str, value: Any) -> str:
    """Format a value for people, safe to print."""
    if isinstance(value, dict):
        return printable(", ".join(f"{key}: {item}" for key, item in value.items()))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return printable(str(value))
    if name.endswith("bytes"):
        return _size(value)
    if name.endswith("share"):
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _size(number: float) -> str:
    power = min(3, int(math.log(max(number, 1), 1000)))
    return f"{number / 1000**power:.4g} {('bytes', 'kB', 'MB', 'GB')[power]}"


def as_html(stats: Stats) -> str:
    """Return the HTML table that notebooks show."""
    left = "style='text-align:left'"
    rows = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(value)}</td></tr>"
        for name, value in stats.rows()
    )
    notes = "".join(f"<p><b>Warning:</b> {html.escape(printable(text))}</p>" for text in stats.warnings)
    return f"<div><b>SparseGraphicalMemory</b><table>{rows}</table>{notes}</div>"
