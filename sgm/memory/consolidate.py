"""Consolidation: each node keeps the medoid of the observations merged into it, instead of the first one.

A single pass makes a node of every observation that differs from all nodes so far. The more observations it is given,
the more of its nodes are outliers with wrong distances. After the pass the observations of each node are known, and
their medoid is the least unusual one. Nodes with too few observations can be left out.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from sgm.errors import InputError, MemoryWarning
from sgm.progress import progress_bar

from .arrays import Ints
from .attributes import checked_batch
from .build import DROPPED, Builder, as_episodes
from .distance import Distance, Features, Floats, between, count, embed
from .events import EventLog
from .given import Given
from .graph import Graph
from .nodes import Nodes
from .settings import Settings, whole
from .single_steps import ONE_STEP

MEMBERS = 128  # most observations of a node among which the medoid is searched
SHARE = 0.2  # share of the average number of observations below which a node has too few
EMBED = 256  # observations embedded at once


def support(asked: int | str, observations: int, nodes: int) -> int:
    """Return the smallest number of observations that a node must have; "auto": a fifth of the average, at least 1."""
    if asked == "auto":
        return max(1, round(SHARE * observations / max(1, nodes)))
    if isinstance(asked, str):
        raise InputError(f"min_support is {asked!r}: expected a whole number, or 'auto'")
    return whole("min_support", asked, 1)


def middles(distance: Distance, embedding: Floats, assignment: Ints, least: int) -> tuple[Ints, Ints]:
    """Find the medoid of the observations of every node that has at least `least` of them.

    The medoid has the smallest sum of distances to and from the other observations; of equal ones the first is taken.
    Of more than 128 observations, 128 evenly spread in time are compared.

    Args:
        distance: distance of the memory.
        embedding: (n, e) embeddings of all observations.
        assignment: (n,) node of each observation; −1: none.
        least: smallest number of observations of a node; other nodes are left out.

    Returns:
        (v,) observations, ascending, and (v,) the nodes to which they belong.
    """
    order = np.argsort(assignment, kind="stable")
    order = order[assignment[order] >= 0]
    ends = np.cumsum(np.bincount(assignment[order]))
    found, nodes = [], []
    for node, members in enumerate(np.split(order, ends[:-1])):
        if len(members) < max(1, least):
            continue
        if len(members) > MEMBERS:
            members = members[np.linspace(0, len(members) - 1, MEMBERS).astype(np.int64)]
        steps = between(distance, embedding[members], embedding[members]).astype(np.float64)
        found.append(members[(steps.sum(axis=0) + steps.sum(axis=1)).argmin()])
        nodes.append(node)
    rows, of = np.array(found, np.int64), np.array(nodes, np.int64)
    by_time = np.argsort(rows)
    return rows[by_time], of[by_time]


def rebuilt(
    settings: Settings,
    distance: Distance,
    features: Features | None,
    given: Given,
    embedding: Floats,
    assignment: Ints,
    least: int,
) -> Builder:
    """Build nodes and edges from the medoids, and assign all observations to them.

    Args:
        settings: settings of the memory.
        distance: distance of the memory.
        features: feature function of the memory.
        given: all observations, with their episodes and attributes.
        embedding: (n, e) embeddings of the observations.
        assignment: (n,) previous node of each observation; −1: none.
        least: smallest number of observations that a node must have.
    """
    rows, of = middles(distance, embedding, assignment, least)
    if not len(rows):
        most = int(np.bincount(assignment[assignment >= 0]).max(initial=0))
        raise InputError(f"min_support is {least}, but no node has more than {most} observations: lower it")
    attributes = checked_batch(given.attributes, len(assignment), Nodes())
    kept = {name: values[rows] for name, values in attributes.items()}
    builder = Builder(Nodes(), Graph(), EventLog(), dataclasses.replace(settings, criterion="none", size=None))
    builder.graph.set_filter(settings.k)
    builder.graph.set_reversible(settings.reversible)
    undo = builder.mark()
    chosen = _taken(given.observations, rows)
    builder.extend(distance, features, chosen, None, kept, None, undo, progress_bar(shown=False))
    builder.settings = settings
    place = np.full(int(assignment.max()) + 1, DROPPED)
    place[of] = np.arange(len(of))
    moved = np.where(assignment >= 0, place[assignment], DROPPED)
    builder.nodes.stream.values[:] = rows
    builder.nodes.assignment.cut(0)
    builder.nodes.assignment.append(moved)
    episodes = as_episodes(given.episode, len(assignment))
    if episodes is not None:
        builder.join_in_time(moved, episodes, given.steps, undo)
    return builder


def _taken(observations: Any, rows: Ints) -> Any:
    """Select rows of an array or of any other sequence."""
    return observations[rows] if hasattr(observations, "shape") else [observations[row] for row in rows.tolist()]


def consolidate(
    built: Builder, distance: Distance, features: Features | None, given: Given, least: int | str, progress: bool
) -> Builder:
    """Consolidate the nodes of a memory, see `rebuilt`; `given` must hold all observations that it was given."""
    assignment = built.nodes.assignment.values
    total = count(given.observations)
    if total != len(assignment):
        raise InputError(
            f"consolidated got {total} observations, but the memory was given {len(assignment)}: it needs all of them, "
            "in order"
        )
    least = support(least, int(np.count_nonzero(assignment >= 0)), len(built.nodes))
    embedding = np.empty((total, built.nodes.embedding.shape[1]), np.float32)
    with progress_bar(shown=progress, total=total, desc="consolidate", unit="obs") as bar:
        for low in range(0, total, EMBED):
            part = slice(low, low + EMBED)
            embedding[part] = embed(distance, given.observations[part], embedding.shape[1])
            bar.update(len(embedding[part]))
    if not np.allclose(embedding[built.nodes.stream.values], built.nodes.embedding, rtol=1e-3, atol=1e-5):
        raise InputError("these are not the observations that the memory was built from, or not in the same order")
    lost = [name for name in built.nodes.attributes if name != ONE_STEP and name not in (given.attributes or {})]
    if lost:
        warnings.warn(
            f"the consolidated memory has no {', '.join(lost)}: its nodes keep other observations. Give attributes= "
            "again, a row for each observation",
            MemoryWarning,
            stacklevel=4,
        )
    found = rebuilt(built.settings, distance, features, given, embedding, assignment, least)
    found.tail = None if given.whole_episodes else found.tail
    return found
