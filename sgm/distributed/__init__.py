"""Many workers, one memory: one owner takes in what workers try, here, in other processes or on a Ray cluster."""

from .api import cleanup, collect
from .backends import BACKENDS
from .cleaning import Crew, CrewReport

__all__ = ["BACKENDS", "Crew", "CrewReport", "cleanup", "collect"]
