"""The still part of a film: map and signals in tiles, each kept as colours and as a video's planes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.rendering.strokes import Box, Picture
from skidpad.rendering.topdown import BACKGROUND, Camera, draw_map, draw_signals, ribbon
from skidpad.rendering.video import Planes, planes, split
from skidpad.scenes.scene import Scene

TILE_PX = 512  # even: a tile's planes are a whole number of pixels
SIGNAL_M = 1.0  # how far a stop line's paint may reach beyond its ends
KEPT = 4  # tiles kept, as a multiple of what one frame shows: a camera that follows a long drive forgets what it left


class Tile(NamedTuple):
    """One square of the map at one state of the signals that reach into it."""

    states: bytes
    picture: Picture
    planes: Planes


class Bare(NamedTuple):
    """What lies under the signals of a tile, and which signals reach into it."""

    picture: Picture
    signals: NDArray[np.int64]


class MapTiles:
    """The map of a scene and its signals at one scale, drawn where it is looked at and kept.

    A point (x, y) [m] lies at pixel (x * scale, -y * scale); tile (i, j) holds pixels [i, i + 1) * TILE_PX and so on.
    A film looks from even pixels, since a plane of colours has half as many.
    """

    def __init__(self, scene: Scene, scale: float) -> None:
        self.scene, self.scale = scene, scale
        road = scene.road
        low, high = np.empty((road.element_count, 2)), np.empty((road.element_count, 2))
        for element in range(road.element_count):
            outline = ribbon(scene, element) if road.element_type[element] < 10 else road.xyz[road.points(element), :2]
            low[element], high[element] = outline.min(axis=0), outline.max(axis=0)
        self._elements = low, high
        ends = scene.signals.line[:, :, :2].astype(np.float64)
        self._signals = ends.min(axis=1), ends.max(axis=1)
        self._states = np.zeros(scene.signals.count, np.int8)
        self._tiles: dict[tuple[int, int], Tile] = {}
        self._bare: dict[tuple[int, int], Bare] = {}

    def show(self, states: NDArray[np.integer]) -> None:
        """Signals are drawn in these states (S,) from now on."""
        self._states = states.astype(np.int8)

    def into(self, picture: Picture, left: int, top: int, box: Box | None = None) -> None:
        """Fill a box of an RGB picture, or all of it, whose upper left pixel is pixel (left, top) of the map."""
        height, width = picture.shape[:2]
        box = box or Box(0, 0, width, height)
        for i, j in tiles_in(left + box.left, top + box.top, left + box.right, top + box.bottom):
            x, y = i * TILE_PX - left, j * TILE_PX - top
            rows, columns = (
                slice(max(y, box.top), min(y + TILE_PX, box.bottom)),
                slice(max(x, box.left), min(x + TILE_PX, box.right)),
            )
            tile = self._tile(i, j).picture
            picture[rows, columns] = tile[rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]

    def planes_into(self, target: Planes, left: int, top: int) -> None:
        """Fill a video's planes whose upper left pixel is the even pixel (left, top) of the map."""
        height, width = target.luma.shape
        shown = tiles_in(left, top, left + width, top + height)
        if len(self._tiles) > KEPT * len(shown):
            self._tiles = {key: tile for key, tile in self._tiles.items() if key in shown}
            self._bare = {key: bare for key, bare in self._bare.items() if key in shown}
        for i, j in shown:
            for plane, kept, half in zip(target, self._tile(i, j).planes, (1, 2, 2), strict=True):
                x, y, side = (i * TILE_PX - left) // half, (j * TILE_PX - top) // half, TILE_PX // half
                part = plane[max(y, 0) : y + side, max(x, 0) : x + side]
                part[:] = kept[max(-y, 0) :, max(-x, 0) :][: part.shape[0], : part.shape[1]]

    def _tile(self, i: int, j: int) -> Tile:
        bare = self._bare.get((i, j)) or self._draw_bare(i, j)
        states = self._states[bare.signals].tobytes()
        tile = self._tiles.get((i, j))
        if tile is None or tile.states != states:
            picture = bare.picture
            if len(bare.signals):
                picture = picture.copy()
                draw_signals(picture, self.scene, self._camera(i, j), self._states, bare.signals)
            tile = Tile(states, picture, split(planes(picture), TILE_PX, TILE_PX))
            self._tiles[i, j] = tile
        return tile

    def _draw_bare(self, i: int, j: int) -> Bare:
        camera, reach = self._camera(i, j), (TILE_PX / 2 + 8) / self.scale
        picture = np.empty((TILE_PX, TILE_PX, 3), np.uint8)
        picture[:] = BACKGROUND
        draw_map(picture, self.scene, camera, _near(self._elements, camera, reach))
        self._bare[i, j] = bare = Bare(picture, _near(self._signals, camera, reach + SIGNAL_M))
        return bare

    def _camera(self, i: int, j: int) -> Camera:
        x, y = ((n + 0.5) * TILE_PX / self.scale for n in (i, j))
        return Camera(x, -y, self.scale, TILE_PX, TILE_PX)


def tiles_in(left: int, top: int, right: int, bottom: int) -> list[tuple[int, int]]:
    """The tiles that hold some pixels of the map, right and bottom exclusive."""
    return [
        (i, j)
        for j in range(top // TILE_PX, (bottom - 1) // TILE_PX + 1)
        for i in range(left // TILE_PX, (right - 1) // TILE_PX + 1)
    ]


def _near(bounds: tuple[NDArray[np.float64], NDArray[np.float64]], camera: Camera, reach: float) -> NDArray[np.int64]:
    """Which rectangles (low, high), each (n, 2) [m], come within `reach` m of a camera's centre along both axes."""
    low, high = bounds
    centre = np.array([camera.x, camera.y])
    return np.flatnonzero(((low <= centre + reach) & (high >= centre - reach)).all(axis=1))
