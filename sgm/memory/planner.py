"""Shortest paths: trees rooted at a goal on the filtered graph, cached until an edge changes that affects them."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sgm.errors import InputError, NoPath

from .arrays import Bools, Ints
from .compiled import kernels
from .csgraph import breadth_first_order, connected_components, dijkstra
from .evidence import Known
from .graph import Graph
from .large import MODES, LargeGraph
from .policies import CleanupPolicy

Prices = NDArray[np.float64]
MANY = 16_384  # with this many nodes or more, paths are searched one at a time, if numba is installed
_FEW = 8  # most paths to one goal that are searched one at a time
_SHARE = 20  # the rows are made again if more than one in this many nodes has changed edges


class Tree(NamedTuple):
    """Shortest paths from every node to one goal.

    Attributes:
        cost: (V,) float64 cost of the path, steps or hops; infinite if there is none.
        next: (V,) int32 the next node on the path; negative at the goal and without a path.
    """

    cost: Prices
    next: NDArray[np.int32]


class Near(NamedTuple):
    """Nodes near an observation, nearest first, and their distances to or from it, steps."""

    node: Ints
    distance: NDArray[np.float32]


class Route(NamedTuple):
    """A path between two nodes and its cost."""

    nodes: list[int]
    cost: float


class Planner:
    """Plans on the edges that the filter keeps and cleanup has not removed.

    The planning graph is stored transposed in CSR form, so that a tree from a goal gives the paths to it from all
    nodes. A removed edge has an infinite cost: removing, restoring and changing a cost changes one number in place.

    With `many` nodes or more, and numba, paths are searched one at a time instead, on adjacency rows that are updated
    edge by edge (large.py), and the CSR form is made only where it is needed. Costs are equal bit for bit; of several
    paths with equal costs another one may be found.
    """

    def __init__(self, graph: Graph, policy: CleanupPolicy, tree_bytes: int = 1 << 28) -> None:
        """Plan on `graph` with the costs of `policy`; at most `tree_bytes` bytes of trees are cached."""
        self.graph = graph
        self.policy = policy
        self.trees: OrderedDict[tuple[str, int], Tree] = OrderedDict()
        self.many = MANY
        self._large: LargeGraph | None = None
        self._waiting: list[int] = []  # edges whose cost changed since the last update of the rows of `_large`
        self._tree_bytes = tree_bytes
        self._version = -1
        self._csr_version = -1
        self._parts: tuple[list[int], Ints] | None = None  # edges left out, and the components without them
        self._matrices: dict[str, csr_array] = {}
        self._position: Ints = np.empty(0, np.int64)  # position of each edge in the matrix data; −1: filtered out
        self._edges: Ints = np.empty(0, np.int64)  # edge of each entry
        self._keys: Ints = np.empty(0, np.int64)  # target · V + source of each entry, ascending

    def tree(self, goal: int, by: str, raised: Mapping[tuple[int, int], float] | None = None) -> Tree:
        """Return the tree of shortest paths to a goal node, from the cache if possible.

        With `raised`, steps added to the costs of edges (u, v), it is the tree for these costs, and not cached.
        """
        self.refresh()
        key = (checked_mode(by), goal)
        if raised:
            return Tree(*dijkstra(self._raised(by, raised), indices=goal, return_predecessors=True))
        if self._large is not None:
            return Tree(*self._large.whole(goal, by))
        tree = self.trees.get(key)
        if tree is None:
            cost, following = dijkstra(self._matrices[by], indices=goal, return_predecessors=True)
            tree = self.trees[key] = Tree(cost, following)
            while len(self.trees) > max(1, self._tree_bytes // (12 * self.graph.nodes + 1)):
                self.trees.popitem(last=False)
        else:
            self.trees.move_to_end(key)
        return tree

    def following(self, nodes: Ints, goal: int, by: str) -> Ints:
        """(n,) next nodes on the shortest paths from (n,) nodes to a goal; −1 at the goal and without a path."""
        self.refresh()
        if self._large is not None and len(nodes) <= _FEW:
            checked_mode(by)
            return np.array([self._large.following(node, goal, by) for node in nodes.tolist()], np.int64)
        return np.maximum(self.tree(goal, by).next[nodes], -1).astype(np.int64)

    def prepare(self, by: str) -> None:
        """Choose the landmarks of a large graph now instead of during one of the next plans."""
        self.refresh()
        if self._large is not None and self._large.searches[checked_mode(by)].potentials is None:
            self._large.searches[by].prepare()

    def _raised(self, by: str, raised: Mapping[tuple[int, int], float]) -> csr_array:
        """Return the planning graph with steps added to the costs of some edges; edges not in it are ignored."""
        matrix = self.matrix(by)
        keys = np.array([target * self.graph.nodes + source for source, target in raised], np.int64)
        position = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[position] == keys if len(self._keys) else np.zeros(len(keys), np.bool_)
        data = matrix.data.copy()
        data[position[known]] += np.fromiter(raised.values(), np.float64)[known]
        return csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)

    def without(self, edges: Iterable[tuple[int, int]]) -> Planner:
        """Return a planner on the present graph as if these edges (u, v) were removed; it has its own trees."""
        self.refresh()
        never = dict.fromkeys(edges, math.inf)
        matrices = {by: self._raised(by, never) for by in MODES}
        other = copy.copy(self)
        other.trees, other._matrices, other._large, other._parts = OrderedDict(), matrices, None, None
        return other

    def reaches(self, start: int, goal: int, by: str) -> bool:
        """Whether a path leads from one node to another."""
        return math.isfinite(self.cost(start, goal, by))

    def cost(self, start: int, goal: int, by: str) -> float:
        """Cost of the shortest path between two nodes; infinite if there is none."""
        self.refresh()
        if self._large is not None:
            return self._large.cost(start, goal, checked_mode(by))
        return float(self.tree(goal, by).cost[start])

    def route(self, start: int, goal: int, by: str) -> Route:
        """Return the shortest path between two nodes; NoPath if there is none."""
        cost = self.cost(start, goal, by)
        if cost == math.inf:
            raise NoPath(f"no path leads from node {start} to node {goal}")
        if self._large is not None:
            return Route(self._large.path(start, goal, by).tolist(), cost)
        nodes, following = [start], self.tree(goal, by).next
        while nodes[-1] != goal:
            nodes.append(int(following[nodes[-1]]))
        return Route(nodes, cost)

    def attach(self, starts: Near, goals: Near, by: str) -> tuple[int, int]:
        """Choose the nodes to plan between, as positions in `starts` and `goals`, both nearest first; NoPath if none.

        The nearest pair is known to have no path. The r nearest nodes of each are tried with r = 2, 3, … until a path
        exists. Of the pairs that are new with this r, the one with the shortest total path is chosen, or with the
        fewest hops.
        """
        self.refresh()
        rank = self._least_rank(starts.node, goals.node)
        to_start, to_goal = starts.distance[:rank], goals.distance[:rank]
        if by == "hops":
            to_start, to_goal = np.zeros_like(to_start), np.zeros_like(to_goal)
        pairs: list[tuple[float, int, int]] = []
        if rank <= len(goals.node):
            cost = self.tree(int(goals.node[rank - 1]), by).cost[starts.node[:rank]] + to_start + to_goal[-1]
            pairs.append((float(cost.min()), int(cost.argmin()), rank - 1))
        if rank <= len(starts.node):
            forward = dijkstra(self.matrix(by).transpose().tocsr(), indices=int(starts.node[rank - 1]))
            cost = forward[goals.node[:rank]] + to_start[-1] + to_goal
            pairs.append((float(cost.min()), rank - 1, int(cost.argmin())))
        return min(pairs)[1:]

    def attach_all(self, starts: Near, goals: Near, by: str) -> tuple[int, int]:
        """Choose the nodes to plan between from all candidates, as positions; NoPath if no path exists.

        Start and goal count as nodes with an edge to, or from, each candidate: the pair with the shortest total path is
        chosen, or with the fewest hops.
        """
        matrix, end = self.matrix(by), self.graph.nodes
        last_leg = goals.distance if by == "distance" else np.ones(len(goals.node))
        start = np.append(matrix.indptr, matrix.indptr[-1] + len(goals.node))
        entries = (np.append(matrix.data, last_leg), np.append(matrix.indices, goals.node), start)
        cost, following = dijkstra(csr_array(entries, shape=(end + 1, end + 1)), indices=end, return_predecessors=True)
        total = cost[starts.node] + (starts.distance if by == "distance" else 1.0)
        if not len(total) or total.min() == math.inf:
            raise NoPath(
                f"no path leads from any of the {len(starts.node)} nodes near the start to any of the "
                f"{len(goals.node)} near the goal"
            )
        place = int(total.argmin())
        node = int(starts.node[place])
        while following[node] != end:
            node = int(following[node])
        return place, int(np.flatnonzero(goals.node == node)[0])

    def update(self, edges: Collection[int]) -> None:
        """Update the costs of edges after their evidence changed."""
        if self._large is not None and self._version != self.graph.version:
            self._waiting += edges
        elif self._large is not None and self._large.update(np.fromiter(edges, np.int64, len(edges))):
            self._parts = None
        if self._csr_version != self.graph.version:
            return
        known = np.array([edge for edge in edges if self._position[edge] >= 0], np.int64)
        if not len(known):
            return
        position, source, target = self._position[known], self.graph.source.values, self.graph.target.values
        for by, prices in zip(MODES, self._pricing(known), strict=True):
            data = self._matrices[by].data
            for place in np.flatnonzero(prices != data[position]).tolist():
                edge, at, new = known[place], position[place], float(prices[place])
                old, data[at] = float(data[at]), new
                self._parts = self._parts if math.isfinite(new) and math.isfinite(old) else None
                self._forget_trees(by, int(source[edge]), int(target[edge]), new, increased=new > old)

    def refresh(self) -> None:
        """Update the planning graph after edges were added or the filter changed."""
        if self._version == self.graph.version:
            return
        self.trees.clear()
        self._parts = None
        if self.graph.nodes < self.many or kernels() is None:
            self._large = None
            self._make_matrices()
        else:
            sources = None if self._large is None else self.graph.changed_since(self._version)
            if self._large is None or sources is None or len(sources) > self.graph.nodes // _SHARE:
                self._large = LargeGraph(self.graph, self._pricing, self._tree_bytes)
            else:
                self._large.follow(sources)
                self._large.update(np.array(self._waiting, np.int64))
            self._waiting = []
        self._version = self.graph.version

    def _make_matrices(self) -> None:
        """Make the CSR form of the planning graph."""
        graph = self.graph
        edges = np.flatnonzero(graph.in_filter())
        ends = (graph.target.values[edges], graph.source.values[edges])
        numbered = csr_array((np.arange(len(edges)), ends), shape=(graph.nodes, graph.nodes))
        edges = edges[numbered.data]
        self._position = np.full(len(graph), -1)
        self._position[edges] = np.arange(len(edges))
        self._edges = edges
        self._keys = graph.target.values[edges].astype(np.int64) * graph.nodes + graph.source.values[edges]
        self._matrices = {
            by: csr_array((data, numbered.indices, numbered.indptr), shape=numbered.shape)
            for by, data in zip(MODES, self._pricing(edges), strict=True)
        }
        self._csr_version = graph.version

    def matrix(self, by: str) -> csr_array:
        """Return the transposed planning graph: (target, source) costs by distance or hops."""
        self.refresh()
        if self._csr_version != self.graph.version:
            self._make_matrices()
        return self._matrices[checked_mode(by)]

    def along(self, nodes: Ints) -> tuple[Prices, Prices]:
        """Return the (L − 1,) costs and (L − 1,) weights in steps of the edges of a planned path of (L,) nodes."""
        if self._large is not None:
            prices, edges = self._large.along(nodes)
        else:
            positions = np.searchsorted(self._keys, nodes[1:] * self.graph.nodes + nodes[:-1])
            prices, edges = np.asarray(self._matrices["distance"].data[positions], np.float64), self._edges[positions]
        return prices, self.graph.weights(edges).astype(np.float64)

    def largest_part(self, without: Iterable[int] = ()) -> int:
        """Number of nodes in the largest strongly connected component, as if the edges `without` were removed."""
        return self.components(without)[1]

    def components(self, without: Iterable[int] = ()) -> tuple[int, int]:
        """Return the number of strongly connected components, and the number of nodes in the largest."""
        sizes = np.bincount(self.parts(without))
        return len(sizes), int(sizes.max(initial=0))

    def parts(self, without: Iterable[int] = ()) -> Ints:
        """(V,) number of the strongly connected component of each node, in no particular order."""
        self.refresh()
        left_out = list(without)
        if self._parts is None or self._parts[0] != left_out:
            found = connected_components(self._standing(left_out), connection="strong")[1]
            self._parts = left_out, np.asarray(found, np.int64)
        return self._parts[1]

    def holds_together(self, edge: int) -> bool:
        """Whether the largest strongly connected component would be smaller without an edge.

        Spare edges without a successful try are ignored: it is unknown whether they work.
        """
        doubtful = self._doubtful_spares()
        if edge in doubtful or self._leads_round(edge, doubtful):
            return False
        # No other path leads from one end to the other: if both are in one component, it falls apart.
        parts = self.parts(doubtful)
        sizes, ends = np.bincount(parts), parts[[self.graph.source.values[edge], self.graph.target.values[edge]]]
        largest = sizes == sizes.max()
        return bool(ends[0] == ends[1] and largest[ends[0]] and largest.sum() == 1)

    def find_spare(self, edge: int) -> int | None:
        """Find the shortest edge outside the filter that can replace an edge; None if there is none.

        It leads from a node that can be reached from the source of the edge without this edge, to a node from which its
        target can be reached without it. Of equally short ones, the one with the lowest source, then target, is taken.
        """
        left_out = [edge, *self._doubtful_spares()]
        standing, graph = self._standing(left_out), self.graph
        source, target = int(graph.source.values[edge]), int(graph.target.values[edge])
        after, before = np.zeros((2, graph.nodes), np.bool_)
        after[breadth_first_order(standing.T.tocsr(), source, return_predecessors=False)] = True
        before[breadth_first_order(standing, target, return_predecessors=False)] = True
        joins = after[graph.source.values] & before[graph.target.values] & ~graph.in_filter() & ~graph.removed()
        spares = np.flatnonzero(joins)
        order = np.lexsort((graph.target.values[spares], graph.source.values[spares], graph.weights(spares)))
        return int(spares[order[0]]) if len(spares) else None

    def find_bridges(self) -> list[int]:
        """Find edges outside the filter that join strongly connected components as well as all such edges would.

        From each component to each other one the shortest edge is taken; of equally short ones, the one with the lowest
        source, then target. Pairs of components that stay apart even with all edges get none.
        """
        parts, graph = self.parts(), self.graph
        stands = ~graph.removed()
        source, target = graph.source.values, graph.target.values
        ends = source[stands], target[stands]
        every = csr_array((np.ones(len(ends[0]), np.int8), ends), shape=(graph.nodes, graph.nodes))
        whole = connected_components(every, connection="strong")[1]
        apart = (parts[source] != parts[target]) & (whole[source] == whole[target])
        edges = np.flatnonzero(apart & stands & ~graph.in_filter())
        one, other = parts[source[edges]], parts[target[edges]]
        known = np.flatnonzero(apart & stands & graph.in_filter())
        joined = np.isin(one * graph.nodes + other, parts[source[known]] * graph.nodes + parts[target[known]])
        edges, one, other = edges[~joined], one[~joined], other[~joined]
        order = np.lexsort((target[edges], source[edges], graph.weights(edges), other, one))
        first = np.unique(one[order] * graph.nodes + other[order], return_index=True)[1]
        return [int(edge) for edge in np.sort(edges[order[first]])]

    def _doubtful_spares(self) -> list[int]:
        """Spare edges without a successful try."""
        self.refresh()
        known = self.graph.evidence
        return [edge for edge in self.graph.spares if not known[edge].successes]

    def _standing(self, without: Iterable[int] = ()) -> csr_array:
        """Return the transposed planning graph without removed edges and without the edges `without`."""
        matrix = self.matrix("distance")
        alive = np.isfinite(matrix.data)
        left_out = self._position[np.array(list(without), np.int64)]
        alive[left_out[left_out >= 0]] = False
        start = np.concatenate([[0], np.cumsum(alive)])[matrix.indptr]
        return csr_array((matrix.data[alive], matrix.indices[alive], start), shape=matrix.shape)

    def _leads_round(self, edge: int, without: Iterable[int] = ()) -> bool:
        """Whether another path leads from the source of an edge to its target; mostly a short search finds one."""
        self.refresh()
        ends = [(int(self.graph.source.values[one]), int(self.graph.target.values[one])) for one in (edge, *without)]
        if self._large is not None:
            return self._large.leads_round(ends)
        source, target = ends[0]
        matrix, left_out = self._matrices["distance"], set(self._position[[edge, *without]].tolist())
        seen, newest = {target}, [target]
        while newest:
            before = []
            for node in newest:
                for place in range(matrix.indptr[node], matrix.indptr[node + 1]):
                    one = int(matrix.indices[place])
                    if place in left_out or one in seen or matrix.data[place] == math.inf:
                        continue
                    if one == source:
                        return True
                    seen.add(one)
                    before.append(one)
            newest = before
        return False

    def standing(self) -> Bools:
        """(E,) whether a plan may use each edge."""
        return self.graph.in_filter() & ~self.graph.removed()

    def _pricing(self, edges: Ints) -> tuple[Prices, Prices]:
        """Return the costs of (m,) edges in steps, and in hops."""
        tried, known = self.graph.evidence.of(edges)
        prices = self._prices(edges, tried, known)
        hops = np.where(np.isinf(prices), np.inf, 1.0)
        if self.policy.guard:
            hops[tried] += known.guarded * known.failures  # one more for each failure of an edge that the guard keeps
        return prices, hops

    def _prices(self, edges: Ints, tried: Ints, known: Known) -> Prices:
        """Return the costs of (m,) edges in steps; those at (t,) positions `tried` have this evidence."""
        weights = self.graph.weights(edges).astype(np.float64)
        nothing = np.zeros(len(edges), np.int64)
        prices = np.array(self.policy.price(weights, nothing, nothing), np.float64)
        if len(tried):
            prices[tried] = self._tried_prices(weights[tried], known)
        # Dijkstra's algorithm needs costs of 0 or more; a NaN makes the comparison false too.
        if len(prices) and not prices.min() >= 0:
            raise InputError(
                f"the cleanup policy {self.policy!r} gives an edge the price {prices[~(prices >= 0)][0]}: expected "
                "steps, 0 or more"
            )
        return prices

    def _tried_prices(self, weights: Prices, known: Known) -> Prices:
        successes, failures = known.successes.astype(np.int64), known.failures.astype(np.int64)
        prices = self.policy.price(weights, successes, failures)
        if self.policy.guard:
            prices = np.where(known.guarded, self.policy.guarded_price(weights, successes, failures), prices)
        prices[known.removed] = np.inf
        return prices

    def _forget_trees(self, by: str, source: int, target: int, price: float, increased: bool) -> None:
        """Drop the cached trees that use a changed edge or could be improved by it."""
        for key in [key for key in self.trees if key[0] == by]:
            tree = self.trees[key]
            matters = tree.next[source] == target if increased else price + tree.cost[target] < tree.cost[source]
            if matters:
                del self.trees[key]

    def _least_rank(self, starts: Ints, goals: Ints) -> int:
        """Return the smallest r > 1 with a path from one of the r nearest starts to one of the r nearest goals."""
        low, high, most = 1, 2, max(len(starts), len(goals))
        while high < most and not self._joined(starts[:high], goals[:high]):
            low, high = high, 2 * high
        high = min(high, most)
        if not self._joined(starts[:high], goals[:high]):
            raise NoPath(
                f"no path leads from any of the {len(starts)} nodes near the start to any of the {len(goals)} near the "
                "goal. Explore more, raise max_dist or k, restore removed edges, or allow any node (within=math.inf)."
            )
        while high - low > 1:
            middle = (low + high) // 2
            if self._joined(starts[:middle], goals[:middle]):
                high = middle
            else:
                low = middle
        return high

    def _joined(self, starts: Ints, goals: Ints) -> bool:
        cost = dijkstra(self.matrix("hops"), indices=goals, min_only=True)
        return bool(np.isfinite(cost[starts]).any())


def checked_mode(by: str) -> str:
    """Return the kind of cost to minimise; InputError unless it is one of MODES."""
    if by not in MODES:
        raise InputError(f"by is {by!r}: expected one of {', '.join(map(repr, MODES))}")
    return by
