"""What an agent has seen, as one type, whatever it comes from."""

from .experience import Experience

__all__ = ["Experience"]
