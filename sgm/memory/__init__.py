"""The memory: nodes, edges, plans, cleanup and files. It needs only NumPy, SciPy and sqlite3."""

from sgm.errors import (
    DistanceError,
    EmptyMemory,
    InputError,
    NoPath,
    SGMError,
    StoreError,
    UnknownEdge,
    UnknownNode,
)

from .attributes import Attributes
from .build import ExtendReport
from .certificate import Certificate
from .choose import Choice, choose
from .distance import Distance
from .events import Events
from .graph import Edges
from .memory import SparseGraphicalMemory
from .merge import MergeReport
from .plan import Plan
from .planner import Near, Tree
from .policies import Belief, CleanupPolicy, Evidence, FirstFailure, SecondFailure
from .stats import Stats
from .threshold import ThresholdChoice, choose_threshold

__all__ = [
    "Attributes",
    "Belief",
    "Certificate",
    "Choice",
    "CleanupPolicy",
    "Distance",
    "DistanceError",
    "Edges",
    "EmptyMemory",
    "Events",
    "Evidence",
    "ExtendReport",
    "FirstFailure",
    "InputError",
    "MergeReport",
    "Near",
    "NoPath",
    "Plan",
    "SGMError",
    "SecondFailure",
    "SparseGraphicalMemory",
    "Stats",
    "StoreError",
    "ThresholdChoice",
    "Tree",
    "UnknownEdge",
    "UnknownNode",
    "choose",
    "choose_threshold",
]
