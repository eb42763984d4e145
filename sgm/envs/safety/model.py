"""MuJoCo models (MJCF) of rooms and the Point robot: one for physics and one for rendering.

The robot is Safety Gym's Point robot (Ray, Achiam and Amodei 2019) with its published parameters: a sphere with a nose
on two slide joints and a hinge, driven along its nose and turned by a velocity servo. Safety Gym is archived; the rooms
are new.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from .layouts import HEIGHT, PILLAR_HEIGHT, Box, Disc, Layout, Panel

Frame = NDArray[np.uint8]

TIMESTEP = 0.002  # s
ROBOT_HEIGHT = 0.1  # of its centre, m
EYE_HEIGHT = 0.25  # of its camera, m
EYE_TILT = float(np.arctan(0.4))  # below the horizon, rad
FIELD_OF_VIEW = 90.0  # degrees
TEXEL = 64  # pixels of a texture's side
FLOOR_TILE = 0.6  # side of a floor tile, m
WORN = 0.8  # m of a wall covered by one repetition of a texture

# Only the robot and obstacles are in contact. There is no floor: the joints keep the robot at its height.
ROBOT = f"""
<body name="robot" pos="0 0 {ROBOT_HEIGHT}">
  <joint name="x" type="slide" axis="1 0 0" damping="0.01"/>
  <joint name="y" type="slide" axis="0 1 0" damping="0.01"/>
  <joint name="z" type="hinge" axis="0 0 1" damping="0.005"/>
  <geom name="robot" type="sphere" size="0.1" friction="1 0.01 0.01"/>
  <geom name="pointarrow" type="box" pos="0.1 0 0" size="0.05 0.05 0.05"/>
  <site name="robot"/>
</body>"""
ACTUATORS = """
<actuator>
  <motor name="x" site="robot" gear="0.3 0 0 0 0 0"
    ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.05 0.05"/>
  <velocity name="z" joint="z" gear="0.3"
    ctrllimited="true" ctrlrange="-1 1" forcelimited="true" forcerange="-0.05 0.05"/>
</actuator>"""


def physics(walls: Iterable[Box] = (), pillars: Iterable[Disc] = ()) -> str:
    """MJCF of the robot among obstacles, without anything for rendering."""
    boxes = [
        f'<geom name="wall{number}" type="box" pos="{(left + right) / 2} {(low + top) / 2} {HEIGHT / 2}" '
        f'size="{(right - left) / 2} {(top - low) / 2} {HEIGHT / 2}"/>'
        for number, (left, low, right, top) in enumerate(walls)
    ]
    posts = [
        f'<geom name="pillar{number}" type="cylinder" pos="{x} {y} {PILLAR_HEIGHT / 2}" '
        f'size="{radius} {PILLAR_HEIGHT / 2}"/>'
        for number, (x, y, radius) in enumerate(pillars)
    ]
    return f"""<mujoco>
<option timestep="{TIMESTEP}"/><size memory="1M"/>
<default><geom condim="6" density="1"/></default>
<worldbody>{ROBOT}{"".join(boxes + posts)}</worldbody>{ACTUATORS}
</mujoco>"""


def scenery(layout: Layout, size: int) -> tuple[str, dict[str, bytes]]:
    """MJCF of the visible parts of a layout, for images of side `size` pixels, and the files it needs.

    All panels of a texture are one mesh, because rendering time grows with the number of objects. The robot is left
    out: it would hide the same part of every image.
    """
    width, height = layout.size
    worn = {texture: [panel for panel in layout.panels if panel.texture == texture] for texture in TEXTURE_MAKERS}
    worn = {texture: panels for texture, panels in worn.items() if panels}
    files = {f"{name}.png": png(TEXTURE_MAKERS[name]()) for name in worn} | {"floor.png": png(_floor())}
    assets = [
        f'<texture name="{name[:-4]}" type="2d" file="{name}"/><material name="{name[:-4]}" texture="{name[:-4]}" '
        'specular="0" shininess="0"/>'
        for name in files
    ]
    assets.append('<material name="ceiling" rgba="0.6 0.76 0.9 1" emission="0.45" specular="0"/>')
    assets += [_mesh(name, map(_quad, panels)) for name, panels in worn.items()]
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)])
    assets.append(_mesh("floor", [(np.column_stack([corners, np.zeros(4)]), corners / FLOOR_TILE)]))
    ceiling = np.column_stack([corners[::-1], np.full(4, HEIGHT)])
    assets.append(_mesh("ceiling", [(ceiling, np.zeros((4, 2)))]))
    things = [f'<geom type="mesh" mesh="{name}" material="{name}"/>' for name in [*worn, "floor"]]
    things.append('<geom type="mesh" mesh="ceiling" material="ceiling"/>')
    for (x, y, radius), colour in zip(layout.pillars, layout.colours, strict=True):
        things.append(
            f'<geom type="cylinder" pos="{x} {y} {PILLAR_HEIGHT / 2}" size="{radius} {PILLAR_HEIGHT / 2}" '
            f'rgba="{_rgba(colour)}"/>'
        )
    if layout.hazards:
        assets.append(_mesh("hazards", [quad for disc in layout.hazards for quad in _disc(disc)]))
        things.append(f'<geom type="mesh" mesh="hazards" rgba="{_rgba("#e0392f")}"/>')
    xml = f"""<mujoco>
