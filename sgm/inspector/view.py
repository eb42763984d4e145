"""The state of a memory at one moment, as arrays."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from sgm.errors import UnknownEdge, UnknownNode
from sgm.memory import SparseGraphicalMemory
from sgm.memory.snapshot import EdgeTable, edge_table, kept_observations, node_values

from .layout import beside_neighbours, computed
from .png import is_image

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# States of edges. STANDS: in use; GUARDED: in use although cleanup rejected it; FILTERED: left out by the k-nearest
# filter.
STANDS, GUARDED, REMOVED, ABSENT, FILTERED = range(5)
MOST_DRAWN = 150_000  # largest number of edges that are drawn
COMPUTED = "Layout computed from path lengths, not from positions"
MOST_PLACE = 1e30  # largest coordinate; the map is drawn in single precision, which ends at 3e38


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """Positions of nodes on the map.

    Attributes:
        xy: (V, 2) float64, y upwards.
        attribute: the attribute that has the positions; None: the layout is computed.
        unplaced: number of nodes without a position of their own.
    """

    xy: Floats
    attribute: str | None
    unplaced: int = 0


class View:
    """The state of a memory at one moment. The memory must not change while the view is in use."""

    def __init__(
        self, memory: SparseGraphicalMemory, version: str = "", axes: str = "xy", places: Places | None = None
    ) -> None:
        """Make a view of a memory.

        Args:
            memory: the memory.
            version: version of the file.
            axes: axes of positions: "xy", y upwards, or "rc", (row, column) with rows downwards.
            places: positions of the nodes; None: they are found or computed.
        """
        self.memory, self.version, self.axes = memory, version, axes
        self.table = edge_table(memory)
        self.state = states(self.table)
        self.price = prices(memory, self.table)
        self._places = places
        self.cache: dict[Any, Any] = {}  # results that answers keep as long as this view is in use

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.memory)

    # -- nodes ---------------------------------------------------------------------------------------------------

    def node(self, node: int) -> int:
        """Return a node number; UnknownNode if there is no such node."""
        if not 0 <= node < len(self):
            raise UnknownNode(f"there is no node {node}: this memory has {len(self):,}, numbered from 0")
        return node

    @functools.cached_property
    def parts(self) -> Ints:
        """(V,) the strongly connected component of each node; 0 is the largest."""
        return self.memory.parts()

    @functools.cached_property
    def visits(self) -> Ints:
        """(V,) number of observations merged into each node."""
        assignment = self.memory.assignment
        return np.bincount(assignment[assignment >= 0], minlength=len(self)).astype(np.int64)

    @functools.cached_property
    def places(self) -> Places:
        """Positions of nodes on the map."""
        return self._places or find_places(self)

    @functools.cached_property
    def images(self) -> NDArray[Any] | None:
        """(V, h, w, c) uint8 images of the nodes, if the memory has any."""
        for name in ("thumbnail", "image"):
            values = node_values(self.memory, name)
            if values is not None and is_image(values):
                return values
        kept = kept_observations(self.memory)
        return kept if kept is not None and is_image(kept) else None

    def has_image(self, node: int) -> bool:
        """Whether a node has an image; an image of zeros counts as none."""
        return self.images is not None and bool(self.images[node].any())

    def image_url(self, node: int) -> str | None:
        """Address of the image of a node; None if it has none."""
        return f"/api/image/{node}" if self.has_image(node) else None

    # -- edges ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def keys(self) -> Ints:
        """(E,) source · V + target of each edge, ascending."""
        return self.table.source * len(self) + self.table.target

    @functools.cached_property
    def drawn(self) -> Ints:
        """(D,) edges that are drawn: those that pass the k-nearest filter and those that were removed."""
        return drawn_edges(self.table)

    def edge(self, u: int, v: int) -> int:
        """Index of an edge in the table; UnknownEdge if there is none."""
        key = self.node(u) * len(self) + self.node(v)
        place = int(np.searchsorted(self.keys, key))
        if place == len(self.keys) or self.keys[place] != key:
            raise UnknownEdge(f"no edge leads from node {u} to node {v}")
        return place

    def along(self, nodes: list[int]) -> Ints:
        """Indices of the edges of a path."""
        ends = np.asarray(nodes, np.int64)
        return np.searchsorted(self.keys, ends[:-1] * len(self) + ends[1:])

    def edge_facts(self, edge: int) -> dict[str, Any]:
        """Facts about an edge for lists, ready for JSON."""
        table = self.table
        successes, failures = int(table.successes[edge]), int(table.failures[edge])
        return {
            "source": int(table.source[edge]),
            "target": int(table.target[edge]),
            "weight": float(table.weight[edge]),
            "price": finite(self.price[edge]),
            "successes": successes,
            "failures": failures,
            "state": int(self.state[edge]),
            "belief": belief(successes, failures),
        }


def states(table: EdgeTable) -> NDArray[np.uint8]:
    """(E,) state of each edge: STANDS, GUARDED, REMOVED or FILTERED."""
    state = np.where(table.kept, STANDS, FILTERED)
    state[table.kept & table.guarded] = GUARDED
    state[table.removed] = REMOVED
    return state.astype(np.uint8)


def prices(memory: SparseGraphicalMemory, table: EdgeTable) -> Floats:
    """(E,) cost of each edge for the planner, steps; infinite if it was removed."""
    policy = memory.policy
    price = policy.price(table.weight, table.successes, table.failures)
    if policy.guard:
        price = np.where(table.guarded, policy.guarded_price(table.weight, table.successes, table.failures), price)
    return np.where(table.removed, np.inf, price)


def drawn_edges(table: EdgeTable, most: int = MOST_DRAWN) -> Ints:
    """(D,) edges that pass the k-nearest filter or that were removed, at most `most`.

    If there are more, edges that were tried or removed come first, then the shortest edges of each node.
    """
    shown = np.flatnonzero(table.kept | table.removed)
    if len(shown) <= most:
        return shown
    source = table.source[shown]
    order = np.lexsort((table.weight[shown], source))
    rank = np.empty(len(shown), np.int64)
    first = np.searchsorted(source[order], source[order])
    rank[order] = np.arange(len(shown)) - first
    tried = table.removed | table.guarded | (table.successes + table.failures > 0)
    rank[tried[shown]] = -1
    return np.sort(shown[np.argsort(rank, kind="stable")[:most]])


def find_places(view: View) -> Places:
    """Positions of nodes, if the memory has them, otherwise a layout by path lengths."""
    table = view.table
    for name, least in (("position", 2), ("pose", 3), ("achieved_goal", 2)):
        values = node_values(view.memory, name)
        if values is None or values.ndim != 2 or values.shape[1] < least:
            continue
        if name == "achieved_goal" and values.shape[1] != 2:
            continue
        xy = drawn_at(values[:, :2], view.axes)
        xy[np.abs(xy) > MOST_PLACE] = np.nan
        missing = int(np.count_nonzero(~np.isfinite(xy).all(axis=1)))
        if missing < len(xy):
            kept = table.kept
            return Places(beside_neighbours(xy, table.source[kept], table.target[kept]), name, missing)
    stands = view.state <= GUARDED
    return Places(computed(len(view), table.source[stands], table.target[stands], table.weight[stands]), None)


def drawn_at(positions: NDArray[Any], axes: str) -> Floats:
    """Convert (n, 2) positions to coordinates of the map: x to the right, y upwards; see `Floor.axes` for "rc"."""
    xy = np.array(positions, np.float64)
    return np.stack([xy[:, 1], -xy[:, 0]], axis=1) if axes == "rc" else xy


def belief(successes: int, failures: int) -> dict[str, float]:
    """Mean and 95 % credible interval of the probability that an edge works: Beta(1 + successes, 1 + failures)."""
    a, b = 1 + successes, 1 + failures
    low, high = betaincinv(a, b, [0.025, 0.975]).tolist()
    return {"mean": a / (a + b), "low": low, "high": high}


def finite(value: Any) -> float | None:
    """Convert a number for JSON: None if it is not finite."""
    number = float(value)
    return number if np.isfinite(number) else None
