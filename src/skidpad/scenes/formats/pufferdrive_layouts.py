"""The layouts of PufferDrive `.bin` files (R20), from the first (F0) to the one with lane widths (F2b).

No file says which it is. Each layout is tried with strict ranges, and a file is read only where exactly one of them
consumes it to its last byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.formats.pufferdrive_bytes import F64, I64, Cursor, MisfitError
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import SIGNAL_YIELD, STATE_OFF, TYPE_CYCLIST

PHASE_TAG, WIDTH_TAG = b"TLPHASE1", b"LANEWID1"
SCENARIO_BYTES, DATASET_BYTES = 128, 32
ROW_COLUMNS = ("x", "y", "z", "heading", "vx", "vy", "length", "width", "height")
# Types of the old layouts.
OLD_OBJECTS, OLD_LANE, OLD_LINE, OLD_EDGE, OLD_STOP_SIGN, OLD_LAST = (1, 3), 4, 5, 6, 7, 10
ROAD_TYPES = frozenset({*range(8), *range(10, 19), *range(20, 23), *range(30, 34)})

_LEAST_TO_CLAIM = 24  # bytes that must make sense before a file is called one of these
_ANY = (1 << 31) - 1


@dataclass(eq=False)
class BinTrack:
    """An agent or object: rows by ROW_COLUMNS (T,) f64, valid (T,) bool, goal (3,) f64 [m] or None."""

    id: int
    type: int
    rows: dict[str, F64]
    valid: NDArray[np.bool_]
    goal: F64 | None = None
    expert: bool = False
    has_route: bool = False
    is_static: bool = False


@dataclass(eq=False)
class BinRoad:
    """A polyline (P, 3) f64 [m]; a lane of the new layouts also has links, by road number, and a speed limit [m/s]."""

    id: int
    type: int
    points: F64
    entries: I64 | None = None
    exits: I64 | None = None
    speed_limit: float = float("nan")
    widths: F64 | None = None


@dataclass(eq=False)
class BinSignal:
    """A light, stop sign or yield: line (2, 3) f64 [m], states (S,) i64, controlled lanes by road number."""

    kind: int
    line: F64
    heading: float
    states: I64
    lanes: I64
    junction: int = -1
    phase: int = -1


@dataclass(eq=False)
class BinFile:
    """Everything in a file. `sdc` is -1 where it names no recording vehicle; `dt` is None where it says nothing."""

    layout: str
    tracks: list[BinTrack] = field(default_factory=list)
    roads: list[BinRoad] = field(default_factory=list)
    signals: list[BinSignal] = field(default_factory=list)
    sdc: int = -1
    predict: list[int] = field(default_factory=list)
    interest: list[int] = field(default_factory=list)
    scenario_id: str = ""
    dataset: str = ""
    dt: float | None = None
    log_length: int | None = None

    @property
    def is_new(self) -> bool:
        """Whether it has the lane graph, signals and types of the new layouts."""
        return self.layout.startswith("F2")


def parse(data: bytes, limits: Limits, name: str) -> BinFile:
    """The contents of a file, by the one layout that fits it.

    Raises FormatError where none does, with what each met first, and where more than one does.
    """
    found, reasons = [], []
    for layout, attempt in LAYOUTS.items():
        try:
            found.append(_whole(attempt, Cursor(data, limits)))
        except FormatError as error:
            reasons.append(f"{layout}: {error}")
    if not found:
        raise FormatError(f"{name}: no layout of a .bin file fits ({'; '.join(reasons)}). Write the file again.")
    if len(found) > 1:
        fitting = " and ".join(one.layout for one in found)
        raise FormatError(
            f"{name}: fits the layouts {fitting}, which are different scenes. Write it in another format."
        )
    return found[0]


def plausible(head: bytes) -> bool:
    """Whether a file that begins with these bytes makes sense in some layout, at least for a while.

    A file that goes wrong later is still one of these, and its reader says where.
    """
    for attempt in LAYOUTS.values():
        cursor = Cursor(head, Limits(), whole=False)
        with contextlib.suppress(FormatError):
            attempt(cursor)
        if cursor.at >= _LEAST_TO_CLAIM and any(head[:_LEAST_TO_CLAIM]):
            return True
    return False


def _whole(attempt: Callable[[Cursor], BinFile], cursor: Cursor) -> BinFile:
    file = attempt(cursor)
    if cursor.rest:
        raise MisfitError(f"byte {cursor.at}: {cursor.rest} bytes follow the end")
    if not file.tracks and not file.roads:
        raise MisfitError("neither objects nor roads")
    return file


# The old layouts: F0, F0 with ids, F1


def _old(cursor: Cursor, layout: str, *, head: bool, has_scenario: bool, has_id: bool) -> BinFile:
    file = BinFile(layout)
    chosen: list[int] = []
    if head:
        file.sdc = cursor.integer(-1, cursor.limits.tracks, "number of the recording vehicle")
        chosen = cursor.integers(
            cursor.count(cursor.limits.tracks, 4, "tracks to predict"), 0, cursor.limits.tracks, "track to predict"
        ).tolist()
    least = 8 + 4 * has_scenario + 4 * has_id + 28
    objects = cursor.count(cursor.limits.tracks, least + 32, "objects")
    roads = cursor.count(cursor.limits.elements, least + 12, "roads")
    for index in range(objects + roads):
        is_object = index < objects
        what = f"object {index}" if is_object else f"road {index - objects}"
        if has_scenario:
            cursor.integer(-_ANY, _ANY, f"scenario of {what}")
        kind = cursor.integer(*(OLD_OBJECTS if is_object else (OLD_LANE, OLD_LAST)), f"type of {what}")
        identity = cursor.integer(-1, _ANY, f"id of {what}") if has_id else -1
        if is_object:
            file.tracks.append(_old_track(cursor, identity, kind, what))
        else:
            rows = cursor.count(cursor.limits.map_points, 12, f"points of {what}", 1)
            points = np.stack(list(cursor.columns(("x", "y", "z"), rows, what).values()), axis=1)
            file.roads.append(BinRoad(identity, kind, points))
            cursor.numbers(6, f"size and goal of {what}")
            cursor.integer(0, 1, f"expert mark of {what}")
    if file.sdc >= objects or any(track >= objects for track in chosen):
        raise MisfitError(f"vehicle {file.sdc} or a track to predict is not one of the {objects} objects")
    file.predict = chosen
    return file


def _old_track(cursor: Cursor, identity: int, kind: int, what: str) -> BinTrack:
    rows = cursor.count(cursor.limits.rows, 32, f"rows of {what}", 1)
    table = cursor.columns(("x", "y", "z", "vx", "vy", "vz", "heading"), rows, what)
    del table["vz"]
    valid = cursor.integers(rows, 0, 1, f"valid of {what}") == 1
    width, length, height = cursor.numbers(3, f"size of {what}")
    if not (width > 0.0 and length > 0.0 and height >= 0.0):
        raise MisfitError(f"byte {cursor.at - 12}: {what} is {length:g} x {width:g} x {height:g} m")
    for name, size in (("length", length), ("width", width), ("height", height)):
        table[name] = np.full(rows, size)
    goal = cursor.numbers(3, f"goal of {what}")
    expert = cursor.integer(0, 1, f"expert mark of {what}") == 1
    return BinTrack(identity, kind, table, valid, goal, expert)


# The new layouts: F2 and its tails


def _new(cursor: Cursor) -> BinFile:
    file = BinFile("F2")
    limits = cursor.limits
    agents = cursor.count(limits.tracks, 36, "agents")
    roads = cursor.count(limits.elements, 12, "roads")
    signals = cursor.count(limits.signals, 44, "traffic controls")
    objects = cursor.count(limits.tracks, 12, "static objects")
    for index in range(agents):
        file.tracks.append(_new_track(cursor, index, f"agent {index}"))
        track = file.tracks[-1]
        route = cursor.count(limits.lanes, 4, f"route of agent {index}")
        cursor.integers(route, -1, limits.elements, f"route of agent {index}")
        cursor.integer(0, limits.lanes, f"driven lanes of agent {index}")
        track.has_route = route > 0
        track.goal = cursor.numbers(3, f"goal of agent {index}")
        track.expert = cursor.integer(0, 1, f"expert mark of agent {index}") == 1
    file.roads = [_new_road(cursor, index, roads) for index in range(roads)]
    file.signals = [_signal(cursor, index, roads) for index in range(signals)]
    for index in range(objects):
        track = _new_track(cursor, None, f"static object {index}")
        track.is_static = True
        file.tracks.append(track)
    known = cursor.count(limits.lanes, 4, "lanes of the graph")
    cursor.integers(known, 0, max(roads - 1, 0), "lane of the graph")
    cursor.take(4 * known * known, "distances between lanes")  # computed anew, so not even looked at
    file.scenario_id, file.dataset = (
        _text(cursor.take(size, what), what)
        for size, what in ((SCENARIO_BYTES, "scenario id"), (DATASET_BYTES, "data set"))
    )
    file.log_length = cursor.integer(0, limits.rows, "length of the log")
    file.dt = float(cursor.numbers(1, "time step")[0])
    if file.dt <= 0.0:
        raise MisfitError(f"byte {cursor.at - 4}: time step is {file.dt:g} s")
    chosen = []
    for what in ("objects of interest", "tracks to predict"):
        count = cursor.count(limits.tracks, 4, what)
        chosen.append(cursor.integers(count, 0, max(agents - 1, 0), what).tolist() if agents or count else [])
    file.interest, file.predict = chosen
    file.sdc = 0 if file.tracks and file.tracks[0].has_route else -1
    while cursor.rest:
        _tail(cursor, file)
    return file


def _new_track(cursor: Cursor, index: int | None, what: str) -> BinTrack:
    identity = cursor.integer(0 if index is None else index, _ANY if index is None else index, f"id of {what}")
    kind = cursor.integer(0, 255 if index is None else TYPE_CYCLIST, f"type of {what}")
    rows = cursor.count(cursor.limits.rows, 40, f"rows of {what}")
    table = cursor.columns(ROW_COLUMNS, rows, what)
    valid = cursor.integers(rows, 0, 1, f"valid of {what}") == 1
    if any(np.any(table[name][valid] <= 0.0) for name in ("length", "width")):
        raise MisfitError(f"byte {cursor.at}: {what} has no size in some row")
    return BinTrack(identity, kind, table, valid)


def _new_road(cursor: Cursor, index: int, roads: int) -> BinRoad:
    what = f"road {index}"
    cursor.integer(index, index, f"id of {what}")
    kind = cursor.integer(0, 33, f"type of {what}")
    if kind not in ROAD_TYPES:
        raise MisfitError(f"byte {cursor.at - 4}: type of {what} is {kind}, which is none")
    count = cursor.count(cursor.limits.map_points, 16, f"points of {what}", 1)
    points = np.stack(list(cursor.columns(("x", "y", "z"), count, what).values()), axis=1)
    cursor.numbers(count, f"headings of {what}")
    road = BinRoad(index, kind, points)
    if kind < 10:
        links = []
        for side in ("entries", "exits"):
            size = cursor.count(roads, 4, f"{side} of {what}")
            links.append(cursor.integers(size, -1, roads - 1, f"{side} of {what}"))
        road.entries, road.exits = links
        road.speed_limit = float(cursor.numbers(1, f"speed limit of {what}", finite=False)[0])
        cursor.numbers(1 + count, f"lengths of {what}")
    return road


def _signal(cursor: Cursor, index: int, roads: int) -> BinSignal:
    what = f"traffic control {index}"
    cursor.integer(index, index, f"id of {what}")
    kind = cursor.integer(0, SIGNAL_YIELD, f"type of {what}")
    line = cursor.numbers(6, f"stop line of {what}").reshape(2, 3)
    heading = float(cursor.numbers(1, f"heading of {what}")[0])
    states = cursor.integers(cursor.count(cursor.limits.rows, 4, f"states of {what}"), 0, STATE_OFF, f"state of {what}")
    count = cursor.count(cursor.limits.lanes, 4, f"lanes of {what}")
    lanes = cursor.integers(count, -1, roads - 1, f"lane of {what}")
    return BinSignal(kind, line, heading, states, lanes)


def _tail(cursor: Cursor, file: BinFile) -> None:
    """One of the additions of F2b."""
    tag = cursor.take(len(PHASE_TAG), "tag of an addition")
    lanes = [road for road in file.roads if road.entries is not None]
    if tag == PHASE_TAG and all(signal.junction == -1 for signal in file.signals):
        pairs = cursor.integers(2 * len(file.signals), -1, _ANY, "junction or phase")
        for signal, (junction, phase) in zip(file.signals, pairs.reshape(-1, 2).tolist(), strict=True):
            signal.junction, signal.phase = junction, phase
    elif tag == WIDTH_TAG and all(road.widths is None for road in lanes):
        for road in lanes:
            road.widths = cursor.numbers(len(road.points), f"widths of road {road.id}")
            if np.any(road.widths < 0.0):
                raise MisfitError(f"byte {cursor.at}: road {road.id} has a width below 0")
    else:
        raise MisfitError(f"byte {cursor.at - len(tag)}: {tag!r} is no tag of an addition, or it comes twice")
    file.layout = "F2b"


def _text(data: bytes, what: str) -> str:
    head, _, rest = data.partition(b"\0")
    if rest.strip(b"\0"):
        raise MisfitError(f"{what} goes on after its end")
    try:
        return head.decode("utf-8")
    except UnicodeDecodeError:
        raise MisfitError(f"{what} is no text") from None


LAYOUTS: dict[str, Callable[[Cursor], BinFile]] = {
    "F0": partial(_old, layout="F0", head=False, has_scenario=False, has_id=False),
    "F0i": partial(_old, layout="F0i", head=False, has_scenario=False, has_id=True),
    "F1": partial(_old, layout="F1", head=True, has_scenario=True, has_id=True),
    "F2": _new,
}
