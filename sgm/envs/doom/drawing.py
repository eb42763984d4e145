"""Drawing of a Doom map from above, from its line definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .wad import DoomMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOLID, OPEN = "#343c4c", "#d5d2ca"  # lines that the player cannot cross, and lines that it can: steps, other floors


def draw_map(ax: Axes, doom_map: DoomMap, *, linewidth: float = 1.2) -> None:
    """Draw the lines of a map in map units: solid lines dark, and below them lines that can be crossed, light."""
    from matplotlib.collections import LineCollection

    solid = doom_map.solid
    for lines, colour, width, order in ((~solid, OPEN, linewidth / 2, 0.5), (solid, SOLID, linewidth, 1.0)):
        ax.add_collection(
            LineCollection(list(doom_map.segments[lines]), colors=colour, linewidths=width, zorder=order),
            autolim=False,
        )
    (left, bottom), (right, top) = doom_map.bounds
    margin = 0.02 * max(right - left, top - bottom)
    ax.set_xlim(left - margin, right + margin)
    ax.set_ylim(bottom - margin, top + margin)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_frame_on(False)
