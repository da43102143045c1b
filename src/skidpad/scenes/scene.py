"""The Scene: one immutable piece of world, as plain arrays.

A scene is a road map, the tracks that were recorded on it, and its traffic signals. Everything is concatenated arrays
plus offsets, so a scene can be hashed, memory-mapped and handed to a kernel without touching a Python object per lane
or per track. One table, `SCENE_ARRAYS`, states every array; the archive, the digest and the documentation are derived
from it. Building arrays from a file is the readers' work (`formats/`), checking them is `check.py`.

Frame: local, right-handed, z up, world = `meta.origin` + local. SI units; angles in radians, positive to the left, in
(-pi, pi].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_arrays, digest_value

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

DIGEST_VERSION = 1

# Element types: 0-9 lanes, 10-19 lines, 20-29 edges, 30-39 areas; the ranges are relied upon.
LANE_UNKNOWN, LANE_FREEWAY, LANE_STREET, LANE_BICYCLE, LANE_BUS, LANE_SHOULDER, LANE_WALKWAY, LANE_OTHER = range(8)
LINE_UNKNOWN, LINE_BROKEN_WHITE, LINE_SOLID_WHITE, LINE_DOUBLE_WHITE, LINE_BROKEN_YELLOW = 10, 11, 12, 13, 14
LINE_DOUBLE_BROKEN_YELLOW, LINE_SOLID_YELLOW, LINE_DOUBLE_YELLOW, LINE_PASSING_YELLOW = 15, 16, 17, 18
EDGE_UNKNOWN, EDGE_BOUNDARY, EDGE_MEDIAN = 20, 21, 22
AREA_UNKNOWN, AREA_CROSSWALK, AREA_SPEED_BUMP, AREA_DRIVEWAY = 30, 31, 32, 33

# lane_flags bits
LANE_WIDTH_UNKNOWN, LANE_BUILT_BY_READER, LANE_HAS_STOP_SIGN = 1, 2, 4
UNKNOWN_LANE_WIDTH_M = 3.7

# Track types and subtypes
TYPE_UNKNOWN, TYPE_VEHICLE, TYPE_PEDESTRIAN, TYPE_CYCLIST = range(4)
SUBTYPE_NONE, SUBTYPE_CAR, SUBTYPE_TRUCK, SUBTYPE_BUS, SUBTYPE_MOTORCYCLE, SUBTYPE_STATIC = range(6)

# Signal kinds and states
SIGNAL_LIGHT, SIGNAL_STOP, SIGNAL_YIELD = 1, 2, 3
STATE_UNKNOWN, STATE_RED, STATE_YELLOW, STATE_GREEN, STATE_OFF = range(5)


class ArraySpec(NamedTuple):
    """One array of a scene.

    `shape` names the axes: E elements, P points, L lanes, N tracks, T rows, S signals; a number is itself; `*` is
    free (CSR items).
    """

    path: str
    shape: str
    dtype: str
    unit: str
    meaning: str


SCENE_ARRAYS: tuple[ArraySpec, ...] = (
    ArraySpec("road.element_type", "E", "u1", "code", "what each polyline or polygon is"),
    ArraySpec("road.element_points", "E+1", "i4", "point", "point range of each element; areas are not closed"),
    ArraySpec("road.xyz", "P,3", "f4", "m", "vertices of all elements, end to end; unknown height is 0"),
    ArraySpec("road.arc", "P", "f4", "m", "2D length from the element's first point"),
    ArraySpec("road.direction", "P,2", "f4", "1", "cos, sin of the segment starting here; the last repeats"),
    ArraySpec("road.width", "P", "f4", "m", "full lane width; 0 for elements that are not lanes"),
    ArraySpec("road.lane_element", "L", "i4", "element", "lane number to element"),
    ArraySpec("road.speed_limit", "L", "f4", "m/s", "NaN = unknown"),
    ArraySpec("road.drivable", "L", "b1", "", "may a motor vehicle be spawned, routed and scored here"),
    ArraySpec("road.lane_junction", "L", "i4", "group", "junction group, -1 = none"),
    ArraySpec("road.lane_flags", "L", "u1", "bits", "1 width unknown, 2 built by a reader, 4 has a stop sign"),
    ArraySpec("road.entry_offset", "L+1", "i4", "", "CSR offsets of the lanes from which one drives straight on"),
    ArraySpec("road.entry_lane", "*", "i4", "lane", ""),
    ArraySpec("road.exit_offset", "L+1", "i4", "", "CSR offsets of the lanes into which one drives straight on"),
    ArraySpec("road.exit_lane", "*", "i4", "lane", ""),
    ArraySpec("road.left_offset", "L+1", "i4", "", "CSR offsets of same-direction neighbours to the left"),
    ArraySpec("road.left_lane", "*", "i4", "lane", ""),
    ArraySpec("road.left_range", "*,4", "i4", "point", "where they touch: own first, last point, its first, last"),
    ArraySpec("road.right_offset", "L+1", "i4", "", "CSR offsets of same-direction neighbours to the right"),
    ArraySpec("road.right_lane", "*", "i4", "lane", ""),
    ArraySpec("road.right_range", "*,4", "i4", "point", "as left_range"),
    ArraySpec("road.source_id", "E", "i8", "id", "id in the file, -1 if none"),
    ArraySpec("tracks.x", "N,T", "f4", "m", "centre of the box"),
    ArraySpec("tracks.y", "N,T", "f4", "m", ""),
    ArraySpec("tracks.z", "N,T", "f4", "m", ""),
    ArraySpec("tracks.heading", "N,T", "f4", "rad", ""),
    ArraySpec("tracks.vx", "N,T", "f4", "m/s", ""),
    ArraySpec("tracks.vy", "N,T", "f4", "m/s", ""),
    ArraySpec("tracks.length", "N,T", "f4", "m", "per row; constant sizes are broadcast"),
    ArraySpec("tracks.width", "N,T", "f4", "m", ""),
    ArraySpec("tracks.height", "N,T", "f4", "m", ""),
    ArraySpec("tracks.valid", "N,T", "b1", "", "invalid rows hold zeros"),
    ArraySpec("tracks.type", "N", "u1", "code", "0 unknown, 1 vehicle, 2 pedestrian, 3 cyclist"),
    ArraySpec("tracks.subtype", "N", "u1", "code", "0 none, 1 car, 2 truck, 3 bus, 4 motorcycle, 5 static object"),
    ArraySpec("tracks.source_id", "N", "i8", "id", ""),
    ArraySpec("tracks.goal", "N,3", "f4", "m", "from the file, else the last valid position"),
    ArraySpec("tracks.goal_valid", "N", "b1", "", ""),
    ArraySpec("tracks.route_offset", "N+1", "i4", "", "CSR offsets of each track's lane list"),
    ArraySpec("tracks.route_lane", "*", "i4", "lane", ""),
    ArraySpec("tracks.route_gt_lanes", "N", "i4", "", "how many leading lanes of the route the log visited"),
    ArraySpec("tracks.expert", "N", "b1", "", "the file asks for this track to stay on its log"),
    ArraySpec("tracks.first", "N", "i4", "row", "first valid row, -1 if none"),
    ArraySpec("tracks.last", "N", "i4", "row", "last valid row, -1 if none"),
    ArraySpec("signals.kind", "S", "u1", "code", "1 light, 2 stop sign, 3 yield"),
    ArraySpec("signals.line", "S,2,3", "f4", "m", "stop-line end points, left to right as the driver sees it"),
    ArraySpec("signals.heading", "S", "f4", "rad", "direction of travel through the line"),
    ArraySpec("signals.lane_offset", "S+1", "i4", "", "CSR offsets of the controlled lanes"),
    ArraySpec("signals.lane", "*", "i4", "lane", ""),
    ArraySpec("signals.junction", "S", "i4", "group", ""),
    ArraySpec("signals.phase", "S", "i4", "group", "-1 = none"),
    ArraySpec("signals.state", "S,T", "u1", "code", "0 unknown, 1 red, 2 yellow, 3 green, 4 off"),
    ArraySpec("signals.cycle_offset", "S", "f4", "s", "of the light's programme; 0 where it has none"),
    ArraySpec("signals.program_offset", "S+1", "i4", "", "CSR offsets of the phases of each programme"),
    ArraySpec("signals.program_duration", "*", "f4", "s", ""),
    ArraySpec("signals.program_state", "*", "u1", "code", ""),
)

# What a map index depends on: the road and where its signals stand, but no traffic and no signal states.
MAP_ARRAYS = frozenset(
    spec.path
    for spec in SCENE_ARRAYS
    if spec.path.startswith("road.") or spec.path.rpartition(".")[2] in {"kind", "line", "lane_offset", "lane"}
)


@dataclass(frozen=True, eq=False)
class RoadMap:
    """Lanes, lines, edges and areas. Shapes, dtypes and units: `SCENE_ARRAYS`."""

    element_type: U8
    element_points: I32
    xyz: F32
    arc: F32
    direction: F32
    width: F32
    lane_element: I32
    speed_limit: F32
    drivable: Bool
    lane_junction: I32
    lane_flags: U8
    entry_offset: I32
    entry_lane: I32
    exit_offset: I32
    exit_lane: I32
    left_offset: I32
    left_lane: I32
    left_range: I32
    right_offset: I32
    right_lane: I32
    right_range: I32
    source_id: I64

    @property
    def element_count(self) -> int:
        return len(self.element_type)

    @property
    def lane_count(self) -> int:
        return len(self.lane_element)

    def points(self, element: int) -> slice:
        """The rows of `xyz` that belong to an element."""
        return slice(int(self.element_points[element]), int(self.element_points[element + 1]))

    def lane_points(self, lane: int) -> slice:
        """The rows of `xyz` that belong to a lane."""
        return self.points(int(self.lane_element[lane]))

    def exits(self, lane: int) -> I32:
        """Lanes into which one drives straight on from `lane`."""
        return self.exit_lane[self.exit_offset[lane] : self.exit_offset[lane + 1]]

    def entries(self, lane: int) -> I32:
        """Lanes from which one drives straight on into `lane`."""
        return self.entry_lane[self.entry_offset[lane] : self.entry_offset[lane + 1]]


@dataclass(frozen=True, eq=False)
class Tracks:
    """What was recorded: N tracks of T rows, row j at `j * dt`. Shapes, dtypes and units: `SCENE_ARRAYS`."""

    x: F32
    y: F32
    z: F32
    heading: F32
    vx: F32
    vy: F32
    length: F32
    width: F32
    height: F32
    valid: Bool
    type: U8
    subtype: U8
    source_id: I64
    goal: F32
    goal_valid: Bool
    route_offset: I32
    route_lane: I32
    route_gt_lanes: I32
    expert: Bool
    first: I32
    last: I32

    @property
    def count(self) -> int:
        return len(self.type)

    def route(self, track: int) -> I32:
        """The lanes of a track's route, in driving order."""
        return self.route_lane[self.route_offset[track] : self.route_offset[track + 1]]


