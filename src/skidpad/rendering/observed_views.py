"""Recorded observations as moving pictures: one agent's in its own frame, or a grid of everybody's.

Nothing is drawn but what the rows say, forward up; `bev` also outlines the agents that found no slot, grey where all
slots were taken and red where one was free.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from skidpad.rendering import observed as seen
from skidpad.rendering.observed import Missed, Observed, Rows
from skidpad.rendering.strokes import TEXT_COLOUR, Picture, put_words, write
from skidpad.rendering.topdown import (
    BACKGROUND,
    CENTRE_COLOUR,
    EDGE_COLOUR,
    LANE_COLOUR,
    SHIFT,
    SIGNAL_COLOURS,
    TYPE_COLOURS,
    YELLOW_LINE,
    Camera,
    bodies,
    draw_line,
    draw_scale,
)
from skidpad.rendering.video import planes
from skidpad.rendering.views import GOAL_COLOUR, OTHER_POLICY, UNDER_TEST
from skidpad.runs.trace import Trace

ACROSS_M = 120.0  # shorter side of the picture
AHEAD = 0.2  # how far the agent stands below the middle, as a share of the height
CUT_COLOUR, DROPPED_COLOUR = (140, 149, 159), (207, 34, 46)
KIND_COLOURS = {seen.LANE: CENTRE_COLOUR, seen.LINE: YELLOW_LINE, seen.EDGE: EDGE_COLOUR}
SIGN_COLOURS = (*SIGNAL_COLOURS[:4], (154, 50, 168))  # as observed.UNKNOWN to STOP_SIGN
MAX_CELLS = 64


class ObservedFilm:
    """The frames of `bev` (one agent) or `bev_all` (up to MAX_CELLS agents side by side).

    Frame k shows what was given before step k; there is one frame per decision.

    Raises ValueError for an odd or tiny size, a trace without observations, or an agent that no policy drove.
    """

    def __init__(
        self, trace: Trace, *, grid: bool = False, width: int, height: int, follow: int | None = None, title: str = ""
    ) -> None:
        if min(width, height) < 64 or width % 2 or height % 2:
            raise ValueError(f"film of {width} x {height} pixels: expected even sides of at least 64")
        self.observed = Observed(trace)
        agents = self.observed.agents
        if follow is None:
            follow = trace.meta.ego if trace.meta.ego in agents else agents[0]
        if follow not in agents:
            raise ValueError(f"agent {follow} was driven by no policy, so it was given no observation")
        self.trace, self.width, self.height = trace, width, height
        self.rows = list(range(len(agents)))[:MAX_CELLS] if grid else [agents.index(follow)]
        self.grid = grid
        self.title = title or f"{trace.meta.scene_id}  {trace.meta.arm}"
        self.columns = min(len(self.rows), ceil(sqrt(len(self.rows) * width / height)))
        self.lines = ceil(len(self.rows) / self.columns)
        self._canvas = np.empty((height, width, 3), np.uint8)

    def __len__(self) -> int:
        return self.observed.steps

    def cell(self, n: int) -> tuple[slice, slice]:
        """Rows and columns of pixels of the n-th agent shown."""
        line, column = divmod(n, self.columns)
        height, width = self.height // self.lines, self.width // self.columns
        return slice(line * height, (line + 1) * height), slice(column * width, (column + 1) * width)

    def camera(self, height: int, width: int) -> Camera:
        """Where a cell of that size looks: forward is up, the agent at (0, 0) below the middle."""
        scale = min(width, height) / ACROSS_M
        return Camera(0.0, AHEAD * height / scale, scale, width, height)

    def frame(self, k: int) -> Picture:
        """Frame k, (height, width, 3) u8 RGB. The array is the film's own and valid until the next call."""
        canvas = self._canvas
        canvas[:] = BACKGROUND
        for n, row in enumerate(self.rows):
            lines, columns = self.cell(n)
            part = np.ascontiguousarray(canvas[lines, columns])
            self._draw(part, k, row)
            canvas[lines, columns] = part
        if self.grid:
            put_words(canvas, [self.title, f"step {k} of {self.trace.steps}   {k * self.trace.meta.dt:.1f} s"])
        return canvas

    def planes(self, k: int) -> NDArray[np.uint8]:
        """Frame k as `video.planes` makes it, a new array each time."""
        return planes(self.frame(k))

    def _draw(self, picture: Picture, k: int, row: int) -> None:
        import cv2

        height, width = picture.shape[:2]
        camera, agent = self.camera(height, width), self.observed.agents[row]
        here = bool(self.trace["length"][0, k, agent] > 0)
        read = self.observed.read(k, row) if here else {}
        missed = Missed(np.zeros(0, np.int64), np.zeros(0, np.int64))
        if here:
            draw_road(picture, camera, read)
            for x, y in seen.goals(read).tolist():
                ((column, line),) = camera.pixels(upright(np.array([[x, y]]))).tolist()
                cv2.circle(picture, (column, line), 5 << SHIFT, GOAL_COLOUR, 2, cv2.LINE_AA, SHIFT)
            if "partners" in read:
                if not self.grid:
                    missed = self.observed.missed(k, row, read["partners"])
                    self._outline(picture, camera, k, agent, missed)
                draw_partners(picture, camera, read["partners"])
            length, breadth = seen.ego_size(read)
            fill(picture, camera, np.zeros((1, 2)), np.array([[1.0, 0.0]]), length, breadth, UNDER_TEST)
        name = f"vehicle {self.trace['source_id'][agent]}"
        words = [name] if here else [f"{name} has left"]
        if not self.grid:
            words = [self.title, f"step {k} of {self.trace.steps}   {k * self.trace.meta.dt:.1f} s", *words]
            words += [seen.action_words(self.trace, k, row), *seen.summary(read, missed)] if here else []
            if here and self.trace["value"].shape[3]:
                words.append(f"value {float(self.trace['value'][0, k, row, 0]):.2f}")
            draw_scale(picture, camera)
            put_words(picture, words)
        else:
            cv2.rectangle(picture, (0, 0), (width - 1, height - 1), (200, 205, 210), 1)
            write(picture, words[0], 8, height - 10, TEXT_COLOUR, 0.4)

    def _outline(self, picture: Picture, camera: Camera, k: int, agent: int, missed: Missed) -> None:
        trace = self.trace
        x, y, heading, length, width = (trace[name][0, k] for name in ("x", "y", "heading", "length", "width"))
        c, s = np.cos(float(heading[agent])), np.sin(float(heading[agent]))
        for ids, colour in ((missed.cut, CUT_COLOUR), (missed.dropped, DROPPED_COLOUR)):
            dx, dy = x[ids] - x[agent], y[ids] - y[agent]
            shapes = bodies(c * dx + s * dy, c * dy - s * dx, heading[ids] - heading[agent], length[ids], width[ids])
            for shape in shapes:
                draw_line(picture, camera.pixels(upright(shape)), colour, 1, closed=True)


