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
    MergeReport,
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
    from .distributed import cleanup, collect
    from .navigation import Evaluation, Navigator, evaluate

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
    "MergeReport",
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

# Imported on first access, because these modules import Gymnasium.
_LATER = dict.fromkeys(("Evaluation", "Navigator", "evaluate"), ".navigation")
_LATER |= dict.fromkeys(("cleanup", "collect"), ".distributed")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
