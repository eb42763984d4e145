"""Export a memory to other formats: NetworkX, SciPy, GraphML, CSV."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sgm.errors import SGMError, StoreError

from .policies import Evidence

if TYPE_CHECKING:
    from .memory import SparseGraphicalMemory

_EDGE_FIELDS = {"weight": "double", "attempts": "long", "successes": "long", "failures": "long"}
_TYPES = {"f": "double", "i": "long", "u": "long", "b": "boolean"}
MOST_NUMBERS = 16  # text formats have a column for each number of an attribute; longer ones, as images, are left out


def to_scipy(memory: SparseGraphicalMemory, filtered: bool) -> csr_array:
    """Return the (V, V) matrix of weights; an edge of weight 0 is a stored zero."""
    edges = memory.edges(filtered)
    start = np.concatenate([[0], np.cumsum(np.bincount(edges.source, minlength=len(memory)))])
    return csr_array((edges.weight, edges.target, start), shape=(len(memory), len(memory)))


def to_networkx(memory: SparseGraphicalMemory, filtered: bool) -> Any:
    """Return a networkx.DiGraph with node and edge attributes; attributes that are arrays stay arrays."""
    try:
        import networkx
    except ImportError as error:
        raise SGMError("to_networkx needs networkx: pip install 'sparse-graphical-memory[viz]'") from error
    columns: dict[str, Any] = {"stream": memory.nodes.tolist()}
    for name, values in memory.attributes.items():
        columns[name] = values.tolist() if values.ndim == 1 else values
    graph = networkx.DiGraph()
    graph.add_nodes_from((node, {name: columns[name][node] for name in columns}) for node in range(len(memory)))
    graph.add_edges_from(edge_rows(memory, filtered))
    return graph


def edge_rows(memory: SparseGraphicalMemory, filtered: bool) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield source, target, weight and evidence of each edge."""
    edges = memory.edges(filtered)
    known, nothing = memory.tried(), Evidence()
    for source, target, weight in zip(*(column.tolist() for column in edges), strict=True):
        tried = known.get((source, target), nothing)
        counts = {"attempts": tried.attempts, "successes": tried.successes, "failures": tried.failures}
        yield source, target, {"weight": weight, **counts}


def node_columns(memory: SparseGraphicalMemory) -> dict[str, NDArray[Any]]:
    """(V,) columns over nodes: the stream number, and one column for each number of the attributes."""
    columns = {"stream": memory.nodes}
    for name, values in memory.attributes.items():
        flat = values.reshape(len(memory), -1) if len(memory) else values.reshape(0, int(np.prod(values.shape[1:])))
        if values.ndim == 1:
            columns[name] = values
        elif flat.shape[1] <= MOST_NUMBERS:
            taken = {*columns, *memory.attributes}
            alike = any(f"{name}_{place}" in taken for place in range(flat.shape[1]))
            pattern = "{}[{}]" if alike else "{}_{}"
            columns |= {pattern.format(name, place): flat[:, place] for place in range(flat.shape[1])}
    return columns


def left_out(memory: SparseGraphicalMemory) -> list[str]:
    """Names of the attributes that text formats leave out."""
    return [name for name, values in memory.attributes.items() if int(np.prod(values.shape[1:])) > MOST_NUMBERS]


def to_graphml(memory: SparseGraphicalMemory, path: Path, filtered: bool) -> None:
    """Write GraphML."""
    from xml.sax.saxutils import quoteattr  # imported here because it imports urllib and http

    columns = node_columns(memory)
    with _new_text(path) as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
        for place, (name, values) in enumerate(columns.items()):
            kind = _TYPES[values.dtype.kind]
            file.write(f'<key id="n{place}" for="node" attr.name={quoteattr(name)} attr.type="{kind}"/>\n')
        for name, kind in _EDGE_FIELDS.items():
            file.write(f'<key id="{name}" for="edge" attr.name="{name}" attr.type="{kind}"/>\n')
        file.write('<graph edgedefault="directed">\n')
        for node, row in enumerate(_text_rows(columns)):
            data = "".join(f'<data key="n{place}">{text}</data>' for place, text in enumerate(row))
            file.write(f'<node id="{node}">{data}</node>\n')
        for source, target, facts in edge_rows(memory, filtered):
            data = "".join(f'<data key="{name}">{value}</data>' for name, value in facts.items())
            file.write(f'<edge source="{source}" target="{target}">{data}</edge>\n')
        file.write("</graph>\n</graphml>\n")


def to_csv(memory: SparseGraphicalMemory, path: Path, filtered: bool) -> Path:
    """Write a CSV file with a line for each edge, and a second one for the nodes; return the path of the second."""
    with _new_text(path) as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target", *_EDGE_FIELDS])
        for source, target, values in edge_rows(memory, filtered):
            writer.writerow([source, target, *values.values()])
    nodes = path.with_name(f"{path.stem}.nodes{path.suffix or '.csv'}")
    columns = node_columns(memory)
    with _new_text(nodes) as file:
        writer = csv.writer(file)
        writer.writerow(["node", *columns])
        for node, row in enumerate(_text_rows(columns)):
            writer.writerow([node, *row])
    return nodes


def _text_rows(columns: dict[str, NDArray[Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of node columns as text; Boolean values are written as in GraphML."""
    as_lists = [values.tolist() for values in columns.values()]
    for row in zip(*as_lists, strict=True):
        yield tuple(str(value).lower() if isinstance(value, bool) else repr(value) for value in row)


@contextlib.contextmanager
def _new_text(path: Path) -> Iterator[TextIO]:
    """Write a text file under a temporary name; it gets its own name when it is complete."""
    temporary = path.with_name(path.name + "-new")
    try:
        try:
            temporary.unlink(missing_ok=True)
            with temporary.open("x", newline="", encoding="utf-8") as file:
                yield file
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} could not be written: {error}") from None
