"""The memory itself: needs NumPy, SciPy and sqlite3, and nothing else of this package."""

from .build import ExtendReport
from .certificate import Certificate
from .distance import Distance
from .errors import (
    DistanceError,
    EmptyMemory,
    InputError,
    NoPath,
    SGMError,
    StoreError,
    UnknownEdge,
    UnknownNode,
)
from .graph import Edges
from .memory import SparseGraphicalMemory
from .plan import Plan
from .planner import Near
from .policies import Belief, CleanupPolicy, Evidence, FirstFailure, SecondFailure
from .sparsity import ThresholdChoice, choose_threshold

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
    "ThresholdChoice",
    "UnknownEdge",
    "UnknownNode",
    "choose_threshold",
]
