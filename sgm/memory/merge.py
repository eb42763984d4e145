"""Merge two memories of one distance: the nodes of the other memory are added by the same rule as observations.

The result equals that of `extend` with the observations of the other memory's nodes, and with its episodes, attributes
and tries.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .arrays import Column, Ints
from .attributes import checked_batch
from .build import DROPPED, Undo
from .distance import Distance, Floats, between
from .events import FAILED, NO_EPISODE, REACHED
from .policies import Evidence
from .settings import Settings

if TYPE_CHECKING:
    from .memory import SparseGraphicalMemory

_FREE = ("k", "size", "seed", "keep_observations")  # settings that do not affect merges
_SAMPLE = 64  # edges of the other memory whose distances are computed again
_CLOSE = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class MergeReport:
    """Result of merging another memory into this one.

    Attributes:
        added: number of its nodes that became nodes.
        merged: number of its nodes that were merged into a node.
        assignment: (V,) int64 the node that each of its nodes became or was merged into.
        records: number of tries of its edges that were recorded for edges of this memory.
        without_edge: number of tries without such an edge: both ends became one node, or the nodes are too far apart.
    """

    added: int
    merged: int
    assignment: Ints
    records: int
    without_edge: int

    def asdict(self) -> dict[str, Any]:
        """Return plain lists and numbers, ready for JSON."""
        return {**dataclasses.asdict(self), "assignment": self.assignment.tolist()}


class _Stored:
    """A distance whose observations are node numbers; it returns their stored embeddings."""

    def __init__(self, distance: Distance, embedding: Floats) -> None:
        self._distance, self._embedding = distance, embedding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._distance, name)

    def embed(self, observations: Any) -> Floats:
        rows: Floats = self._embedding[np.asarray(observations)]
        return rows

    def __call__(self, starts: Floats, goals: Floats) -> Floats:
        return self._distance(starts, goals)


def check_mergeable(memory: SparseGraphicalMemory, other: Any) -> None:
    """Raise InputError unless `other` is another memory with the same distance, features and merge settings."""
    if not isinstance(other, type(memory)) or other is memory:
        raise InputError(f"got {type(other).__name__}: expected another SparseGraphicalMemory")
    if memory.settings.criterion == "uniform":
        raise InputError("this memory samples uniformly within one call of extend: such memories cannot be merged")
    mine, theirs = _rules(memory.settings), _rules(other.settings)
    if differing := [f"{name} ({mine[name]!r}, {theirs[name]!r})" for name in mine if mine[name] != theirs[name]]:
        raise InputError(f"the memories have different settings: {', '.join(differing)}. Build both with the same")
    facts = [one._made_with or one._feature_facts() for one in (memory, other)]
    if facts[0] != facts[1]:
        raise InputError(f"the memories have different features: {facts[0]} and {facts[1]}. Build both with the same")
    if memory.settings.keep_observations and not other.settings.keep_observations and len(other):
        raise InputError("this memory keeps observations, and the other one does not: build both in the same way")
    if memory.fingerprint and other.fingerprint and memory.fingerprint != other.fingerprint:
        raise InputError(
            f"the memories were made with different distances: fingerprints {memory.fingerprint} and "
            f"{other.fingerprint}"
        )
    _check_distance(memory, other)


def _rules(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.asdict().items() if name not in _FREE}


def _check_distance(memory: SparseGraphicalMemory, other: SparseGraphicalMemory) -> None:
    """Raise InputError if the distance of this memory disagrees with the stored edges of the other."""
    width = memory._nodes.embedding_width
    if width is not None and len(other) and other._nodes.embedding_width != width:
        raise InputError(f"embeddings have {width} and {other._nodes.embedding_width} numbers: expected one distance")
    graph, embedding = other._graph, other._nodes.embedding
    known = np.flatnonzero(np.isfinite(graph.distance.values))
    if not len(known):
        return
    sample = known[np.linspace(0, len(known) - 1, min(_SAMPLE, len(known))).astype(np.int64)]
    ends = embedding[graph.source.values[sample]], embedding[graph.target.values[sample]]
    steps, held = np.diag(between(memory.distance, *ends)), graph.distance.values[sample]
    if (np.abs(steps - held) > _CLOSE * (held + held.max())).any():
        raise InputError("the other memory was made with another distance: by this one its edges have other lengths")


def merge(memory: SparseGraphicalMemory, other: SparseGraphicalMemory, undo: Undo, progress: Any) -> MergeReport:
    """Add another memory; changes are noted in `undo`, those of evidence in `Cleanup.before`."""
    builder, nodes = memory._builder, memory._nodes
    numbers = np.arange(len(other))
    attributes = {name: column.values for name, column in other._nodes.attributes.items()}
    given = checked_batch(attributes, len(other), nodes)
    features = None
    if other._nodes.has_own_features:
        held = other._nodes.feature

        def features(chosen: Any) -> Floats:
            rows: Floats = held[np.asarray(chosen)]
            return rows

    settings, builder.settings = builder.settings, dataclasses.replace(builder.settings, keep_observations=False)
    builder.tail = builder._tail_step = None
    try:
        stored = _Stored(memory.distance, other._nodes.embedding)
        report = builder.extend(stored, features, numbers, None, given, None, undo, progress)
    finally:
        builder.settings = settings
    new = nodes.stream.values[undo.nodes :] - undo.stream  # numbers in the other memory of the nodes that became nodes
    if settings.keep_observations and len(other):
        _keep_observations(memory, other, new)
    nodes.stream.values[undo.nodes :] = undo.stream + other._nodes.stream.values[new]
    nodes.assignment.cut(undo.stream)
    theirs = other._nodes.assignment.values
    nodes.assignment.append(np.where(theirs >= 0, report.assignment[theirs], DROPPED) if len(theirs) else theirs)
    _join_in_time(memory, other, report.assignment, undo)
    records, lost = _record(memory, other, report.assignment)
    return MergeReport(report.added, report.merged, report.assignment, records, lost)


def _keep_observations(memory: SparseGraphicalMemory, other: SparseGraphicalMemory, new: Ints) -> None:
    nodes, kept = memory._nodes, other._nodes.observation
    assert kept is not None
    nodes.check_observations(kept)
    if nodes._observation is None:
        nodes._observation = Column(kept.dtype, kept.shape[1:])
    nodes._observation.append(kept[new])


def _join_in_time(memory: SparseGraphicalMemory, other: SparseGraphicalMemory, node_of: Ints, undo: Undo) -> None:
    """Add the edges in time of the other memory, each as an episode of two observations."""
    graph = other._graph
    walked = np.flatnonzero(graph.temporal.values)
    if not len(walked):
        return
    ends = np.stack([node_of[graph.source.values[walked]], node_of[graph.target.values[walked]]], axis=1)
    steps = np.stack([np.zeros(len(walked), np.int64), graph.temporal.values[walked].astype(np.int64)], axis=1)
    builder = memory._builder
    builder.join_in_time(ends.ravel(), np.repeat(np.arange(len(walked)), 2), steps.ravel(), undo)
    builder.tail = builder._tail_step = None


# -- tries -------------------------------------------------------------------------------------------------------


def _record(memory: SparseGraphicalMemory, other: SparseGraphicalMemory, node_of: Ints) -> tuple[int, int]:
    """Record the tries of the other memory in order, and remove edges that were removed by hand there.

    The policy of this memory decides which edges the tries remove. Returns the numbers of tries with and without an
    edge in this memory.
    """
    edges = other._graph
    place = [
        memory._graph.find(int(u), int(v)) if u != v else None
        for u, v in zip(node_of[edges.source.values], node_of[edges.target.values], strict=True)
    ]
    tried_here = set(memory._graph.evidence)
    tries = _tries(other)
    found = [(place[edge], reached) for edge, reached in tries if place[edge] is not None]
    cleanup, outcomes = memory._cleanup, [reached for _, reached in found]
    cleanup.record([int(edge) for edge, _ in found if edge is not None], outcomes, [NO_EPISODE] * len(found), None)
    for edge, known in sorted(edges.evidence.items()):
        here = place[edge]
        if here is not None and known.removed_at is not None and not known.attempts and here not in tried_here:
            assert cleanup.before is not None
            cleanup.before.setdefault(here, memory._graph.evidence.row(here))
            cleanup.remove(here, None)
    return len(found), len(tries) - len(found)


def _tries(memory: SparseGraphicalMemory) -> list[tuple[int, bool]]:
    """List all tries of a memory as (edge, reached); those of folded events come first, so that streaks are equal."""
    tries: list[tuple[int, bool]] = []
    for edge, known in sorted(memory._log.evidence.items()):
        tries += [(edge, reached) for reached in _in_order(known)]
    rows: NDArray[Any] = memory._log.rows
    rows = rows[(rows["kind"] == REACHED) | (rows["kind"] == FAILED)]
    return tries + list(zip(rows["edge"].tolist(), (rows["kind"] == REACHED).tolist(), strict=True))


def _in_order(known: Evidence) -> list[bool]:
    """Return tries that lead to this evidence: failures, successes, and the failures since the last success."""
    return [False] * (known.failures - known.streak) + [True] * known.successes + [False] * known.streak
