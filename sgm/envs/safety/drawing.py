"""Drawing of a floor plan: walls, their textures, pillars and hazards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .layouts import Layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WALL, FLOOR, HAZARD = "#343c4c", "#faf9f5", "#e9b6b0"
COLOURS = {
    "brick": "#a8442f",
    "planks": "#b98750",
    "tiles": "#3f7fc1",
    "stripes": "#e0b73a",
    "diagonal": "#2f9e6e",
    "dots": "#7d4fa8",
    "checks": "#5b6270",
    "zigzag": "#e06fa0",
    "rings": "#2aa5b5",
    "crosses": "#e27a2c",
}


def draw_layout(axes: Axes, layout: Layout, *, textures: bool = True) -> None:
    """Draw a layout as the background of a figure; one unit is one metre.

    Args:
        axes: axes to draw on; limits, aspect and frame are set.
        layout: the layout.
        textures: mark every side of a wall with the colour of its texture.
    """
    from matplotlib.collections import LineCollection, PatchCollection
    from matplotlib.patches import Circle, Rectangle

    width, height = layout.size
    axes.add_patch(Rectangle((0, 0), width, height, facecolor=FLOOR, linewidth=0, zorder=0.1))
    hazards = [Circle((x, y), radius) for x, y, radius in layout.hazards]
    axes.add_collection(PatchCollection(hazards, facecolor=HAZARD, linewidth=0, zorder=0.3), autolim=False)
    walls = [Rectangle((left, low), right - left, top - low) for left, low, right, top in layout.walls]
    axes.add_collection(PatchCollection(walls, facecolor=WALL, linewidth=0, zorder=1.0), autolim=False)
    pillars = [Circle((x, y), radius) for x, y, radius in layout.pillars]
    axes.add_collection(
        PatchCollection(pillars, facecolor=list(layout.colours), edgecolor=WALL, linewidth=1.0, zorder=1.1),
        autolim=False,
    )
    if textures:
        ends = np.array([(panel.begin, panel.end) for panel in layout.panels]).reshape(-1, 2, 2)
        colours = [COLOURS[panel.texture] for panel in layout.panels]
        axes.add_collection(LineCollection(list(ends), colors=colours, linewidths=1.6, zorder=1.05), autolim=False)
    margin = 0.02 * max(width, height)
    axes.set_xlim(-margin, width + margin)
    axes.set_ylim(-margin, height + margin)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_frame_on(False)
