"""The records of an OpenDRIVE file, in metres along each road, before anything is placed in the plane."""

from __future__ import annotations

from dataclasses import dataclass, field

from skidpad.scenes.formats.opendrive_geometry import Cubics, ReferenceLine


@dataclass(frozen=True)
class Link:
    """What a road's end is joined to.

    junction  whether `target` is a junction, else a road
    end       0 the start of the target road, 1 its end, None not said
    """

    junction: bool
    target: str
    end: int | None
    line: int


@dataclass(frozen=True)
class Mark:
    """A painted line on the outer border of a lane, from s [m] on."""

    s: float
    type: str
    colour: str


@dataclass(frozen=True)
class Lane:
    """One lane of one section.

    width, border  cubics over road s; without a width the border says where the lane ends
    against        the 1.8 attribute `direction` reverses the lane
    both           it is driven in both directions
    limits         (s [m], limit [m/s] or None) where its speed limit changes
    """

    id: int
    type: str
    width: Cubics | None
    border: Cubics | None
    marks: tuple[Mark, ...]
    limits: tuple[tuple[float, float | None], ...]
    predecessors: tuple[int, ...]
    successors: tuple[int, ...]
    against: bool
    both: bool
    line: int


@dataclass(frozen=True)
class Section:
    """A stretch [start, end) [m] of road with one set of lanes, by id; `centre` are the marks of lane 0."""

    start: float
    end: float
    lanes: dict[int, Lane]
    centre: tuple[Mark, ...]


@dataclass(frozen=True)
class Signal:
    """A light or sign beside a road, or a reference to one from another road.

    id          of the light or sign itself
    kind        (dynamic, country, type) of the light or sign; None in a reference
    s           [m]
    direction   1 for traffic along s, -1 against, 0 both
    validity    lane id ranges it is valid for; empty = all lanes of its direction
    """

    id: str
    kind: tuple[bool, str, str] | None
    s: float
    direction: int
    validity: tuple[tuple[int, int], ...]
    line: int


@dataclass(frozen=True)
class Crosswalk:
    """A crosswalk at s, t [m], turned by `heading` [rad] against the road, `z` [m] above it.

    corners  (u, v, z) [m] in its own frame, or (s, t, z) [m] on the road when `on_road`
    """

    id: str
    s: float
    t: float
    z: float
    heading: float
    corners: tuple[tuple[float, float, float], ...]
    on_road: bool
    line: int


Aliases = tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]


@dataclass
class Road:
    """One road.

    left_hand  its traffic keeps to the left
    types      (s [m], type, limit [m/s] or None)
    aliases    at its start and end: lane ids that other roads may use, and the lanes meant (see `_bridge_short`)
    ends       what its start and its end are joined to
    """

    id: str
    junction: str | None
    left_hand: bool
    course: ReferenceLine
    elevation: Cubics
    offset: Cubics
    types: list[tuple[float, str, float | None]]
    sections: list[Section]
    aliases: Aliases
    ends: tuple[Link | None, Link | None]
    signals: list[Signal]
    references: list[Signal]
    crosswalks: list[Crosswalk]
    line: int

    @property
    def length(self) -> float:
        return self.course.length


@dataclass(frozen=True)
class Connection:
    """Lanes (from, to) of an incoming road that lead into the `end` (0 start, 1 end) of another road."""

    incoming: str
    road: str
    end: int | None
    lanes: tuple[tuple[int, int], ...]
    line: int


@dataclass(frozen=True)
class Junction:
    id: str
    connections: tuple[Connection, ...]
    controllers: tuple[str, ...]


@dataclass
class Network:
    """A whole file. `controllers` maps a controller's id to the ids of the signals it switches together."""

    version: str
    name: str
    geo_reference: str
    roads: dict[str, Road] = field(default_factory=dict)
    junctions: dict[str, Junction] = field(default_factory=dict)
    controllers: dict[str, tuple[str, ...]] = field(default_factory=dict)
