"""The memory in other formats: NetworkX, SciPy, GraphML, CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np
from scipy.sparse import csr_array

from .errors import SGMError

if TYPE_CHECKING:
    from .memory import SparseGraphicalMemory

_EDGE_FIELDS = {"weight": "double", "attempts": "long", "successes": "long", "failures": "long"}


def to_scipy(memory: SparseGraphicalMemory, filtered: bool) -> csr_array:
    """(V, V) weights; an edge of weight 0 is a stored zero."""
    edges = memory.edges(filtered)
    start = np.concatenate([[0], np.cumsum(np.bincount(edges.source, minlength=len(memory)))])
    return csr_array((edges.weight, edges.target, start), shape=(len(memory), len(memory)))


def to_networkx(memory: SparseGraphicalMemory, filtered: bool) -> Any:
    """A networkx.DiGraph with node and edge attributes."""
    try:
        import networkx
    except ImportError as error:
        raise SGMError("to_networkx needs networkx: pip install 'sparse-graphical-memory[viz]'") from error
    graph = networkx.DiGraph()
    graph.add_nodes_from((node, {"stream": stream}) for node, stream in enumerate(memory.nodes.tolist()))
    graph.add_edges_from(edge_rows(memory, filtered))
    return graph


def edge_rows(memory: SparseGraphicalMemory, filtered: bool) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Each edge with its weight and evidence."""
    edges = memory.edges(filtered)
    for source, target, weight in zip(*(column.tolist() for column in edges), strict=True):
        known = memory.evidence(source, target)
        counts = {"attempts": known.attempts, "successes": known.successes, "failures": known.failures}
        yield source, target, {"weight": weight, **counts}


def to_graphml(memory: SparseGraphicalMemory, path: Path, filtered: bool) -> None:
    """Write GraphML."""
    with path.open("w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
        file.write('<key id="stream" for="node" attr.name="stream" attr.type="long"/>\n')
        for name, kind in _EDGE_FIELDS.items():
            file.write(f'<key id={quoteattr(name)} for="edge" attr.name={quoteattr(name)} attr.type="{kind}"/>\n')
        file.write('<graph edgedefault="directed">\n')
        for node, stream in enumerate(memory.nodes.tolist()):
            file.write(f'<node id="{node}"><data key="stream">{stream}</data></node>\n')
        for source, target, values in edge_rows(memory, filtered):
            data = "".join(f'<data key="{name}">{value}</data>' for name, value in values.items())
            file.write(f'<edge source="{source}" target="{target}">{data}</edge>\n')
        file.write("</graph>\n</graphml>\n")


def to_csv(memory: SparseGraphicalMemory, path: Path, filtered: bool) -> None:
    """Write one line an edge."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target", *_EDGE_FIELDS])
        for source, target, values in edge_rows(memory, filtered):
            writer.writerow([source, target, *values.values()])