@dataclass(frozen=True, eq=False)
class Signals:
    """Traffic lights, stop signs and yields. Shapes, dtypes and units: `SCENE_ARRAYS`."""

    kind: U8
    line: F32
    heading: F32
    lane_offset: I32
    lane: I32
    junction: I32
    phase: I32
    state: U8
    cycle_offset: F32
    program_offset: I32
    program_duration: F32
    program_state: U8

    @property
    def count(self) -> int:
        return len(self.kind)

    def lanes(self, signal: int) -> I32:
        """The lanes a signal controls."""
        return self.lane[self.lane_offset[signal] : self.lane_offset[signal + 1]]


@dataclass(frozen=True)
class LossEntry:
    """One kind of loss of a reader: how often, and the first examples."""

    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class SceneMeta:
    """What a scene is, apart from its arrays.

    dt_us                integer microseconds between rows
    steps                T, rows of the tracks
    current_step         the row "now" that a benchmark starts from
    origin               (3,) float64 [m], world = origin + local
    sdc                  track of the recording vehicle, -1 if the file names none
    loss                 what the reader dropped, repaired, assumed, ignored or did not know, by kind
    """

    scene_id: str
    dataset: str
    source_format: str
    source_version: str
    source_digest: str
    dt_us: int
    steps: int
    current_step: int
    origin: tuple[float, float, float]
    has_z: bool
    sdc: int = -1
    tracks_to_predict: tuple[int, ...] = ()
    objects_of_interest: tuple[int, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    licence: str = ""
    attribution: str = ""
    loss: Mapping[str, LossEntry] = field(default_factory=dict)

    @property
    def dt(self) -> float:
        """Seconds between rows."""
        return self.dt_us * 1e-6


@dataclass(frozen=True, eq=False)
class Scene:
    """One immutable piece of world. Its identity is `digest`."""

    road: RoadMap
    tracks: Tracks
    signals: Signals
    meta: SceneMeta

    def __post_init__(self) -> None:
        for part in (self.road, self.tracks, self.signals):
            for item in fields(part):
                getattr(part, item.name).flags.writeable = False

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by its path in `SCENE_ARRAYS`."""
        found = {}
        for spec in SCENE_ARRAYS:
            part, _, name = spec.path.partition(".")
            found[spec.path] = getattr(getattr(self, part), name)
        return found

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]], meta: SceneMeta) -> Scene:
        """The inverse of `arrays`; raises KeyError for a missing path and TypeError for a dtype that is not the
        table's."""
        parts: dict[str, dict[str, NDArray[Any]]] = {"road": {}, "tracks": {}, "signals": {}}
        for spec in SCENE_ARRAYS:
            part, _, name = spec.path.partition(".")
            array = arrays[spec.path]
            if array.dtype != np.dtype(spec.dtype):
                raise TypeError(f"{spec.path}: dtype {array.dtype}, expected {np.dtype(spec.dtype)}")
            parts[part][name] = array
        return Scene(RoadMap(**parts["road"]), Tracks(**parts["tracks"]), Signals(**parts["signals"]), meta)

    @cached_property
    def digest(self) -> str:
        """Identity of what simulating reads: every array, the clock, and whom the file singles out. Wording does not
        rename a scene."""
        meta = self.meta
        read = {
            "version": DIGEST_VERSION,
            "arrays": digest_arrays(self.arrays(), "scene arrays"),
            "dt_us": meta.dt_us,
            "steps": meta.steps,
            "current_step": meta.current_step,
            "origin": list(meta.origin),
            "has_z": meta.has_z,
            "sdc": meta.sdc,
            "tracks_to_predict": list(meta.tracks_to_predict),
            "objects_of_interest": list(meta.objects_of_interest),
        }
        return digest_value(read, "scene")

    @cached_property
    def map_digest(self) -> str:
        """Identity of the road and of where its signals stand: scenes on one map share it, and with it their index."""
        arrays = {path: array for path, array in self.arrays().items() if path in MAP_ARRAYS}
        return digest_value({"arrays": digest_arrays(arrays, "map arrays"), "has_z": self.meta.has_z}, "map")
