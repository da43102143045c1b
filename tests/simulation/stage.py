"""Agents placed by hand, for the kernels that read flat arrays of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skidpad.scenes.scene import SUBTYPE_NONE, TYPE_VEHICLE
from skidpad.simulation.kernels.agent_grid import BLOCK, GRID_ROWS
from skidpad.simulation.kernels.contact import CONTACT_SLOTS, Bodies, Contacts, agent_contacts, pair_count
from skidpad.simulation.kernels.lanes import LaneState

NO_GATE = np.inf


@dataclass(frozen=True)
class Actor:
    """One agent in one step: pose before and after (x, y, heading), size, kind and speed."""

    start: tuple[float, float, float]
    stop: tuple[float, float, float]
    length: float = 4.0
    width: float = 2.0
    height: float = 1.5
    z: float = 0.0
    speed: float | None = None
    type: int = TYPE_VEHICLE
    subtype: int = SUBTYPE_NONE
    before: bool = True
    after: bool = True

    def standing(self) -> Actor:
        """The same at rest where it came to."""
        return replace(self, start=self.stop, before=self.after)


def driving(x, y, heading, speed, dt=0.1, turn=0.0, **kind) -> Actor:
    """An actor that drives straight at `speed` [m/s] and turns by `turn` [rad] in a step of `dt` [s]."""
    stop = (x + speed * dt * np.cos(heading), y + speed * dt * np.sin(heading), heading + turn)
    return Actor((x, y, heading), stop, speed=speed, **kind)


def bodies_of(actors, keys=None) -> Bodies:
    """The arrays of some actors, all of one world."""

    def column(values, dtype=np.float32):
        return np.array(list(values), dtype)

    start, stop = [a.start for a in actors], [a.stop for a in actors]
    heading0, heading1 = (np.array([p[2] for p in poses], np.float64) for poses in (start, stop))
    keys = range(len(actors)) if keys is None else keys
    return Bodies(
        x0=column(p[0] for p in start),
        y0=column(p[1] for p in start),
        z0=column(a.z for a in actors),
        cos0=np.cos(heading0).astype(np.float32),
        sin0=np.sin(heading0).astype(np.float32),
        x=column(p[0] for p in stop),
        y=column(p[1] for p in stop),
        z=column(a.z for a in actors),
        cos=np.cos(heading1).astype(np.float32),
        sin=np.sin(heading1).astype(np.float32),
        length=column(a.length for a in actors),
        width=column(a.width for a in actors),
        height=column(a.height for a in actors),
        before=column((a.before for a in actors), np.uint8),
        after=column((a.after for a in actors), np.uint8),
        type=column((a.type for a in actors), np.uint8),
        subtype=column((a.subtype for a in actors), np.uint8),
        speed=column(
            np.hypot(a.stop[0] - a.start[0], a.stop[1] - a.start[1]) * 10 if a.speed is None else a.speed
            for a in actors
        ),
        key=column(keys, np.int32),
    )


def lanes_of(count, lane=0, offset=0.0, half_width=1.75) -> LaneState:
    """Lane states of agents that all stand alike on a lane."""

    def all_(value, dtype=np.float32):
        return np.full(count, value, dtype)

    return LaneState(
        lane=all_(lane, np.int32),
        previous=all_(-1, np.int32),
        arc=all_(0),
        offset=all_(offset),
        cos=all_(1),
        sin=all_(0),
        half_width=all_(half_width),
        limit=all_(np.nan),
        height=all_(0),
        segment=all_(-1, np.int32),
    )


class World:
    """One world whose contacts are found step by step."""

    def __init__(self, count: int, lanes: LaneState | None = None, gate: float = NO_GATE, keys=None) -> None:
        self.count, self.gate, self.keys = count, gate, keys
        self.lanes = lanes_of(count) if lanes is None else lanes
        self.pair = np.zeros(pair_count(count), np.uint8)
        self.scratch = np.empty((GRID_ROWS, count + BLOCK), np.float32)
        self.places = np.empty(CONTACT_SLOTS * count + 2, np.int32)

    def step(self, actors) -> Contacts:
        """The contacts of one step."""
        contacts = Contacts(
            events=np.zeros(self.count, np.uint32),
            partner=np.full(self.count, 7, np.int32),
            time=np.full(self.count, 7, np.float32),
            touching=np.full(self.count, 7, np.uint8),
        )
        bodies = bodies_of(actors, self.keys)
        self.grid = agent_contacts(
            bodies, self.lanes, 0, self.count, self.gate, self.pair, self.scratch, self.places, contacts
        )
        return contacts
