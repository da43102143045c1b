"""A scene seen from above, as a picture: its map and signals, and where everybody is at one row of the log.

Drawing is OpenCV with sub-pixel coordinates and antialiasing. The picture is a function of the scene and the
arguments; no display is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import scene as codes
from skidpad.scenes.scene import Scene

SHIFT = 4  # fractional bits of OpenCV's fixed-point coordinates
MARGIN_PX = 24
MAX_SIDE_PX = 8192

# Colours are RGB; OpenCV does not care about their order.
BACKGROUND = (246, 248, 245)
LANE_COLOURS = {
    codes.LANE_BICYCLE: (222, 236, 220),
    codes.LANE_SHOULDER: (236, 236, 228),
    codes.LANE_WALKWAY: (240, 234, 226),
    codes.LANE_OTHER: (238, 238, 238),
}
LANE_COLOUR, CENTRE_COLOUR, ARROW_COLOUR = (224, 229, 234), (192, 200, 208), (120, 132, 144)
EDGE_COLOUR, MEDIAN_COLOUR, WHITE_LINE, YELLOW_LINE = (70, 78, 86), (110, 100, 80), (255, 255, 255), (212, 167, 44)
CROSSWALK_COLOUR, AREA_COLOUR = (205, 222, 240), (232, 224, 212)
SIGNAL_COLOURS = ((140, 149, 159), (209, 36, 47), (212, 167, 44), (26, 127, 55), (140, 149, 159))
TYPE_COLOURS = ((120, 120, 120), (9, 105, 218), (130, 80, 223), (26, 127, 55))
STATIC_COLOUR, SDC_COLOUR = (182, 162, 138), (207, 34, 46)


class Camera(NamedTuple):
    """Where the picture looks: metres of the scene's frame to pixels, y upwards.

    x, y         [m]     scene point at the centre of the picture
    scale        [px/m]
    width, height  [px]
    """

    x: float
    y: float
    scale: float
    width: int
    height: int

    def pixels(self, xy: NDArray[Any]) -> NDArray[np.int32]:
        """Fixed-point pixel coordinates of scene points, with SHIFT fractional bits.

        xy       (n, 2)  f32 [m]
        returns  (n, 2)  i32
        """
        column = (xy[:, 0] - self.x) * self.scale + self.width / 2
        row = (self.y - xy[:, 1]) * self.scale + self.height / 2
        return np.rint(np.stack([column, row], axis=1) * (1 << SHIFT)).astype(np.int32)


def fit(xy: NDArray[Any], width: int, height: int) -> Camera:
    """The camera that shows all of `xy` (n, 2) f32 [m] in a picture of `width` x `height` pixels.

    Raises ValueError for a size outside 64 to MAX_SIDE_PX.
    """
    if not (64 <= width <= MAX_SIDE_PX and 64 <= height <= MAX_SIDE_PX):
        raise ValueError(f"picture of {width} x {height} pixels: expected 64 to {MAX_SIDE_PX} a side")
    if len(xy) == 0:
        return Camera(0.0, 0.0, 1.0, width, height)
    low, high = xy.min(axis=0), xy.max(axis=0)
    span = np.maximum(high - low, 1.0)
    scale = float(min((width - 2 * MARGIN_PX) / span[0], (height - 2 * MARGIN_PX) / span[1]))
    centre = (low + high) / 2
    return Camera(float(centre[0]), float(centre[1]), scale, width, height)


def draw_scene(scene: Scene, *, row: int | None = None, width: int = 1600, height: int = 1200) -> NDArray[np.uint8]:
    """The whole map, and the tracks at a log row (default: the scene's current row).

    returns  (height, width, 3)  u8   RGB
    Raises ValueError for a row outside the log or a bad size.
    """
    row = scene.meta.current_step if row is None else row
    if scene.tracks.count and not 0 <= row < scene.meta.steps:
        raise ValueError(
            f"row {row} is not in the log of scene {scene.meta.scene_id}: expected 0 to {scene.meta.steps - 1}"
        )
    camera = fit(_shown_points(scene), width, height)
    picture = np.empty((height, width, 3), np.uint8)
    picture[:] = BACKGROUND
    draw_map(picture, scene, camera)
    if scene.tracks.count:
        _draw_tracks(picture, scene, camera, row)
    _draw_signals(picture, scene, camera, row)
    draw_scale(picture, camera)
    return picture


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture (H, W, 3) u8 RGB as PNG bytes."""
    import cv2

    encoded, data = cv2.imencode(".png", np.ascontiguousarray(picture[:, :, ::-1]))
    if not encoded:
        raise RuntimeError("OpenCV could not encode a PNG")
    return bytes(data)


def _shown_points(scene: Scene) -> NDArray[Any]:
    points = [scene.road.xyz[:, :2]]
    if scene.tracks.count:
        points.append(np.stack([scene.tracks.x[scene.tracks.valid], scene.tracks.y[scene.tracks.valid]], axis=1))
    return np.concatenate(points)


def draw_line(
    picture: NDArray[np.uint8], pixels: NDArray[np.int32], colour: tuple[int, ...], width: int, closed: bool = False
) -> None:
    """Draw one line through fixed-point `pixels` (n, 2) i32, antialiased."""
    import cv2

    cv2.polylines(picture, [pixels], closed, colour, width, cv2.LINE_AA, SHIFT)


def draw_map(
    picture: NDArray[np.uint8], scene: Scene, camera: Camera, elements: NDArray[np.integer[Any]] | None = None
) -> None:
    """Draw the map of a scene, or only some of its `elements` (n,), into an RGB picture."""
    import cv2

    road = scene.road
    chosen = range(road.element_count) if elements is None else elements.tolist()
    drivable = np.zeros(road.element_count, bool)
    drivable[road.lane_element] = road.drivable
    lanes = [element for element in chosen if road.element_type[element] < 10]
    lanes.sort(key=lambda element: bool(drivable[element]))  # drivable ribbons lie on top
    for element in lanes:
        colour = LANE_COLOUR if drivable[element] else LANE_COLOURS.get(int(road.element_type[element]), LANE_COLOUR)
        cv2.fillPoly(picture, [camera.pixels(ribbon(scene, element))], colour, cv2.LINE_AA, SHIFT)
    for element in chosen:
        kind, pixels = int(road.element_type[element]), camera.pixels(road.xyz[road.points(element), :2])
        if kind >= 30:
            cv2.fillPoly(
                picture, [pixels], CROSSWALK_COLOUR if kind == codes.AREA_CROSSWALK else AREA_COLOUR, cv2.LINE_AA, SHIFT
            )
        elif kind >= 20:
            draw_line(picture, pixels, MEDIAN_COLOUR if kind == codes.EDGE_MEDIAN else EDGE_COLOUR, 2)
        elif kind >= 10:
            draw_line(picture, pixels, YELLOW_LINE if kind >= codes.LINE_BROKEN_YELLOW else WHITE_LINE, 1)
        elif drivable[element]:
            draw_line(picture, pixels, CENTRE_COLOUR, 1)
            _draw_arrow(picture, scene, element, camera)


def ribbon(scene: Scene, element: int) -> NDArray[Any]:
    """Outline of a lane, from its centre line and width: (2 n, 2) f32 [m], left side forwards and right side back."""
    rows = scene.road.points(element)
    xy, direction = scene.road.xyz[rows, :2], scene.road.direction[rows]
    # The normal at a vertex is the mean of its two segments', so that ribbons have no teeth in curves.
    before = np.concatenate([direction[:1], direction[:-1]])
    mean = direction + before
    norm = np.linalg.norm(mean, axis=1, keepdims=True)
    mean = np.where(norm > 1e-6, mean / np.maximum(norm, 1e-6), direction)
    offset = np.stack([-mean[:, 1], mean[:, 0]], axis=1) * (scene.road.width[rows, None] / 2)
    return np.concatenate([xy + offset, (xy - offset)[::-1]])


def _draw_arrow(picture: NDArray[np.uint8], scene: Scene, element: int, camera: Camera) -> None:
    """A small arrow in the middle of a lane: which way it is driven."""
    import cv2

    rows = scene.road.points(element)
    arc = scene.road.arc[rows]
    if camera.scale * float(arc[-1]) < 24:
        return
    middle = min(int(np.searchsorted(arc, arc[-1] / 2)), len(arc) - 2)
    point, direction = scene.road.xyz[rows, :2][middle], scene.road.direction[rows][middle]
    length = max(1.2, 5.0 / camera.scale)
    side = np.array([-direction[1], direction[0]])
    head = np.stack(
        [
            point + length * direction,
            point - length * (direction - 0.5 * side),
            point - length * (direction + 0.5 * side),
        ]
    )
    cv2.fillPoly(picture, [camera.pixels(head)], ARROW_COLOUR, cv2.LINE_AA, SHIFT)


def _draw_tracks(picture: NDArray[np.uint8], scene: Scene, camera: Camera, row: int) -> None:
    """Paths first, then bodies: a later track's path must not cross out an earlier one's body."""
    import cv2

    tracks = scene.tracks
    for track in range(tracks.count):
        rows = np.flatnonzero(tracks.valid[track])
        path = np.stack([tracks.x[track, rows], tracks.y[track, rows]], axis=1)
        faint = tuple(round(0.35 * c + 0.65 * b) for c, b in zip(_colour(scene, track), LANE_COLOUR, strict=True))
        if len(path) > 1:
            draw_line(picture, camera.pixels(path), faint, 1)
    for track in np.flatnonzero(tracks.valid[:, row]).tolist():
        body = bodies(
            tracks.x[track, row, None],
            tracks.y[track, row, None],
            tracks.heading[track, row, None],
            tracks.length[track, row, None],
            tracks.width[track, row, None],
        )[0]
        cv2.fillPoly(picture, [camera.pixels(body)], _colour(scene, track), cv2.LINE_AA, SHIFT)


def bodies(
    x: NDArray[Any], y: NDArray[Any], heading: NDArray[Any], length: NDArray[Any], width: NDArray[Any]
) -> NDArray[np.float64]:
    """Outlines of road users, a box with a pointed nose: (n, 5, 2) f64 [m] from (n,) f32 poses [m, rad] and sizes."""
    half, side = length.astype(np.float64) / 2, width.astype(np.float64) / 2
    nose = half - np.minimum(side, half)
    zero = np.zeros_like(half)
    along = np.stack([half, nose, -half, -half, nose], axis=1)
    aside = np.stack([zero, side, side, -side, -side], axis=1)
    c, s = np.cos(heading.astype(np.float64))[:, None], np.sin(heading.astype(np.float64))[:, None]
    return np.stack([x[:, None] + along * c - aside * s, y[:, None] + along * s + aside * c], axis=2)


def _colour(scene: Scene, track: int) -> tuple[int, int, int]:
    """What kind of road user a track is."""
    if track == scene.meta.sdc:
        return SDC_COLOUR
    if scene.tracks.subtype[track] == codes.SUBTYPE_STATIC:
        return STATIC_COLOUR
    return TYPE_COLOURS[int(scene.tracks.type[track])]


def _draw_signals(picture: NDArray[np.uint8], scene: Scene, camera: Camera, row: int) -> None:
    state = scene.signals.state
    states = state[:, row] if row < state.shape[1] else np.full(scene.signals.count, codes.STATE_UNKNOWN)
    draw_signals(picture, scene, camera, states, np.arange(scene.signals.count))


def draw_signals(
    picture: NDArray[np.uint8],
    scene: Scene,
    camera: Camera,
    states: NDArray[np.integer[Any]],
    chosen: NDArray[np.integer[Any]],
) -> None:
    """Draw the stop lines of the `chosen` (n,) signals of a scene, coloured by the `states` (S,) of all; a stop sign's
    is red."""
    ends = camera.pixels(scene.signals.line[chosen, :, :2].reshape(-1, 2)).reshape(-1, 2, 2)
    for signal, pixels in zip(chosen.tolist(), ends, strict=True):
        lit = scene.signals.kind[signal] == codes.SIGNAL_LIGHT
        colour = SIGNAL_COLOURS[int(states[signal]) if lit else codes.STATE_RED]
        draw_line(picture, pixels, colour, max(2, round(0.5 * camera.scale)))


def scale_words(camera: Camera) -> tuple[int, int]:
    """The round length [m] that a scale shows, and its pixels."""
    metres = next((m for m in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if m * camera.scale >= 80), 1000)
    return metres, round(metres * camera.scale)


def draw_scale(picture: NDArray[np.uint8], camera: Camera) -> None:
    """A bar of a round length, lower left."""
    import cv2

    metres, length = scale_words(camera)
    x, y = 16, camera.height - 16
    cv2.line(picture, (x, y), (x + length, y), (60, 60, 60), 2, cv2.LINE_AA)
    cv2.putText(picture, f"{metres} m", (x, y - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (60, 60, 60), 1, cv2.LINE_AA)
