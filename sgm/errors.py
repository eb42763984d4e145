"""Error and warning classes of this package. Each message says what was given, what is accepted and what to do."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape all non-printable characters of a text, such as terminal control codes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


class SGMError(Exception):
    """Base class of all errors that this package raises deliberately."""


class InputError(SGMError, ValueError):
    """An argument is invalid."""


class DistanceError(InputError):
    """The distance function or the feature function returned invalid values."""


class UnknownNode(InputError, IndexError):
    """The memory has no node with this id."""


class UnknownEdge(InputError, LookupError):
    """The memory has no edge between these two nodes."""


class NoPath(SGMError):
    """No sequence of edges leads from the start to the goal."""


class EmptyMemory(NoPath):
    """The memory has no nodes yet, so no plan is possible."""


class StoreError(SGMError):
    """A file cannot be opened, read or written. Non-printable characters in the message are escaped."""

    def __init__(self, message: str) -> None:
        """Make the message printable."""
        super().__init__(printable(message))


class WorkerError(SGMError):
    """A worker in another process has failed, or workers crash repeatedly without any progress."""


class MemoryWarning(UserWarning):
    """The memory is probably not what the user wants; the message says what to try."""


class MissingExtra(SGMError, ModuleNotFoundError):
    """A part of this package needs a library that is not installed."""

    def __init__(self, what: str, extra: str, cause: ModuleNotFoundError) -> None:
        """Make the message.

        Args:
            what: the part of the package that needs the library.
            extra: the extra of the package that installs the library.
            cause: the failed import, which names the library.
        """
        command = f"pip install 'sparse-graphical-memory[{extra}]'"
        super().__init__(f"{what} needs {cause.name}: {command}", name=cause.name)
