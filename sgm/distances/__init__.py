"""Asymmetric distances, one file each. Importing this package imports no learning framework."""

from .table import TableDistance

__all__ = ["TableDistance"]
