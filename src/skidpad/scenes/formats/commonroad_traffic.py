"""Obstacles and planning problems of a CommonRoad file (R16).

A dynamic obstacle is a track whose row is its time step; the initial state is row t0 and the trajectory begins after
it. A static obstacle is there in every row. Road boundaries are edges. Predicted sets of occupancies are no log and are
dropped. Values given as intervals and positions given as shapes are taken in their middle, and counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive
from skidpad.scenes.formats.commonroad_map import RoadFile, read_point, read_points
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, shown
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    EDGE_BOUNDARY,
    SUBTYPE_BUS,
    SUBTYPE_CAR,
    SUBTYPE_MOTORCYCLE,
    SUBTYPE_NONE,
    SUBTYPE_STATIC,
    SUBTYPE_TRUCK,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    TYPE_UNKNOWN,
    TYPE_VEHICLE,
)

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class _Class:
    """What an obstacle type of the file is here; the format has no heights, so one is assumed [m]."""

    type: int
    subtype: int
    height: float


_CAR = _Class(TYPE_VEHICLE, SUBTYPE_CAR, 1.5)
_THING = _Class(TYPE_UNKNOWN, SUBTYPE_STATIC, 1.5)
_CLASSES = {
    "car": _CAR,
    "taxi": _CAR,
    "priorityVehicle": _CAR,
    "parkedVehicle": _CAR,
    "truck": _Class(TYPE_VEHICLE, SUBTYPE_TRUCK, 3.5),
    "bus": _Class(TYPE_VEHICLE, SUBTYPE_BUS, 3.2),
    "motorcycle": _Class(TYPE_VEHICLE, SUBTYPE_MOTORCYCLE, 1.5),
    "bicycle": _Class(TYPE_CYCLIST, SUBTYPE_NONE, 1.7),
    "pedestrian": _Class(TYPE_PEDESTRIAN, SUBTYPE_NONE, 1.7),
    "train": _Class(TYPE_UNKNOWN, SUBTYPE_NONE, 3.5),
    "unknown": _Class(TYPE_UNKNOWN, SUBTYPE_NONE, 1.5),
    "constructionZone": _THING,
    "building": _THING,
    "pillar": _THING,
    "median_strip": _THING,
}
_ROAD_BOUNDARY = "roadBoundary"
_EGO_LENGTH_M, _EGO_WIDTH_M, _EGO_HEIGHT_M = 4.5, 1.8, 1.5
# Far above any road user and far below what float32 holds: such a value is a defect of its row, not a place.
_LARGEST = 1e7


@dataclass(frozen=True)
class Outline:
    """A shape in the frame of its obstacle.

    shape          rectangle, circle or polygon
    length, width  [m]  of the box around it
    x, y, turn     [m], [rad]  centre and orientation of that box
    corners        (n, 2) f64 [m]  the outline itself, closed
    """

    shape: str
    length: float
    width: float
    x: float
    y: float
    turn: float
    corners: F64


@dataclass(frozen=True)
class State:
    """One state of an obstacle: time step, position [m], orientation [rad], speed along it [m/s] or None.

    Numbers may be non-finite: the builder invalidates such rows and counts them.
    """

    step: int
    x: float
    y: float
    z: float
    heading: float
    speed: float | None


@dataclass(eq=False)
class Log:
    """One obstacle as the file has it. A static one has a single state that holds throughout."""

    id: int
    name: str
    kind: _Class
    outline: Outline
    is_static: bool
    is_boundary: bool
    states: dict[int, State] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """Its last time step, which sets the length of the scene; static obstacles ask for one row."""
        return 0 if self.is_static else max(self.states, default=0)


@dataclass(frozen=True)
class Problem:
    """A planning problem: who starts where and when, and where to. `label` holds all of it as plain values.

    goal_centres  centre of each goal position [m]; goal_lanelets the ids where a goal is given by lanelets
    """

    id: int
    step: int
    x: float
    y: float
    z: float
    heading: float
    speed: float
    goal_centres: list[tuple[float, float, float]]
    goal_lanelets: list[int]
    label: dict[str, Any]


# Obstacles


def read_traffic(root: Element, loss: LossReport, limits: Limits) -> list[Log]:
    """All obstacles that are logs, in file order; predictions and doubled ids are dropped and counted."""
    logs: dict[int, Log] = {}
    for element in root.all("obstacle", "dynamicObstacle", "staticObstacle"):
        identity = element.require_int("id")
        where = f"{element.at}: obstacle {identity}"
        if element.first("occupancySet") is not None:
            loss.count("dropped_prediction", f"{where} is a set-based prediction, no log")
            element.skip()
            continue
        if identity in logs:
            loss.count("dropped_doubled_id", f"{where}, the first one wins")
            element.skip()
            continue
        limits.check("tracks", len(logs) + 1, element.place)
        logs[identity] = _obstacle(element, identity, where, loss, limits)
    return list(logs.values())


def _obstacle(element: Element, identity: int, where: str, loss: LossReport, limits: Limits) -> Log:
    kind_name = element.only("type").text
    if kind_name not in _CLASSES and kind_name != _ROAD_BOUNDARY:
        loss.count("unknown_obstacle_type", f"{where}: {shown(kind_name)}")
    is_static = _is_static(element)
    kind = _CLASSES.get(kind_name, _CLASSES["unknown"])
    if is_static and kind.type == TYPE_UNKNOWN:
        kind = _Class(kind.type, SUBTYPE_STATIC, kind.height)
    outline = _outline(element.only("shape"), loss)
    log = Log(identity, where, kind, outline, is_static, kind_name == _ROAD_BOUNDARY)
    elements = [element.only("initialState")]
    trajectory = element.first("trajectory")
    if trajectory is not None:
        elements += trajectory.all("state")
    previous = None
    for state_element in elements:
        state = _state(state_element, is_static, loss)
        if state is None:
            continue
        limits.check("rows", state.step + 1, state_element.place)
        if state.step in log.states:
            loss.count("dropped_doubled_step", f"{where}: time step {state.step}, the first one wins")
            continue
        if previous is not None and state.step < previous:
            loss.count("repaired_order_of_steps", f"{where}: time step {state.step} after {previous}")
        elif previous is not None and state.step > previous + 1:
            loss.count("assumed_absent_in_gap", f"{where}: no states between time steps {previous} and {state.step}")
        previous = state.step
        log.states[state.step] = state
    return log


def _is_static(element: Element) -> bool:
    if element.tag != "obstacle":
        return element.tag == "staticObstacle"
    role = element.only("role")
    if role.text not in ("dynamic", "static"):
        raise role.error(f"text is {shown(role.text)!r}, expected dynamic or static")
    return role.text == "static"


def _state(element: Element, is_static: bool, loss: LossReport) -> State | None:
    """A state, or None where it lacks a position or an orientation, which is counted."""
    step = _step(element.only("time"), loss)
    if step < 0:
        raise element.error(f"time step is {step}, expected 0 or more")
    place = _position(element, loss)
    heading = _scalar(element, "orientation", loss)
    if place is None or heading is None:
        lacking = "position" if place is None else "orientation"
        loss.count(f"dropped_state_without_{lacking}", f"{element.at}: time step {step}")
        return None
    speed = _scalar(element, "velocity", loss)
    return State(step, *place, heading, 0.0 if is_static and speed is None else speed)


def _step(element: Element, loss: LossReport) -> int:
    exact = element.first("exact")
    if exact is not None:
        return exact.text_int()
    low, high = element.only("intervalStart").text_int(), element.only("intervalEnd").text_int()
    loss.count("assumed_middle_of_interval", f"{element.at}: time steps {low} to {high}")
    return (low + high) // 2


def _scalar(parent: Element, tag: str, loss: LossReport, *, finite: bool = False) -> float | None:
    """A quantity given exactly or as an interval, whose middle it then is; None where it is absent."""
    element = parent.first(tag)
    if element is None:
        return None
    exact = element.first("exact")
    if exact is not None:
        return exact.text_float(finite=finite)
    low = element.only("intervalStart").text_float(finite=finite)
    high = element.only("intervalEnd").text_float(finite=finite)
    loss.count("assumed_middle_of_interval", f"{element.at}: {tag} {low:g} to {high:g}")
    return low + 0.5 * (high - low)


def _position(parent: Element, loss: LossReport) -> tuple[float, float, float] | None:
    element = parent.first("position")
    if element is None:
        return None
    point = element.first("point")
    if point is not None:
        z = point.first("z")
        return (
            point.only("x").text_float(finite=False),
            point.only("y").text_float(finite=False),
            0.0 if z is None else z.text_float(finite=False),
        )
    found = [shape for shape in element.children if shape.tag in ("rectangle", "circle", "polygon")]
    if not found:
        return None
    outline = _outline(element, loss)
    loss.count("assumed_middle_of_position", f"{element.at}: {found[0].tag}")
    return outline.x, outline.y, 0.0


def _outline(holder: Element, loss: LossReport) -> Outline:
    """The one shape inside an element; further ones are dropped and counted."""
    shapes = holder.all("rectangle", "circle", "polygon")
    if not shapes:
        raise holder.error("no shape inside, expected a rectangle, circle or polygon")
    for extra in shapes[1:]:
        loss.count("dropped_further_shape", f"{extra.at}: {extra.tag}")
        extra.skip()
    shape = shapes[0]
    if shape.tag == "rectangle":
        return _rectangle(shape)
    if shape.tag == "circle":
        radius = shape.only("radius").text_float()
        x, y = _centre(shape)
        return Outline(shape.tag, 2 * radius, 2 * radius, x, y, 0.0, _box(2 * radius, 2 * radius, x, y, 0.0))
    points = read_points(shape)[:, :2]
    if len(points) < 3:
        raise shape.error(f"{len(points)} points, expected at least 3")
    low, high = points.min(axis=0), points.max(axis=0)
    (length, width), (x, y) = high - low, 0.5 * (low + high)
    corners = points if np.array_equal(points[0], points[-1]) else np.concatenate([points, points[:1]])
    return Outline(shape.tag, float(length), float(width), float(x), float(y), 0.0, corners)


def _rectangle(shape: Element) -> Outline:
    length, width = shape.only("length").text_float(), shape.only("width").text_float()
    turn = shape.first("orientation")
    x, y = _centre(shape)
    angle = 0.0 if turn is None else turn.text_float()
    return Outline(shape.tag, length, width, x, y, angle, _box(length, width, x, y, angle))


def _centre(shape: Element) -> tuple[float, float]:
    centre = shape.first("center")
    return (0.0, 0.0) if centre is None else read_point(centre)[:2]


def _box(length: float, width: float, x: float, y: float, turn: float) -> F64:
    corners = 0.5 * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1], [1, 1]]) * (length, width)
    return _moved(corners, x, y, turn)


def _moved(points: F64, x: float, y: float, turn: float) -> F64:
    """Points (n, 2) f64 [m] of a frame at (x, y), turned by `turn`, seen from outside it."""
    cos, sin = math.cos(turn), math.sin(turn)
    moved: F64 = points @ np.array([[cos, sin], [-sin, cos]]) + (x, y)
    return moved


def add_traffic(logs: list[Log], builder: SceneBuilder, rows: int, dt_us: int) -> None:
    """Hand the obstacles to the builder as tracks of `rows` rows, and road boundaries as edges."""
    for log in logs:
        if log.is_boundary:
            _add_boundary(log, builder)
        else:
            _add_track(log, builder, rows, dt_us)


def _add_boundary(log: Log, builder: SceneBuilder) -> None:
    for state in log.states.values():
        if not all(map(math.isfinite, (state.x, state.y, state.heading))):
            builder.loss.count("dropped_boundary_not_finite", log.name)
            return
        builder.edge(_moved(log.outline.corners, state.x, state.y, state.heading), EDGE_BOUNDARY, log.id)
        return


def _add_track(log: Log, builder: SceneBuilder, rows: int, dt_us: int) -> None:
    table = np.zeros((rows, 5))
    valid = np.zeros(rows, np.bool_)
    has_speed = np.ones(rows, np.bool_)
    for state in log.states.values():
        at = slice(None) if log.is_static else state.step
        table[at] = (state.x, state.y, state.z, state.heading, state.speed or 0.0)
        valid[at], has_speed[at] = True, state.speed is not None
    broken = ~np.all(np.abs(table) <= _LARGEST, axis=1)  # also where a number is nan
    table[broken] = np.nan
    x, y, z, heading, speed = table.T
    outline = log.outline
    x, y = (
        x + outline.x * np.cos(heading) - outline.y * np.sin(heading),
        y + (outline.x * np.sin(heading) + outline.y * np.cos(heading)),
    )
    vx, vy = speed * np.cos(heading), speed * np.sin(heading)
    missing = valid & ~has_speed
    if missing.any():
        by_position = derive.velocities(x, y, valid & ~broken, dt_us * 1e-6)
        vx[missing], vy[missing] = by_position[0][missing], by_position[1][missing]
        builder.loss.count("assumed_velocity", f"{log.name}: from its positions", int(missing.sum()))
    if outline.shape != "rectangle":
        builder.loss.count("repaired_shape_to_box", f"{log.name}: {outline.shape}")
    builder.loss.count("assumed_height", f"{log.name}: {log.kind.height:g} m")
    builder.track(
        log.id,
        log.kind.type,
        log.kind.subtype,
        x=x,
        y=y,
        z=z,
        heading=heading + outline.turn,
        vx=vx,
        vy=vy,
        length=outline.length,
        width=outline.width,
        height=log.kind.height,
        valid=valid,
    )


# Planning problems


def read_problems(root: Element, loss: LossReport) -> list[Problem]:
    """Every planning problem of the file, in file order."""
    return [_problem(element, loss) for element in root.all("planningProblem")]


def _problem(element: Element, loss: LossReport) -> Problem:
    initial = element.only("initialState")
    state = _state(initial, False, loss)
    if state is None:
        raise initial.error("a start without position or orientation, expected both")
    speed = state.speed or 0.0
    if not all(map(math.isfinite, (state.x, state.y, state.z, state.heading, speed))):
        raise initial.error("a start that is not finite, expected finite numbers")
    centres: list[tuple[float, float, float]] = []
    lanelets: list[int] = []
    goals = []
    for goal in element.all("goalState"):
        label: dict[str, Any] = {}
        for name in ("time", "orientation", "velocity"):
            window = goal.first(name)
            if window is not None:
                label[name] = _window(window, whole=name == "time")
        position = goal.first("position")
        if position is not None:
            label["position"] = [_goal_shape(shape, centres, lanelets) for shape in position.children]
        goals.append(label)
    identity = element.require_int("id")
    start = {"time": state.step, "x": state.x, "y": state.y, "orientation": state.heading, "velocity": speed}
    label = {"id": identity, "start": start, "goals": goals}
    return Problem(identity, state.step, state.x, state.y, state.z, state.heading, speed, centres, lanelets, label)


def _window(element: Element, *, whole: bool) -> list[float]:
    exact = element.first("exact")
    ends = [exact, exact] if exact is not None else [element.only("intervalStart"), element.only("intervalEnd")]
    return [end.text_int() if whole else end.text_float() for end in ends]


def _goal_shape(shape: Element, centres: list[tuple[float, float, float]], lanelets: list[int]) -> dict[str, Any]:
    """A goal position as plain values; its centre, or its lanelet, is added to the lists."""
    shape.taken = True
    if shape.tag == "lanelet":
        lanelets.append(shape.require_int("ref"))
        return {"lanelet": lanelets[-1]}
    if shape.tag == "point":
        centres.append(read_point(shape))
        return {"point": list(centres[-1][:2])}
    if shape.tag == "circle":
        x, y = _centre(shape)
        centres.append((x, y, 0.0))
        return {"circle": [x, y, shape.only("radius").text_float()]}
    if shape.tag == "rectangle":
        box = _rectangle(shape)
        centres.append((box.x, box.y, 0.0))
        return {"rectangle": [box.x, box.y, box.length, box.width, box.turn]}
    if shape.tag == "polygon":
        points = read_points(shape)
        if len(points) < 3:
            raise shape.error(f"{len(points)} points, expected at least 3")
        middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
        centres.append((float(middle[0]), float(middle[1]), float(middle[2])))
        return {"polygon": points[:, :2].tolist()}
    shape.taken = False  # unknown: left to the loss report
    return {"unknown": shown(shape.tag)}


def add_planning_problem(problem: Problem, road: RoadFile, logs: list[Log], builder: SceneBuilder, rows: int) -> int:
    """A track of one row where the problem starts, with the problem's goal; its index.

    Its id is the problem's, or -1 where an obstacle has the same: of two tracks with one id the second would be lost.
    """
    where = f"planning problem {problem.id}"
    builder.loss.count("assumed_size", f"{where}: {_EGO_LENGTH_M} x {_EGO_WIDTH_M} x {_EGO_HEIGHT_M} m")
    valid = np.zeros(rows, np.bool_)
    valid[problem.step] = True
    return builder.track(
        -1 if any(log.id == problem.id for log in logs) else problem.id,
        TYPE_VEHICLE,
        SUBTYPE_CAR,
        x=np.full(rows, problem.x),
        y=np.full(rows, problem.y),
        z=np.full(rows, problem.z),
        heading=np.full(rows, problem.heading),
        vx=np.full(rows, problem.speed * math.cos(problem.heading)),
        vy=np.full(rows, problem.speed * math.sin(problem.heading)),
        length=_EGO_LENGTH_M,
        width=_EGO_WIDTH_M,
        height=_EGO_HEIGHT_M,
        valid=valid,
        goal=_goal_centre(problem, road),
    )


def _goal_centre(problem: Problem, road: RoadFile) -> tuple[float, float, float] | None:
    """Centre of the first goal position; the middle of the first goal lanelet; None where the problem names neither."""
    if problem.goal_centres:
        return problem.goal_centres[0]
    known = [road.lanelets[lanelet] for lanelet in problem.goal_lanelets if lanelet in road.lanelets]
    if not known:
        return None
    x, y, z = known[0].centre[len(known[0].centre) // 2]
    return float(x), float(y), float(z)
