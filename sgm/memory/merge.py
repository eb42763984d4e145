"""Merging two memories of one distance: the nodes of the other go through the rule that observations go through.

The result is what `extend` would have made of the observations that the other's nodes keep, with the other's episodes,
attributes and tries.
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

_FREE = ("k", "size", "seed", "keep_observations")  # settings that do not decide what is merged
_SAMPLE = 64  # nodes of the other by which a distance without a fingerprint is compared
_CLOSE = 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class MergeReport:
    """What became of the other memory.

    Attributes:
        added: how many of its nodes became nodes.
        merged: how many were merged into a node.
        assignment: (V,) int64 the node that each of its nodes became or was merged into.
        records: tries of its edges that count for edges here.
        without_edge: tries of edges that are none here: both ends went to one node, or their nodes are too far apart.
    """

    added: int
    merged: int
    assignment: Ints
    records: int
    without_edge: int

    def asdict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        return {**dataclasses.asdict(self), "assignment": self.assignment.tolist()}


class _Stored:
    """A distance whose observations are numbers of nodes, which have been embedded before."""

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
    """InputError unless `other` is another memory of the same distance, features and rules of merging."""
    if not isinstance(other, type(memory)) or other is memory:
        raise InputError(f"got {type(other).__name__}: expected another SparseGraphicalMemory")
    if memory.settings.criterion == "uniform":
        raise InputError("this memory samples uniformly within one call of extend: such memories cannot be merged")
    mine, theirs = _rules(memory.settings), _rules(other.settings)
    if differing := [f"{name} ({mine[name]!r}, {theirs[name]!r})" for name in mine if mine[name] != theirs[name]]:
        raise InputError(f"the memories merge by other rules: {', '.join(differing)} differ. Build both with the same")
    facts = [one._made_with or one._feature_facts() for one in (memory, other)]
    if facts[0] != facts[1]:
        raise InputError(f"the memories have other features: {facts[0]} and {facts[1]}. Build both with the same")
    if memory.settings.keep_observations and not other.settings.keep_observations and len(other):
        raise InputError("this memory keeps observations, and the other one does not: make both the same way")
    if memory.fingerprint and other.fingerprint and memory.fingerprint != other.fingerprint:
        raise InputError(
            f"the memories were made with other distances: fingerprints {memory.fingerprint} and {other.fingerprint}"
        )
    _check_distance(memory, other)


def _rules(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.asdict().items() if name not in _FREE}


def _check_distance(memory: SparseGraphicalMemory, other: SparseGraphicalMemory) -> None:
    """InputError if this memory's distance does not say what the other holds of some of its edges."""
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
        raise InputError("the other memory was made with another distance: its edges have other lengths by this one")


def merge(memory: SparseGraphicalMemory, other: SparseGraphicalMemory, undo: Undo, progress: Any) -> MergeReport:
    """Take in another memory, noting in `undo` what has to be undone; evidence goes to `Cleanup.before`."""
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
    new = nodes.stream.values[undo.nodes :] - undo.stream  # the numbers of the other's nodes that became nodes
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
    """Edges that episodes went through in the other memory, each as an episode of two observations."""
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
    """Record the other's tries here, in their order, and remove what was removed by hand there; tries with and without.

    The policy of this memory decides what they lead to.
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
            cleanup.before.setdefault(here, memory._graph.evidence.get(here))
            cleanup.remove(here, None)
    return len(found), len(tries) - len(found)


def _tries(memory: SparseGraphicalMemory) -> list[tuple[int, bool]]:
    """Every try of a memory: (edge, reached); those whose events are folded first, so that streaks are the same."""
    tries: list[tuple[int, bool]] = []
    for edge, known in sorted(memory._log.evidence.items()):
        tries += [(edge, reached) for reached in _in_order(known)]
    rows: NDArray[Any] = memory._log.rows
    rows = rows[(rows["kind"] == REACHED) | (rows["kind"] == FAILED)]
    return tries + list(zip(rows["edge"].tolist(), (rows["kind"] == REACHED).tolist(), strict=True))


def _in_order(known: Evidence) -> list[bool]:
    """Tries that lead to this evidence: failures, successes, and the failures since the last success."""
    return [False] * (known.failures - known.streak) + [True] * known.successes + [False] * known.streak