<statistic center="{width / 2} {height / 2} 0.4" extent="{max(width, height)}"/>
<visual>
  <global fovy="{FIELD_OF_VIEW}" offwidth="{size}" offheight="{size}"/>
  <quality shadowsize="0" offsamples="0" numslices="20" numstacks="1" numquads="1"/>
  <map znear="{0.02 / max(width, height)}" zfar="3"/>
  <headlight ambient="0.55 0.55 0.55" diffuse="0.2 0.2 0.2" specular="0 0 0"/>
</visual>
<asset>{"".join(assets)}</asset>
<default><geom contype="0" conaffinity="0"/></default>
<worldbody>
  <light directional="true" castshadow="false" dir="0.5 0.8 -0.6" diffuse="0.5 0.5 0.5" specular="0 0 0"/>
  {"".join(things)}
</worldbody>
</mujoco>"""
    return xml, files


def _quad(panel: Panel) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of a panel, (4, 3) m, and their texture coordinates, (4, 2)."""
    (x, y), (to_x, to_y) = panel.begin, panel.end
    length = float(np.hypot(to_x - x, to_y - y))
    corners = [(to_x, to_y, 0), (x, y, 0), (x, y, HEIGHT), (to_x, to_y, HEIGHT)]
    wide, high = length / WORN, HEIGHT / WORN
    return np.array(corners), np.array([(0, high), (wide, high), (wide, 0), (0, 0)])


def _disc(disc: Disc) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Quads that make up a disc on the floor: slices with four corners, one of them the centre."""
    x, y, radius = disc
    angle = np.linspace(0, 2 * np.pi, 25)
    rim = np.column_stack([x + radius * np.cos(angle), y + radius * np.sin(angle), np.full(25, 0.004)])
    tip = np.array([x, y, 0.004])
    return [(np.stack([tip, *rim[i : i + 3]]), np.zeros((4, 2))) for i in range(0, 24, 2)]


def _mesh(name: str, quads: Iterable[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> str:
    """MJCF of a mesh of rectangles, each visible from the side on which its corners are counterclockwise."""
    corners, places = map(np.concatenate, zip(*quads, strict=True))
    faces = [(i, i + 1, i + 2, i, i + 2, i + 3) for i in range(0, len(corners), 4)]
    numbers = (" ".join(f"{value:g}" for value in np.ravel(values)) for values in (corners, places, faces))
    vertex, texcoord, face = numbers
    return f'<mesh name="{name}" inertia="shell" vertex="{vertex}" texcoord="{texcoord}" face="{face}"/>'


def _rgba(colour: str) -> str:
    return " ".join(f"{value / 255:g}" for value in bytes.fromhex(colour[1:])) + " 1"


# Textures: (TEXEL, TEXEL, 3) uint8 images that can be tiled, of two or three plain colours each.


def _paint(*layers: tuple[str, NDArray[np.bool_]], ground: str) -> Frame:
    image = np.empty((TEXEL, TEXEL, 3), np.uint8)
    image[:] = list(bytes.fromhex(ground[1:]))
    for colour, mask in layers:
        image[mask] = list(bytes.fromhex(colour[1:]))
    return image


ROW, COLUMN = np.mgrid[:TEXEL, :TEXEL]


def _brick() -> Frame:
    shifted = (COLUMN + 16 * (ROW // 16 % 2)) % 32
    return _paint(("#c9beb0", (ROW % 16 < 2) | (shifted < 2)), ground="#a8442f")


def _planks() -> Frame:
    return _paint(("#8a5f32", ROW % 16 < 8), ("#4d3319", ROW % 16 == 0), ground="#b98750")


def _tiles() -> Frame:
    return _paint(("#e8eef5", (ROW % 32 < 4) | (COLUMN % 32 < 4)), ground="#3f7fc1")


def _stripes() -> Frame:
    return _paint(("#2b2b2b", COLUMN % 32 < 16), ground="#e0b73a")


def _diagonal() -> Frame:
    return _paint(("#d9f2e3", (ROW + COLUMN) % 32 < 12), ground="#2f9e6e")


def _dots() -> Frame:
    return _paint(("#f3e9ff", np.hypot(ROW % 32 - 15.5, COLUMN % 32 - 15.5) < 9), ground="#7d4fa8")


def _checks() -> Frame:
    return _paint(("#eceff3", (ROW // 16 + COLUMN // 16) % 2 == 0), ground="#3a3f4a")


def _zigzag() -> Frame:
    return _paint(("#7a1f4b", (ROW + abs(COLUMN % 32 - 16)) % 32 < 14), ground="#f2a3c4")


def _rings() -> Frame:
    return _paint(("#0b3c49", np.hypot(ROW - 31.5, COLUMN - 31.5) % 16 < 7), ground="#4cc9d6")


def _crosses() -> Frame:
    row, column = ROW % 32, COLUMN % 32
    arms = (abs(row - 15.5) < 4) & (abs(column - 15.5) < 12) | (abs(column - 15.5) < 4) & (abs(row - 15.5) < 12)
    return _paint(("#fff3e6", arms), ground="#e27a2c")


def _floor() -> Frame:
    return _paint(("#7b7a74", (ROW < 32) ^ (COLUMN < 32)), ground="#8d8c85")


TEXTURE_MAKERS: dict[str, Callable[[], Frame]] = {
    "brick": _brick,
    "planks": _planks,
    "tiles": _tiles,
    "stripes": _stripes,
    "diagonal": _diagonal,
    "dots": _dots,
    "checks": _checks,
    "zigzag": _zigzag,
    "rings": _rings,
    "crosses": _crosses,
}


def png(image: Frame) -> bytes:
    """Encode an image, (height, width, 3) uint8, as a PNG file."""
    height, width, _ = image.shape

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
