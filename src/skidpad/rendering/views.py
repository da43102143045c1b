"""A recorded case as moving pictures: the true state from above, whole or following one agent.

Every frame is a function of the trace, its scene and the view: nothing is simulated, and any number of views show the
very case that was scored. Map and signals are drawn once, in tiles; bodies, trails, marks and words go over them.
The camera is snapped to even pixels of the map, so that it stands still while agents move over it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.rendering.replay import region
from skidpad.rendering.strokes import Colour, Picture, Strokes
from skidpad.rendering.tiles import MapTiles
from skidpad.rendering.topdown import SHIFT, Camera, bodies
from skidpad.rendering.video import paste, split
from skidpad.runs.trace import Trace
from skidpad.scenes.events import COLLISION, Controller, Event, Status
from skidpad.scenes.scene import Scene

StateView = Literal["sim_state", "topdown_sim"]

FOLLOW_METRES = 100.0  # across the shorter side of a picture that follows an agent
TRAIL_S, MARK_S = 3.0, 1.0  # how long a trail is, and how long an event stays marked

# RGB. Who is under test stands out; everybody else is told apart by who drives.
UNDER_TEST, OTHER_POLICY, IDM_COLOUR = (9, 105, 218), (84, 174, 255), (130, 80, 223)
REPLAYED, STANDING, STOPPED = (110, 119, 129), (182, 162, 138), (60, 66, 73)
GOAL_COLOUR, TRAIL_COLOUR, FOLLOWED = (26, 127, 55), (140, 180, 230), (255, 255, 255)
LEGEND: tuple[tuple[Colour, str], ...] = (
    (UNDER_TEST, "under test"),
    (OTHER_POLICY, "driven by a policy"),
    (IDM_COLOUR, "driven by a rule"),
    (REPLAYED, "moves as recorded"),
    (STANDING, "obstacle"),
)
MARKS: tuple[tuple[int, Colour, str], ...] = (
    (int(COLLISION), (207, 34, 46), "collision"),
    (int(Event.OFFROAD | Event.OFF_MAP), (191, 135, 0), "off-road"),
    (int(Event.RED_LIGHT), (207, 34, 134), "red light"),
    (int(Event.STOP_SIGN), (154, 50, 168), "stop sign"),
    (int(Event.GOAL), (26, 127, 55), "goal"),
)


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
        self._legend = [(colour, text) for colour, text in LEGEND if colour in self._colours]
        self._marks = self._marked_states()
        self._canvas = np.empty((height, width, 3), np.uint8)
        self._still: tuple[bytes, NDArray[np.uint8]] | None = None

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
        """Where the camera of frame k stands: at an even pixel of the map."""
        if self._centre is not None:
            x, y = self._centre
        else:
            present = np.flatnonzero(self.trace["length"][self.rollout, : k + 1, self.follow] > 0)
            at = int(present[-1]) if len(present) else 0  # An agent that has left is remembered where it was.
            x = float(self.trace["x"][self.rollout, at, self.follow])
            y = float(self.trace["y"][self.rollout, at, self.follow])
        left = 2 * round((x * self.scale - self.width / 2) / 2)
        top = 2 * round((-y * self.scale - self.height / 2) / 2)
        centre_x, centre_y = (left + self.width / 2) / self.scale, -(top + self.height / 2) / self.scale
        return Look(left, top, Camera(centre_x, centre_y, self.scale, self.width, self.height))

    def frame(self, k: int) -> Picture:
        """Frame k, (height, width, 3) u8 RGB. The array is the film's own and valid until the next call."""
        look, strokes = self._strokes(k)
        self._tiles.into(self._canvas, look.left, look.top)
        strokes.onto(self._canvas)
        return self._canvas

    def planes(self, k: int) -> NDArray[np.uint8]:
        """Frame k as `video.planes` makes it of `frame(k)`, but only pixels under strokes are converted: (3 H / 2, W)
        u8, a new array each time."""
        look, strokes = self._strokes(k)
        found = self._background(k, look)
        target = split(found, self.height, self.width)
        for box in strokes.boxes:
            self._tiles.into(self._canvas, look.left, look.top, box)
        strokes.onto(self._canvas)
        for box in strokes.boxes:
            paste(target, self._canvas[box.window], box.left, box.top)
        return found

    def _background(self, k: int, look: Look) -> NDArray[np.uint8]:
        """Planes of the map and its signals; put together anew only where the camera or a signal has changed."""
        states = self.trace["signal_state"][self.rollout, k].tobytes()
        if self._still is not None and self._still[0] == states:
            return self._still[1].copy()
        found = np.empty((self.height * 3 // 2, self.width), np.uint8)
        self._tiles.planes_into(split(found, self.height, self.width), look.left, look.top)
        if self._centre is not None:
            self._still = states, found.copy()
        return found

    def _strokes(self, k: int) -> tuple[Look, Strokes]:
        """Where frame k looks, and what is drawn over the map there."""
        look, strokes = self.look(k), Strokes(self.width, self.height)
        present = np.flatnonzero(self.trace["length"][self.rollout, k] > 0)
        self._tiles.show(self.trace["signal_state"][self.rollout, k])
        self._trails(strokes, look.camera, k)
        self._goals(strokes, look.camera, k)
        self._bodies(strokes, look.camera, k, present)
        self._events(strokes, look.camera, k, present)
        strokes.panel(self._words(k))
        strokes.scale(look.camera)
        strokes.legend(self._legend)
        return look, strokes

    def _trails(self, strokes: Strokes, camera: Camera, k: int) -> None:
        first = max(0, k - round(TRAIL_S / self.trace.meta.dt))
        for agent in self.trace["scored"].tolist():
            there = self.trace["length"][self.rollout, first : k + 1, agent] > 0
            path = np.stack([self.trace[name][self.rollout, first : k + 1, agent][there] for name in "xy"], axis=1)
            if len(path) > 1:
                strokes.line(camera.pixels(path), TRAIL_COLOUR, 2)

    def _goals(self, strokes: Strokes, camera: Camera, k: int) -> None:
        goals, count = self.trace["goals"][self.rollout], self.trace["goal_count"][self.rollout]
        radius = max(4 << SHIFT, round(2.0 * camera.scale * (1 << SHIFT)))
        for slot, agent in enumerate(self.trace["scored"].tolist()):
            index = int(self.trace["goal_index"][self.rollout, k, agent])
            if index >= int(count[slot]) or self.trace["length"][self.rollout, k, agent] <= 0:
                continue
            ((column, row),) = camera.pixels(goals[slot, index, None, :2]).tolist()
            strokes.ring(column, row, radius, GOAL_COLOUR)

    def _bodies(self, strokes: Strokes, camera: Camera, k: int, present: NDArray[np.int64]) -> None:
        values = [self.trace[name][self.rollout, k, present] for name in ("x", "y", "heading", "length", "width")]
        outlines = bodies(*values)
        pixels = camera.pixels(outlines.reshape(-1, 2)).reshape(-1, 5, 2)
        stopped = (self.trace["status"][self.rollout, k, present] == Status.STOPPED).tolist()
        agents = present.tolist()
        colours = [STOPPED if stands else self._colours[agent] for agent, stands in zip(agents, stopped, strict=True)]
        followed = self.follow if self._centre is None else -1
        strokes.polygons(pixels, colours, [FOLLOWED if agent == followed else None for agent in agents])

    def _events(self, strokes: Strokes, camera: Camera, k: int, present: NDArray[np.int64]) -> None:
        """A ring around everybody to whom something happened within the last second, and what it was."""
        recent = k - round(MARK_S / self.trace.meta.dt)
        marked: dict[int, list[tuple[int, Colour, str]]] = {}
        for last, (_, colour, word) in zip(self._marks, MARKS, strict=True):
            for agent in np.flatnonzero((last[k] >= 0) & (last[k] > recent)).tolist():
                marked.setdefault(agent, []).append((int(last[k, agent]), colour, word))
        said: list[tuple[str, int, int]] = []
        for agent, what in marked.items():
            # Marked where it is now, or where it was when it happened and then vanished.
            at = k if agent in present else what[0][0]
            point = np.array([[self.trace["x"][self.rollout, at, agent], self.trace["y"][self.rollout, at, agent]]])
            length = max(float(self.trace["length"][self.rollout, at, agent]), 4.0)
            ((column, row),) = camera.pixels(point).tolist()
            radius = max(12.0, 0.9 * length * camera.scale)
            for ring, (_, colour, word) in enumerate(what):
                strokes.ring(column, row, round((radius + 4 * ring) * (1 << SHIFT)), colour)
                aside = round(column / (1 << SHIFT) + radius + 8)
                below = round(row / (1 << SHIFT) - radius + 18 * ring)
                # Two that collide are one word: it could not be read twice over itself.
                if all(word != one or abs(aside - x) > 80 or abs(below - y) > 14 for one, x, y in said):
                    strokes.label(word, aside, below, colour)
                    said.append((word, aside, below))

    def _words(self, k: int) -> list[str]:
        trace = self.trace
        words = [self.title, f"step {k} of {trace.steps}   {k * trace.meta.dt:.1f} s"]
        if self._centre is None or trace.meta.ego >= 0:
            speed = float(trace["speed"][self.rollout, k, self.follow])
            here = trace["length"][self.rollout, k, self.follow] > 0
            name = f"vehicle {trace['source_id'][self.follow]}"
            words.append(f"{name}   {speed:.1f} m/s" if here else f"{name} has left")
        return words
