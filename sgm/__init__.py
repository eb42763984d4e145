"""Sparse Graphical Memory: a small, correct, self-repairing map for agents that plan from raw observations."""

from .distances.table import TableDistance
from .memory import (
    Belief,
    Certificate,
    CleanupPolicy,
    Distance,
    DistanceError,
    Edges,
    EmptyMemory,
    Evidence,
    ExtendReport,
    FirstFailure,
    InputError,
    Near,
    NoPath,
    Plan,
    SecondFailure,
    SGMError,
    SparseGraphicalMemory,
    StoreError,
    UnknownEdge,
    UnknownNode,
)

__version__ = "0.1.0"

__all__ = [
    "Belief",
    "Certificate",
    "CleanupPolicy",
    "Distance",
    "DistanceError",
    "Edges",
    "EmptyMemory",
    "Evidence",
    "ExtendReport",
    "FirstFailure",
    "InputError",
    "Near",
    "NoPath",
    "Plan",
    "SGMError",
    "SecondFailure",
    "SparseGraphicalMemory",
    "StoreError",
    "TableDistance",
    "UnknownEdge",
    "UnknownNode",
    "__version__",
]
