"""A recorded case as moving pictures: the true state from above, whole or following one agent.

Every frame is a function of the trace, its scene and the view: nothing is simulated, and any number of views show the
very case that was scored. The map is drawn once, in tiles, and only bodies, signals and words are drawn per frame.
Coordinates are snapped to whole pixels of the map, so that it stands still while agents move over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.rendering.replay import region
from skidpad.rendering.topdown import (
    BACKGROUND,
    SHIFT,
    SIGNAL_COLOURS,
    Camera,
    bodies,
    draw_line,
    draw_map,
    draw_scale,
    ribbon,
)
from skidpad.runs.trace import Trace
from skidpad.scenes import scene as codes
from skidpad.scenes.events import COLLISION, Controller, Event, Status
from skidpad.scenes.scene import Scene

Picture = NDArray[np.uint8]
StateView = Literal["sim_state", "topdown_sim"]

TILE_PX = 512
FOLLOW_METRES = 100.0  # across the shorter side of a picture that follows an agent
TRAIL_S, MARK_S = 3.0, 1.0  # how long a trail is, and how long an event stays marked

# RGB. Who is under test stands out; everybody else is told apart by who drives.
UNDER_TEST, OTHER_POLICY, IDM_COLOUR = (9, 105, 218), (84, 174, 255), (130, 80, 223)
REPLAYED, STANDING, STOPPED = (110, 119, 129), (182, 162, 138), (60, 66, 73)
GOAL_COLOUR, TRAIL_COLOUR, TEXT_COLOUR, FOLLOWED = (26, 127, 55), (140, 180, 230), (36, 41, 47), (255, 255, 255)
MARKS: tuple[tuple[int, tuple[int, int, int], str], ...] = (
    (int(COLLISION), (207, 34, 46), "collision"),
    (int(Event.OFFROAD | Event.OFF_MAP), (191, 135, 0), "off-road"),
    (int(Event.RED_LIGHT), (207, 34, 134), "red light"),
    (int(Event.STOP_SIGN), (154, 50, 168), "stop sign"),
    (int(Event.GOAL), (26, 127, 55), "goal"),
)


class MapTiles:
    """The map of a scene at one scale, drawn where it is looked at and kept.

    A point (x, y) [m] lies at pixel (x * scale, -y * scale); tile (i, j) holds pixels [i, i + 1) * TILE_PX and so on.
    """

    def __init__(self, scene: Scene, scale: float) -> None:
        self.scene, self.scale = scene, scale
        road = scene.road
        low, high = np.empty((road.element_count, 2)), np.empty((road.element_count, 2))
        for element in range(road.element_count):
            outline = ribbon(scene, element) if road.element_type[element] < 10 else road.xyz[road.points(element), :2]
            low[element], high[element] = outline.min(axis=0), outline.max(axis=0)
        self._low, self._high = low, high
        self._tiles: dict[tuple[int, int], Picture] = {}

    def into(self, picture: Picture, left: int, top: int) -> None:
        """Fill an RGB picture whose upper left pixel is pixel (left, top) of the map."""
        height, width = picture.shape[:2]
        for j in range(top // TILE_PX, (top + height - 1) // TILE_PX + 1):
            for i in range(left // TILE_PX, (left + width - 1) // TILE_PX + 1):
                x, y = i * TILE_PX - left, j * TILE_PX - top
                part = picture[max(y, 0) : y + TILE_PX, max(x, 0) : x + TILE_PX]
                tile = self._tile(i, j)
                part[:] = tile[max(-y, 0) :, max(-x, 0) :][: part.shape[0], : part.shape[1]]

    def _tile(self, i: int, j: int) -> Picture:
        tile = self._tiles.get((i, j))
        if tile is None:
            half = TILE_PX / 2
            camera = Camera(
                (i * TILE_PX + half) / self.scale, -(j * TILE_PX + half) / self.scale, self.scale, TILE_PX, TILE_PX
            )
            reach = (half + 8) / self.scale
            near = (self._low <= np.array([camera.x, camera.y]) + reach) & (
                self._high >= np.array([camera.x, camera.y]) - reach
            )
            tile = np.empty((TILE_PX, TILE_PX, 3), np.uint8)
            tile[:] = BACKGROUND
            draw_map(tile, self.scene, camera, np.flatnonzero(near.all(axis=1)))
            self._tiles[i, j] = tile
        return tile


class Look(NamedTuple):
    """What one frame shows: pixel (left, top) of the map is its upper left corner."""

    left: int
    top: int
    camera: Camera


class Film:
    """The frames of one case in one view.

    view    sim_state: everything that agents under test come to, camera at rest. topdown_sim: around one agent
    follow  the agent that topdown_sim follows; default: the ego, else the first agent under test
    width, height  [px]

    Raises ValueError for an odd or tiny size, or an agent that is not in the trace.
    """

    def __init__(
        self,
        trace: Trace,
        scene: Scene,
        view: StateView = "sim_state",
        *,
        width: int = 1920,
        height: int = 1080,
        follow: int | None = None,
        title: str = "",
        rollout: int = 0,
    ) -> None:
        if min(width, height) < 64 or width % 2 or height % 2:
            raise ValueError(f"film of {width} x {height} pixels: expected even sides of at least 64")
        agents = trace["x"].shape[2]
        if follow is None:
            scored = trace["scored"]
            follow = trace.meta.ego if trace.meta.ego >= 0 else int(scored[0]) if len(scored) else 0
        if not 0 <= follow < max(agents, 1):
            raise ValueError(f"agent {follow} is not in the trace of {agents} agents")
        self.trace, self.scene, self.view, self.follow, self.rollout = trace, scene, view, follow, rollout
        self.width, self.height = width, height
        self.title = title or f"{trace.meta.scene_id}  {trace.meta.arm}"
        if view == "sim_state":
            x0, y0, x1, y1 = region([trace])
            scale = min(width / (x1 - x0), height / (y1 - y0))
            self._centre: tuple[float, float] | None = ((x0 + x1) / 2, (y0 + y1) / 2)
        else:
            scale = min(width, height) / FOLLOW_METRES
            self._centre = None
        self.scale = scale
        self._tiles = MapTiles(scene, scale)
        self._colours = self._agent_colours()
        self._marks = self._marked_states()
        self._lines = scene.signals.line[:, :, :2]
        self._canvas = np.empty((height, width, 3), np.uint8)

    def __len__(self) -> int:
        return self.trace.steps + 1

    def _agent_colours(self) -> list[tuple[int, int, int]]:
        controller, scored = self.trace["controller"], set(self.trace["scored"].tolist())
        by_controller = {
            int(Controller.POLICY): OTHER_POLICY,
            int(Controller.IDM): IDM_COLOUR,
            int(Controller.PDM): IDM_COLOUR,
            int(Controller.STATIC): STANDING,
        }
        return [
            UNDER_TEST if agent in scored else by_controller.get(int(code), REPLAYED)
            for agent, code in enumerate(controller)
        ]

    def _marked_states(self) -> list[NDArray[np.int64]]:
        """Per mark, the last state at or before each state at which it happened, (T, N); -1 = not yet."""
        events = self.trace["events"][self.rollout].astype(np.int64)
        states = np.arange(len(events))[:, None]
        return [np.maximum.accumulate(np.where(events & bits, states, -1), axis=0) for bits, _, _ in MARKS]

    def look(self, k: int) -> Look:
        """Where the camera of frame k stands."""
        if self._centre is not None:
            x, y = self._centre
        else:
            present = np.flatnonzero(self.trace["length"][self.rollout, : k + 1, self.follow] > 0)
            at = int(present[-1]) if len(present) else 0  # An agent that has left is remembered where it was.
            x = float(self.trace["x"][self.rollout, at, self.follow])
            y = float(self.trace["y"][self.rollout, at, self.follow])
        left = round(x * self.scale - self.width / 2)
        top = round(-y * self.scale - self.height / 2)
        centre_x, centre_y = (left + self.width / 2) / self.scale, -(top + self.height / 2) / self.scale
        return Look(left, top, Camera(centre_x, centre_y, self.scale, self.width, self.height))

    def frame(self, k: int) -> Picture:
        """Frame k, (height, width, 3) u8 RGB. The array is the film's own and valid until the next call."""
        look = self.look(k)
        picture = self._canvas
        self._tiles.into(picture, look.left, look.top)
        self._draw_signals(picture, look.camera, k)
        present = np.flatnonzero(self.trace["length"][self.rollout, k] > 0)
        self._draw_trails(picture, look.camera, k)
        self._draw_goals(picture, look.camera, k)
        self._draw_bodies(picture, look.camera, k, present)
        self._draw_marks(picture, look.camera, k, present)
        self._draw_words(picture, k)
        draw_scale(picture, look.camera)
        return picture

    def _draw_signals(self, picture: Picture, camera: Camera, k: int) -> None:
        states = self.trace["signal_state"][self.rollout, k]
        thick = max(2, round(0.5 * camera.scale))
        for signal, line in enumerate(self._lines):
            lit = self.scene.signals.kind[signal] == codes.SIGNAL_LIGHT
            draw_line(
                picture, camera.pixels(line), SIGNAL_COLOURS[int(states[signal]) if lit else codes.STATE_RED], thick
            )

    def _draw_trails(self, picture: Picture, camera: Camera, k: int) -> None:
        first = max(0, k - round(TRAIL_S / self.trace.meta.dt))
        for agent in self.trace["scored"].tolist():
            there = self.trace["length"][self.rollout, first : k + 1, agent] > 0
            path = np.stack([self.trace[name][self.rollout, first : k + 1, agent][there] for name in "xy"], axis=1)
            if len(path) > 1:
                draw_line(picture, camera.pixels(path), TRAIL_COLOUR, 2)

    def _draw_goals(self, picture: Picture, camera: Camera, k: int) -> None:
        import cv2

        goals, count = self.trace["goals"][self.rollout], self.trace["goal_count"][self.rollout]
        for slot, agent in enumerate(self.trace["scored"].tolist()):
            index = int(self.trace["goal_index"][self.rollout, k, agent])
            if index >= int(count[slot]) or self.trace["length"][self.rollout, k, agent] <= 0:
                continue
            ((column, row),) = camera.pixels(goals[slot, index, None, :2]).tolist()
            radius = max(4 << SHIFT, round(2.0 * camera.scale * (1 << SHIFT)))
            cv2.circle(picture, (column, row), radius, GOAL_COLOUR, 2, cv2.LINE_AA, SHIFT)

    def _draw_bodies(self, picture: Picture, camera: Camera, k: int, present: NDArray[np.int64]) -> None:
        import cv2

        values = [self.trace[name][self.rollout, k, present] for name in ("x", "y", "heading", "length", "width")]
        outlines = bodies(*values)
        pixels = camera.pixels(outlines.reshape(-1, 2)).reshape(-1, 5, 2)
        status = self.trace["status"][self.rollout, k]
        for agent, outline in zip(present.tolist(), pixels, strict=True):
            colour = STOPPED if status[agent] == Status.STOPPED else self._colours[agent]
            cv2.fillPoly(picture, [outline], colour, cv2.LINE_AA, SHIFT)
            if agent == self.follow and self._centre is None:
                cv2.polylines(picture, [outline], True, FOLLOWED, 2, cv2.LINE_AA, SHIFT)

    def _draw_marks(self, picture: Picture, camera: Camera, k: int, present: NDArray[np.int64]) -> None:
        """A ring around everybody to whom something happened within the last second, and what it was."""
        import cv2

        recent = k - round(MARK_S / self.trace.meta.dt)
        marked: dict[int, list[tuple[int, tuple[int, int, int], str]]] = {}
        for last, (_, colour, word) in zip(self._marks, MARKS, strict=True):
            for agent in np.flatnonzero((last[k] >= 0) & (last[k] > recent)).tolist():
                marked.setdefault(agent, []).append((int(last[k, agent]), colour, word))
        for agent, what in marked.items():
            # Marked where it is now, or where it was when it happened and then vanished.
            at = k if agent in present else what[0][0]
            point = np.array([[self.trace["x"][self.rollout, at, agent], self.trace["y"][self.rollout, at, agent]]])
            length = max(float(self.trace["length"][self.rollout, at, agent]), 4.0)
            ((column, row),) = camera.pixels(point).tolist()
            radius = max(12.0, 0.9 * length * camera.scale)
            for ring, (_, colour, word) in enumerate(what):
                grown = round((radius + 4 * ring) * (1 << SHIFT))
                cv2.circle(picture, (column, row), grown, colour, 2, cv2.LINE_AA, SHIFT)
                place = (round((column / (1 << SHIFT)) + radius + 8), round(row / (1 << SHIFT) - radius + 18 * ring))
                cv2.putText(picture, word, place, cv2.FONT_HERSHEY_SIMPLEX, 0.45, colour, 1, cv2.LINE_AA)

    def _draw_words(self, picture: Picture, k: int) -> None:
        trace = self.trace
        words = [self.title, f"step {k} of {trace.steps}   {k * trace.meta.dt:.1f} s"]
        if self._centre is None or trace.meta.ego >= 0:
            speed = float(trace["speed"][self.rollout, k, self.follow])
            here = trace["length"][self.rollout, k, self.follow] > 0
            words.append(f"agent {self.follow}   {speed:.1f} m/s" if here else f"agent {self.follow} has left")
        put_words(picture, words)


def put_words(picture: Picture, words: Sequence[str]) -> None:
    """Write lines into the upper left corner, on a pale panel, so that they can be read over any map."""
    import cv2

    size = [cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.55, 1)[0][0] for text in words]
    panel = picture[8 : 16 + 24 * len(words), 8 : 24 + max(size)]
    panel[:] = panel // 4 + 191
    for line, text in enumerate(words):
        place = (16, 28 + 24 * line)
        cv2.putText(picture, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.55, TEXT_COLOUR, 1, cv2.LINE_AA)
