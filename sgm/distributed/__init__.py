"""Many workers for one memory: an owner applies the evidence of workers in processes or on a Ray cluster."""

from .api import cleanup, collect
from .backends import BACKENDS
from .cleaning import Crew, CrewReport

__all__ = ["BACKENDS", "Crew", "CrewReport", "cleanup", "collect"]
