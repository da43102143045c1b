"""Who touched whom, and what, during a step.

All agents have moved when this runs; nobody's contact depends on another's. A kernel works on the agents of one world,
`first` up to `end` of the flat arrays. Pairs are visited once and charged twice, so contact is mutual by construction.
Contact with an agent is an event when it begins; while it lasts, `touching` says so. Contact with an edge, and being
off the road or the map, is an event in every step in which it is so.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Event
from skidpad.scenes.index import EdgeMap, LaneMap
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.geometry import NEVER, boxes_overlap, turned, turning_boxes
from skidpad.simulation.kernels.lanes import LaneState, cell_of, ribbon_gap
from skidpad.simulation.kernels.trig import arctan2

SCRATCH_ROWS = 4
APART, TOUCHING, OVERLAPPING = np.uint8(0), np.uint8(1), np.uint8(2)

VEHICLE, VRU, STATIC = (np.uint32(Event.COLLISION_VEHICLE), np.uint32(Event.COLLISION_VRU), np.uint32(Event.COLLISION_STATIC))
OFFROAD, OFF_MAP = np.uint32(Event.OFFROAD), np.uint32(Event.OFF_MAP)
AT_FAULT, HIT_FROM_BEHIND = np.uint32(Event.AT_FAULT), np.uint32(Event.HIT_FROM_BEHIND)

MARGIN_M = 1e-6  # rounding of the broad phase
STOPPED = np.float64(0.2)  # m/s; S78
BEHIND_COS = np.float64(-0.8660254037844387)  # cos 150 degrees; S78
STRADDLE_M = np.float64(0.2)  # S78
FACE_M = np.float64(0.05)  # two faces this close at first contact are in contact; covers PIECE_M and rounding
RIBBON_M = np.float64(0.3)  # S71: how far a corner may leave the lanes
LASTING = np.float32(2.0)  # ranks contacts that began earlier behind those of this step


class Bodies(NamedTuple):
    """The boxes of all agents of all worlds, before (0) and after the step; flat arrays over agents.

    x0, y0, z0         (A,)  f32 [m]    centre of the box before
    cos0, sin0         (A,)  f32        its heading
    x, y, z, cos, sin  (A,)  f32        after
    length, width, height  (A,)  f32 [m]  after
    before, after      (A,)  u8         1 where the agent has a body then: others can meet it
    type, subtype      (A,)  u8         as in the scene
    speed              (A,)  f32 [m/s]  signed, after
    key                (A,)  i32        stable name of the agent in its world (its track): breaks ties
    """

    x0: NDArray[np.float32]
    y0: NDArray[np.float32]
    z0: NDArray[np.float32]
    cos0: NDArray[np.float32]
    sin0: NDArray[np.float32]
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    z: NDArray[np.float32]
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]
    length: NDArray[np.float32]
    width: NDArray[np.float32]
    height: NDArray[np.float32]
    before: NDArray[np.uint8]
    after: NDArray[np.uint8]
    type: NDArray[np.uint8]
    subtype: NDArray[np.uint8]
    speed: NDArray[np.float32]
    key: NDArray[np.int32]


class Contacts(NamedTuple):
    """What is found about contact with other agents; flat arrays over agents, written.

    events    (A,)  u32   bits are added
    partner   (A,)  i32   whom it met first in this step, else whom it still touches: index in the world, -1 = nobody
    time      (A,)  f32   share of the step at which that contact began; 0 where it began earlier or there is none
    touching  (A,)  u8    1 while it touches anybody
    """

    events: NDArray[np.uint32]
    partner: NDArray[np.int32]
    time: NDArray[np.float32]
    touching: NDArray[np.uint8]


@kernel
def pair_count(agents: int) -> int:
    """Length of the pair state of a world."""
    return agents * (agents - 1) // 2