def upright(xy: NDArray[np.floating]) -> NDArray[np.float64]:
    """Points of an agent's frame (n, 2), forward and left, with forward up."""
    return np.stack([-xy[:, 1], xy[:, 0]], axis=1)


def fill(
    picture: Picture,
    camera: Camera,
    place: NDArray[np.float64],
    direction: NDArray[np.float64],
    length: float,
    width: float,
    colour: tuple[int, int, int],
) -> None:
    """Draw one body."""
    import cv2

    heading = np.arctan2(direction[:, 1], direction[:, 0])
    shape = bodies(place[:, 0], place[:, 1], heading, np.array([length]), np.array([width]))[0]
    cv2.fillPoly(picture, [camera.pixels(upright(shape))], colour, cv2.LINE_AA, SHIFT)


def draw_partners(picture: Picture, camera: Camera, rows: Rows) -> None:
    """Draw the other agents that an observation shows."""
    kind = rows.get("kind")
    places, directions, sizes = rows.column("x", "y"), rows.column("cos", "sin"), rows.column("length", "width")
    for n in range(len(rows.slot)):
        colour = OTHER_POLICY if kind is None or kind[n] > 0 else TYPE_COLOURS[2]
        length, width = sizes[n].tolist()
        fill(picture, camera, places[n, None], directions[n, None], length, width, colour)


def draw_road(picture: Picture, camera: Camera, read: dict[str, Rows]) -> None:
    """Draw the road rows of an observation, lanes below, and its signals."""
    import cv2

    road = seen.segments(read)
    along = road.direction * road.half[:, None]
    ends = camera.pixels(upright(np.stack([road.middle - along, road.middle + along], axis=1).reshape(-1, 2)))
    ends = ends.reshape(-1, 2, 2)
    order = np.argsort(road.kind, kind="stable")
    for n in order[road.kind[order] == seen.LANE].tolist():
        wide = max(1, round(max(road.width[n], 3.2) * camera.scale))
        cv2.polylines(picture, [ends[n]], False, LANE_COLOUR, wide, cv2.LINE_8, SHIFT)
    for n in order.tolist():
        draw_line(picture, ends[n], KIND_COLOURS.get(int(road.kind[n]), EDGE_COLOUR), 2 if road.kind[n] else 1)
    lines = seen.stop_lines(read)
    for pair, shows in zip(lines.ends, lines.shows.tolist(), strict=True):
        draw_line(picture, camera.pixels(upright(pair)), SIGN_COLOURS[shows], max(3, round(0.5 * camera.scale)))
