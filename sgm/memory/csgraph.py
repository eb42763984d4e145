"""SciPy's graph searches, imported on first use: importing `scipy.sparse.csgraph` takes as long as all of sgm."""

from __future__ import annotations

from typing import Any

import numpy as np

NO_NODE = -9999  # SciPy's predecessor of a node that cannot be reached


def dijkstra(*args: Any, **options: Any) -> Any:
    """Call `scipy.sparse.csgraph.dijkstra`; a node at infinite cost has no predecessor."""
    from scipy.sparse.csgraph import dijkstra as search

    found = search(*args, **options)
    if options.get("return_predecessors"):  # up to SciPy 1.15 a removed edge, of infinite weight, gives a predecessor
        found[1][np.isinf(found[0])] = NO_NODE
    return found


def breadth_first_order(*args: Any, **options: Any) -> Any:
    """Call `scipy.sparse.csgraph.breadth_first_order`."""
    from scipy.sparse.csgraph import breadth_first_order as search

    return search(*args, **options)


def connected_components(*args: Any, **options: Any) -> Any:
    """Call `scipy.sparse.csgraph.connected_components`."""
    from scipy.sparse.csgraph import connected_components as search

    return search(*args, **options)


def reverse_cuthill_mckee(*args: Any, **options: Any) -> Any:
    """Call `scipy.sparse.csgraph.reverse_cuthill_mckee`."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee as order

    return order(*args, **options)
