"""Attributes: named arrays over the nodes, saved and exported with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgm.errors import InputError

from .arrays import as_array
from .nodes import Nodes
from .settings import shortened

RESERVED = ("node", "stream", "id")  # names that exports use for the number of a node and of its observation
_LONGEST_NAME = 100


class Attributes(MutableMapping[str, NDArray[Any]]):
    """The attributes of the nodes of a memory by name, each (V, ...): a dictionary whose values are checked and saved.

    Reading returns a copy; to change values, assign the whole array. Nodes added later without a value have NaN if the
    numbers are floating-point, otherwise 0.
    """

    def __init__(self, nodes: Nodes, write: Callable[[str, NDArray[Any] | None], None]) -> None:
        """Give access to the attributes of these nodes; `write` sets an attribute, or removes it if given None."""
        self._nodes = nodes
        self._write = write

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a copy of the (V, ...) values."""
        return np.array(self._nodes.attributes[self._known(name)].values)

    def __setitem__(self, name: str, values: Any) -> None:
        """Set the values of all nodes: (V, ...) numbers."""
        check_name(name)
        self._write(name, checked(name, values, len(self._nodes), "node"))

    def __delitem__(self, name: str) -> None:
        """Remove an attribute."""
        self._write(self._known(name), None)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(list(self._nodes.attributes))

    def __len__(self) -> int:
        """Number of attributes."""
        return len(self._nodes.attributes)

    def __contains__(self, name: object) -> bool:
        """Whether an attribute of this name exists."""
        return isinstance(name, str) and name in self._nodes.attributes

    def __repr__(self) -> str:
        """Names, dtypes and shapes."""
        return f"Attributes({describe(self._nodes)})"

    def _known(self, name: str) -> str:
        if name not in self:
            held = ", ".join(map(repr, self)) or "none"
            raise UnknownAttribute(f"no attribute is called {shortened(name)}; this memory has {held}")
        return name


class UnknownAttribute(InputError, KeyError):
    """The memory has no attribute with this name."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


def describe(nodes: Nodes) -> dict[str, str]:
    """Dtype and shape of each attribute, by name."""
    columns = {name: column.values for name, column in nodes.attributes.items()}
    return {name: f"{values.dtype} {values.shape[1:]}" for name, values in columns.items()}


def check_name(name: Any) -> None:
    """Raise InputError for a name that a file, a table or GraphML cannot hold."""
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME or name in RESERVED:
        raise InputError(
            f"an attribute is called {shortened(name)}: expected 1 to {_LONGEST_NAME} printable characters, and none "
            f"of {', '.join(RESERVED)}"
        )


def checked(name: str, values: Any, number: int, what: str) -> NDArray[Any]:
    """Return (number, ...) values of an attribute, one for each `what`; InputError if they are invalid."""
    array = as_array(f"attribute {name!r}", values)
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8 or 0 in array.shape[1:]:
        raise InputError(f"attribute {name!r} has dtype {array.dtype} and shape {array.shape}: expected numbers")
    if not array.ndim or len(array) != number:
        raise InputError(f"attribute {name!r} has shape {array.shape}: expected ({number}, ...), one for each {what}")
    return array


def checked_batch(attributes: Any, number: int, nodes: Nodes) -> dict[str, NDArray[Any]]:
    """Return the attributes given with a batch of observations, each with the dtype of its column."""
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping):
        raise InputError(f"attributes is {shortened(attributes)}: expected arrays by name")
    found = {}
    for name, values in attributes.items():
        check_name(name)
        array = checked(name, values, number, "observation")
        if name in nodes.attributes:
            held = nodes.attributes[name].values
            if array.shape[1:] != held.shape[1:] or not np.can_cast(array.dtype, held.dtype, "same_kind"):
                raise InputError(
                    f"attribute {name!r} has dtype {array.dtype} and shape {array.shape[1:]}: those of this memory "
                    f"have dtype {held.dtype} and shape {held.shape[1:]}"
                )
            array = array.astype(held.dtype, copy=False)
        found[name] = array
    return found
