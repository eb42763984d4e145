"""Nodes: embeddings, features, stored observations and attributes, and the node of each observation given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .arrays import Column, Ints

Floats = NDArray[np.float32]


class Nodes:
    """Columns over nodes, and one column over the stream of observations (`assignment`).

    The first rows appended set the widths of the columns. The embeddings are also the features unless separate features
    are given.
    """

    def __init__(self) -> None:
        """Make an empty table."""
        self.stream = Column(np.int64)
        self.assignment = Column(np.int64)
        self._embedding: Column | None = None
        self._feature: Column | None = None
        self._observation: Column | None = None
        self.attributes: dict[str, Column] = {}

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.stream)

    @property
    def embedding(self) -> Floats:
        """(V, e) float32 embeddings; (0, 0) before the first node."""
        return np.empty((0, 0), np.float32) if self._embedding is None else self._embedding.values

    @property
    def feature(self) -> Floats:
        """(V, f) float32 features; (0, 0) before the first node."""
        return self.embedding if self._feature is None else self._feature.values

    @property
    def observation(self) -> NDArray[Any] | None:
        """(V, ...) observations; None if they are not stored."""
        return None if self._observation is None else self._observation.values

    @property
    def embedding_width(self) -> int | None:
        """Size e of an embedding; None before the first node."""
        return None if self._embedding is None else self.embedding.shape[1]

    @property
    def feature_width(self) -> int | None:
        """Size f of a feature vector; None before the first node."""
        return None if self._embedding is None else self.feature.shape[1]

    @property
    def has_own_features(self) -> bool:
        """Whether the features are separate from the embeddings."""
        return self._feature is not None

    @property
    def nbytes(self) -> int:
        """Size of all columns over nodes, bytes."""
        return sum(column.nbytes for column in self._columns())

    def append(self, stream: Ints, embedding: Floats, feature: Floats | None, observation: NDArray[Any] | None) -> None:
        """Add nodes; `feature` and `observation` must each be given always or never."""
        if self._embedding is None:
            self._embedding = Column(np.float32, embedding.shape[1:])
            self._feature = None if feature is None else Column(np.float32, feature.shape[1:])
            self._observation = None if observation is None else Column(observation.dtype, observation.shape[1:])
        self.stream.append(stream)
        self._embedding.append(embedding)
        if self._feature is not None and feature is not None:
            self._feature.append(feature)
        if self._observation is not None and observation is not None:
            self._observation.append(observation)

    def check_observations(self, observations: NDArray[Any]) -> None:
        """Raise InputError for observations that cannot be stored, or differ from those stored in dtype or shape."""
        if observations.dtype.kind not in "fiub":
            raise InputError(f"keep_observations takes arrays of numbers; got dtype {observations.dtype}")
        if 0 in observations.shape[1:]:
            raise InputError(f"observations have shape {observations.shape[1:]}: expected at least one number each")
        kept = self.observation
        if kept is not None and (kept.dtype, kept.shape[1:]) != (observations.dtype, observations.shape[1:]):
            raise InputError(
                f"observations of dtype {observations.dtype} and shape {observations.shape[1:]} do not fit those kept: "
                f"dtype {kept.dtype}, shape {kept.shape[1:]}"
            )

    def set_attribute(self, name: str, values: NDArray[Any]) -> None:
        """Set an attribute of all nodes, (V, ...); previous values are replaced."""
        column = Column(values.dtype, values.shape[1:])
        column.append(values)
        self.attributes[name] = column

    def append_attributes(self, first: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Set attributes, (n, ...) by name, of the nodes from `first` on; other values are filled in as missing."""
        for name, rows in values.items():
            if name not in self.attributes:
                self.set_attribute(name, missing(first, rows.dtype, rows.shape[1:]))
            self.attributes[name].append(rows)
        for column in self.attributes.values():
            column.append(missing(len(self) - len(column), column.values.dtype, column.values.shape[1:]))

    def first(self, nodes: int, stream: int) -> Nodes:
        """Return a copy of the first `nodes` nodes and the first `stream` assignments."""
        copy = Nodes()
        kept = self.observation
        if self._embedding is not None:
            copy.append(
                self.stream.values[:nodes],
                self.embedding[:nodes],
                self.feature[:nodes] if self.has_own_features else None,
                None if kept is None else kept[:nodes],
            )
        copy.assignment.append(self.assignment.values[:stream])
        for name, column in self.attributes.items():
            copy.set_attribute(name, column.values[:nodes])
        return copy

    def cut(self, nodes: int, stream: int) -> None:
        """Remove the nodes and assignments with these numbers and higher."""
        for column in self._columns():
            column.cut(min(nodes, len(column)))
        self.assignment.cut(stream)
        if not nodes:
            self._embedding = self._feature = self._observation = None

    def _columns(self) -> list[Column]:
        optional = (self._embedding, self._feature, self._observation)
        return [self.stream, *(column for column in optional if column is not None), *self.attributes.values()]


def missing(number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """(n, ...) placeholders of missing values: NaN for floating-point numbers, otherwise 0."""
    return np.full((number, *shape), np.nan if dtype.kind == "f" else 0, dtype)
