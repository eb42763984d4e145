"""Sparse Graphical Memory: a small, correct, self-repairing map for agents that plan from raw observations."""

import importlib
from typing import TYPE_CHECKING, Any

from . import controllers, data, distances
from .data import Experience
from .distances.table import TableDistance
from .errors import DistanceError, EmptyMemory, InputError, NoPath, SGMError, StoreError, UnknownEdge, UnknownNode
from .memory import (
    Attributes,
    Belief,
    Certificate,
    Choice,
    CleanupPolicy,
    Distance,
    Edges,
    Events,
    Evidence,
    ExtendReport,
    FirstFailure,
    Near,
    Plan,
    SecondFailure,
    SparseGraphicalMemory,
    Stats,
    ThresholdChoice,
    choose,
    choose_threshold,
)

if TYPE_CHECKING:
    from .navigation import Evaluation, Navigator, cleanup, collect, evaluate

__version__ = "1.0.0rc1"

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
    "Evaluation",
    "Events",
    "Evidence",
    "Experience",
    "ExtendReport",
    "FirstFailure",
    "InputError",
    "Navigator",
    "Near",
    "NoPath",
    "Plan",
    "SGMError",
    "SecondFailure",
    "SparseGraphicalMemory",
    "Stats",
    "StoreError",
    "TableDistance",
    "ThresholdChoice",
    "UnknownEdge",
    "UnknownNode",
    "__version__",
    "choose",
    "choose_threshold",
    "cleanup",
    "collect",
    "controllers",
    "data",
    "distances",
    "evaluate",
]

_NAVIGATION = ("Evaluation", "Navigator", "cleanup", "collect", "evaluate")  # imported when asked for, with Gymnasium


def __getattr__(name: str) -> Any:
    if name in _NAVIGATION:
        return getattr(importlib.import_module(".navigation", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
