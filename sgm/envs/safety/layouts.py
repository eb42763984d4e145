"""Random layouts of rooms: walls with doors, pillars, hazards, and textures that repeat."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from sgm.envs.vector import is_number, require
from sgm.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

THICKNESS = 0.1  # of a wall, m
HEIGHT = 0.8  # of a wall, m
PILLAR_HEIGHT = 0.5  # m, Safety Gym's
ROBOT_RADIUS = 0.1  # m
ROBOT_REACH = float(np.hypot(0.15, 0.05))  # from the robot's centre to its farthest point, m
YIELDING = 0.015  # m; a robot that runs into a wall penetrates it by less
NOSE = np.array([(x, y) for x in (0.05, 0.1, 0.15) for y in (-0.05, 0.0, 0.05)])  # nose, m from the centre
MARGIN = 0.2  # least distance from a drawn position to an obstacle, m: the robot fits with any heading
GRID = 0.05  # cell size of the map of reachable positions, m
TRIES = 100  # attempts to find a position for an object
REBUILDS = 10  # attempts to build a layout
TEXTURES = (
    "brick",
    "planks",
    "tiles",
    "stripes",
    "diagonal",
    "dots",
    "checks",
    "zigzag",
    "rings",
    "crosses",
)
PILLAR_COLOURS = ("#e8e4da", "#39c2c9", "#f2a541", "#d1495b")

Box = tuple[float, float, float, float]  # left, bottom, right, top, m
Disc = tuple[float, float, float]  # x, y, radius, m


@dataclass(frozen=True)
class Panel:
    """The side of a wall within one room; it is visible from the left of the line from `begin` to `end`.

    Attributes:
        begin: x, y, m.
        end: x, y, m.
        texture: one of `TEXTURES`.
    """

    begin: tuple[float, float]
    end: tuple[float, float]
    texture: str


@dataclass(frozen=True)
class Layout:
    """A floor plan; x and y in metres from the lower left corner of the first room.

    Attributes:
        size: width and height of the arena, m, to the middle of the outer walls.
        walls: boxes as (left, bottom, right, top), m, all `HEIGHT` high.
        panels: visible sides of the walls.
        pillars: (x, y, radius), m, `PILLAR_HEIGHT` high; touching one has a cost.
        hazards: (x, y, radius), m, flat on the floor; being in one has a cost.
        colours: (n,) colour of every pillar, "#rrggbb".
    """

    size: tuple[float, float]
    walls: tuple[Box, ...]
    panels: tuple[Panel, ...]
    pillars: tuple[Disc, ...] = ()
    hazards: tuple[Disc, ...] = ()
    colours: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise InputError if the layout is invalid or has no room for a robot."""
        for name, width in (("walls", 4), ("pillars", 3), ("hazards", 3)):
            given = getattr(self, name)
            rows = all(len(row) == width and np.isfinite(row).all() for row in given)
            require(rows, name, given, f"rows of {width} finite numbers, in metres")
        boxes = np.array(self.walls).reshape(-1, 4)
        require((boxes[:, :2] < boxes[:, 2:]).all(), "walls", self.walls, "boxes as (left, bottom, right, top)")
        discs = np.array([*self.pillars, *self.hazards]).reshape(-1, 3)
        require((discs[:, 2] > 0).all(), "pillars and hazards", discs.tolist(), "discs as (x, y, radius > 0)")
        unknown = sorted({panel.texture for panel in self.panels} - set(TEXTURES))
        require(not unknown, "texture", unknown, f"some of {', '.join(TEXTURES)}")
        same = len(self.colours) == len(self.pillars)
        require(same, "colours", self.colours, f"one for each of the {len(self.pillars)} pillars")
        require(self.reachable.any(), "layout", "closed", "one with room for a robot")

    def asdict(self) -> dict[str, Any]:
        """Return the layout as a dict, ready for JSON; `from_dict` reads it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layout:
        """Make a layout from the result of `asdict`, also after a round trip through JSON."""
        fields = {field.name for field in dataclasses.fields(cls)}
        require(set(data) == fields, "layout", sorted(data), f"the keys {', '.join(sorted(fields))}")
        panels = tuple(Panel(tuple(panel["begin"]), tuple(panel["end"]), panel["texture"]) for panel in data["panels"])
        rows = {name: tuple(tuple(row) for row in data[name]) for name in ("walls", "pillars", "hazards")}
        return cls(size=tuple(data["size"]), panels=panels, colours=tuple(data["colours"]), **rows)

    def distances(self, points: ArrayLike) -> Iterator[Floats]:
        """Yield the distance from points to each obstacle, walls first: (..., 2) -> (...) m, 0 or less within it."""
        x, y = np.moveaxis(np.asarray(points, np.float64), -1, 0)
        for left, bottom, right, top in self.walls:
            dx, dy = np.maximum(left - x, x - right), np.maximum(bottom - y, y - top)
            outside = np.hypot(np.maximum(dx, 0), np.maximum(dy, 0))
            yield np.where(outside > 0, outside, np.maximum(dx, dy))
        for centre_x, centre_y, radius in self.pillars:
            yield np.hypot(x - centre_x, y - centre_y) - radius

    def distance(self, points: ArrayLike) -> Floats:
        """Distance from points to the nearest wall or pillar: (..., 2) -> (...) m, 0 or less within one."""
        points = np.asarray(points, np.float64)
        return functools.reduce(np.minimum, self.distances(points), np.full(points.shape[:-1], np.inf))

    def is_free(self, points: ArrayLike, margin: float = MARGIN) -> Bools:
        """Whether points are reachable and at least `margin` from obstacles: (..., 2) -> (...) bool.

        A point less than `MARGIN` from an obstacle, where the robot fits only with some headings, counts as reachable
        if a cell of the map near it is.
        """
        points = np.asarray(points, np.float64)
        finite = np.isfinite(points).all(-1)
        points = np.where(finite[..., None], points, -1.0)
        inside = finite & ((points > 0) & (points < self.size)).all(-1)
        column, row = np.moveaxis((np.where(inside[..., None], points, 0.0) / GRID).astype(int), -1, 0)
        near = self._around
        return (
            inside
            & near[np.minimum(column, len(near) - 1), np.minimum(row, near.shape[1] - 1)]
            & (self.distance(points) >= margin)
        )

    def fits(self, poses: ArrayLike) -> Bools:
        """Whether the robot fits at poses, its nose included, perhaps pressed to a wall: (..., 3) -> (...) bool."""
        poses = np.asarray(poses, np.float64)
        finite = np.isfinite(poses).all(-1)
        poses = np.where(finite[..., None], poses, -1.0)
        cos, sin = np.cos(poses[..., 2, None]), np.sin(poses[..., 2, None])
        ahead = np.stack([cos * NOSE[:, 0] - sin * NOSE[:, 1], sin * NOSE[:, 0] + cos * NOSE[:, 1]], -1)
        nose = (self.distance(poses[..., None, :2] + ahead) >= -YIELDING).all(-1)
        return finite & nose & self.is_free(poses[..., :2], ROBOT_RADIUS - YIELDING)

    def draw_poses(self, random: np.random.Generator, number: int, margin: float = MARGIN) -> Floats:
        """Draw poses, uniform over the free positions: (number, 3) x, y in m and heading in rad, −π to π."""
        found = np.empty((0, 2))
        for _ in range(TRIES):
            points = random.uniform(0.0, self.size, (max(2 * number, 16), 2))
            found = np.concatenate([found, points[self.is_free(points, margin)]])
            if len(found) >= number:
                return np.column_stack([found[:number], random.uniform(-np.pi, np.pi, number)])
        raise InputError(f"no {number} places {margin} m from obstacles were found; give a smaller margin")

    def hazardous(self, points: ArrayLike) -> Bools:
        """Whether points are in a hazard: (..., 2) -> (...) bool."""
        x, y = np.moveaxis(np.asarray(points, np.float64), -1, 0)
        inside = np.zeros(x.shape, np.bool_)
        for centre_x, centre_y, radius in self.hazards:
            inside |= np.hypot(x - centre_x, y - centre_y) <= radius
        return inside

    @functools.cached_property
    def reachable(self) -> Bools:
        """(columns, rows) bool: whether the centre of a cell of side `GRID` is in the largest connected free region."""
        shape = [max(1, round(side / GRID)) for side in self.size]
        centres = np.stack(np.meshgrid(*((np.arange(count) + 0.5) * GRID for count in shape), indexing="ij"), -1)
        parts, count = ndimage.label(self.distance(centres) >= MARGIN)
        if not count:
            return np.zeros(shape, np.bool_)
        return parts == 1 + np.argmax(np.bincount(parts.ravel())[1:])

    @functools.cached_property
    def _around(self) -> Bools:
        """(columns, rows) bool: reachable cells and those near them, because edges of obstacles cut through cells."""
        return ndimage.binary_dilation(self.reachable, np.ones((3, 3)), iterations=int(np.ceil(MARGIN / GRID)))


def generate(
    seed: int = 0,
    *,
    rooms: tuple[int, int] = (3, 3),
    room: float = 1.8,
    door: float = 0.7,
    loops: float = 0.5,
    pillars: int = 4,
    pillar: float = 0.12,
    hazards: int = 3,
    hazard: float = 0.2,
    textures: Sequence[str] = TEXTURES,
) -> Layout:
    """Generate a layout from a seed. The result for given arguments must never change: weights are trained in it.

    Rooms are connected by the doors of a random spanning tree; then a share of the other walls between neighbours also
    gets a door, which makes loops. In every room, each side of a wall has one of the textures.

    Args:
        seed: seed of doors, pillars, hazards and textures.
        rooms: number of columns and rows.
        room: side of a room, m, from the middle of a wall to the middle of the next.
        door: width of a door, m.
        loops: share of the walls outside the spanning tree that get a door, 0 (a tree) to 1 (every wall has a door).
        pillars: number of pillars.
        pillar: their radius, m.
        hazards: number of hazards.
        hazard: their radius, m; the default is Safety Gym's.
        textures: textures to draw from.
    """
    pair = isinstance(rooms, Sequence) and len(rooms) == 2
    whole = pair and all(isinstance(n, (int, np.integer)) and n >= 1 for n in rooms)
    require(whole, "rooms", rooms, "the number of columns and of rows, 1 or more each")
    narrow = 2 * MARGIN + 0.1
    require(is_number(door, narrow, 10), "door", door, f"a width from {narrow:g} m, where the robot fits through")
    spacious = is_number(room, door + 2 * THICKNESS + 0.1, 100)
    require(spacious, "room", room, f"a side from {door + 2 * THICKNESS + 0.1:g} m, where the door of {door:g} m fits")
    require(is_number(loops, 0, 1), "loops", loops, "a share from 0 to 1")
    for name, number, radius in (("pillars", pillars, pillar), ("hazards", hazards, hazard)):
        require(isinstance(number, (int, np.integer)) and number >= 0, name, number, "a number, 0 or more")
        require(is_number(radius, 0.01, room / 2), name[:-1], radius, "a radius in metres that fits into a room")
    known = not isinstance(textures, str) and len(textures) and set(textures) <= set(TEXTURES)
    require(known, "textures", textures, f"some of {', '.join(TEXTURES)}")
    random = np.random.default_rng(seed)
    builder = _Builder(random, (int(rooms[0]), int(rooms[1])), float(room), float(door), tuple(textures))
    for _ in range(REBUILDS):
        layout = builder.build(loops, (pillars, pillar), (hazards, hazard))
        if layout is not None:
            return layout
    raise InputError(
        f"pillars is {pillars} of radius {pillar:g} m and hazards {hazards} of {hazard:g} m: they do not fit into "
        f"{rooms[0]} × {rooms[1]} rooms of {room:g} m; give fewer, or smaller ones"
    )


@dataclass
class _Builder:
    random: np.random.Generator
    rooms: tuple[int, int]
    room: float
    door: float
    textures: tuple[str, ...]
    deck: list[str] = dataclasses.field(default_factory=list)

    def build(self, loops: float, pillars: tuple[int, float], hazards: tuple[int, float]) -> Layout | None:
        """Build a layout; None if pillars or hazards do not fit, or if pillars block a room."""
        size = (self.rooms[0] * self.room, self.rooms[1] * self.room)
        lines = self._lines(loops)
        walls = tuple(self._box(line, low, high) for line, parts in lines for low, high in parts)
        empty = Layout(size, walls, self._panels(lines))
        posts = self._discs(empty, *pillars, clearance=2 * MARGIN + 0.05)
        if posts is None:
            return None
        colours = self.random.permutation(np.resize(PILLAR_COLOURS, len(posts))).tolist()
        layout = dataclasses.replace(empty, pillars=posts, colours=tuple(colours))
        if not self._connected(layout):
            return None
        spots = self._discs(layout, *hazards, clearance=0.0)
        return None if spots is None else dataclasses.replace(layout, hazards=spots)

    def _lines(self, loops: float) -> list[tuple[tuple[int, int], list[tuple[float, float]]]]:
        """List the lines of walls as (axis it crosses, number), with the (begin, end) in m of the parts with a wall."""
        doors = self._doors(loops)
        lines = []
        for axis in (0, 1):
            length = self.rooms[1 - axis]
            for number in range(self.rooms[axis] + 1):
                ends = [-THICKNESS / 2]
                for along in range(length):
                    if (axis, number, along) in doors:
                        middle = along * self.room + doors[axis, number, along]
                        ends += [middle - self.door / 2, middle + self.door / 2]
                ends.append(length * self.room + THICKNESS / 2)
                rounded = np.round(ends, 6).tolist()
                lines.append(((axis, number), list(zip(rounded[::2], rounded[1::2], strict=True))))
        return lines

    def _box(self, line: tuple[int, int], low: float, high: float) -> Box:
        axis, number = line
        first, last = (round(number * self.room + half, 6) for half in (-THICKNESS / 2, THICKNESS / 2))
        return (first, low, last, high) if axis == 0 else (low, first, high, last)

    def _doors(self, loops: float) -> dict[tuple[int, int, int], float]:
        """Centre of each door, m from the room's corner, by (axis its wall crosses, line of walls, room along it)."""
        columns, rows = self.rooms
        pairs = [(0, i + 1, j, (i, j), (i + 1, j)) for i in range(columns - 1) for j in range(rows)]
        pairs += [(1, j + 1, i, (i, j), (i, j + 1)) for i in range(columns) for j in range(rows - 1)]
        parent = {(i, j): (i, j) for i in range(columns) for j in range(rows)}

        def root(place: tuple[int, int]) -> tuple[int, int]:
            while parent[place] != place:
                place = parent[place]
            return place

        chosen, spare = [], []
        for index in self.random.permutation(len(pairs)):
            *key, one, other = pairs[index]
            if root(one) == root(other):
                spare.append(tuple(key))
            else:
                parent[root(one)] = root(other)
                chosen.append(tuple(key))
        chosen += spare[: round(loops * len(spare))]
        slack = (self.room - self.door) / 2 - THICKNESS
        return {key: self.room / 2 + self.random.uniform(-slack, slack) for key in chosen}

    def _panels(self, lines: Sequence[tuple[tuple[int, int], list[tuple[float, float]]]]) -> tuple[Panel, ...]:
        """Make panels for both sides of every wall, room by room, and for the jambs of doors."""
        panels = []
        half = THICKNESS / 2
        for (axis, number), parts in lines:
            at = round(number * self.room, 6)
            length = self.rooms[1 - axis] * self.room
            for side in (-1, 1):
                if not 0 < number + (side + 1) / 2 <= self.rooms[axis]:
                    continue  # the outer side of an outer wall
                for along in range(self.rooms[1 - axis]):
                    texture = self._texture()
                    corner = along * self.room
                    for low, high in parts:
                        begin = max(low, corner + half)
                        end = min(high, corner + self.room - half)
                        if end > begin:
                            panels.append(_panel(axis, at + side * half, begin, end, side, texture))
            jamb = self._texture()
            ends = [(low, -1) for low, _ in parts if low > 0] + [(high, 1) for _, high in parts if high < length]
            panels += [_panel(1 - axis, edge, at - half, at + half, way, jamb) for edge, way in ends]
        return tuple(panels)

    def _texture(self) -> str:
        """Draw the next texture: all textures in random order before any repeats."""
        self.deck = self.deck or self.random.permutation(self.textures).tolist()
        return self.deck.pop()

    def _discs(self, layout: Layout, number: int, radius: float, clearance: float) -> tuple[Disc, ...] | None:
        """Draw discs away from walls and from each other, evenly over the rooms; None if they do not fit."""
        columns, rows = self.rooms
        order = self.random.permutation(columns * rows)
        found: list[Disc] = []
        for index in np.resize(order, number):
            corner = np.array(divmod(int(index), rows)) * self.room
            for _ in range(TRIES):
                x, y = np.round(corner + self.random.uniform(0, self.room, 2), 3).tolist()
                apart = all(np.hypot(x - a, y - b) >= radius + c + clearance for a, b, c in found)
                if apart and layout.distance((x, y)) >= radius + clearance:
                    found.append((x, y, float(radius)))
                    break
            else:
                return None
        return tuple(found)

    def _connected(self, layout: Layout) -> bool:
        """Whether every room can be reached."""
        columns, rows = self.rooms
        shape = layout.reachable.shape
        for i in range(columns):
            for j in range(rows):
                part = [
                    slice(n * shape[a] // self.rooms[a], (n + 1) * shape[a] // self.rooms[a])
                    for a, n in ((0, i), (1, j))
                ]
                if not layout.reachable[tuple(part)].any():
                    return False
        return True


def _panel(axis: int, at: float, low: float, high: float, side: int, texture: str) -> Panel:
    """Make a panel where coordinate `axis` is `at`, visible from larger (`side` 1) or smaller values (−1)."""
    at, low, high = (round(float(value), 6) for value in (at, low, high))
    one, other = ((at, low), (at, high)) if axis == 0 else ((low, at), (high, at))
    # On a line towards larger y, larger x is on the right; on a line towards larger x, larger y is on the left.
    forward = (side < 0) == (axis == 0)
    return Panel(one, other, texture) if forward else Panel(other, one, texture)
