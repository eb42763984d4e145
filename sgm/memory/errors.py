"""The errors of the memory. Each message says what was given, what is accepted and what to do."""

from __future__ import annotations


class SGMError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SGMError, ValueError):
    """An argument is not what it should be."""


class DistanceError(InputError):
    """The distance function (or the feature function) returned something it should not."""


class UnknownNode(InputError, IndexError):
    """A node id that the memory does not hold."""


class UnknownEdge(InputError, LookupError):
    """A pair of nodes that no edge joins."""


class NoPath(SGMError):
    """No sequence of edges leads from the start to the goal."""


class EmptyMemory(NoPath):
    """The memory holds no node yet, so there is nothing to plan on."""


class StoreError(SGMError):
    """A memory file cannot be opened, read or written."""
