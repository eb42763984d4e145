"""The errors of this package. Each message says what was given, what is accepted and what to do."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with every character escaped that a terminal would obey instead of show."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


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
    """A file cannot be opened, read or written. What the file contains is escaped in the message."""

    def __init__(self, message: str) -> None:
        """Make the message printable."""
        super().__init__(printable(message))


class WorkerError(SGMError):
    """A worker that acts elsewhere has failed, or workers do nothing but die."""


class MemoryWarning(UserWarning):
    """A memory that is probably not as its user wants it; the message says what to try."""


class MissingExtra(SGMError, ModuleNotFoundError):
    """A part of this package needs a library that is not installed."""

    def __init__(self, what: str, extra: str, cause: ModuleNotFoundError) -> None:
        """Say what needs the library that `cause` names, and the extra that installs it."""
        command = f"pip install 'sparse-graphical-memory[{extra}]'"
        super().__init__(f"{what} needs {cause.name}: {command}", name=cause.name)
